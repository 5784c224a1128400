"""Deletions remove the rows of all tables."""

import pytest
from sqlalchemy import select

from app.backend.schema import METADATA

from .conftest import BackendWorld, Caller
from .sampling import Actor
from .test_document_migrations import DEPENDENT, fill, rows_of

ORG = {"organizationId": "acme"}


def organization_rows(world: BackendWorld, organization_id: str) -> dict[str, int]:
    numbers = {}
    with world.engine.connect() as connection:
        for table in METADATA.sorted_tables:
            if "organization_id" in table.columns:
                rows = connection.execute(select(table).where(table.c.organization_id == organization_id)).all()
                numbers[table.name] = len(rows)
    return {name: number for name, number in numbers.items() if number}


@pytest.fixture
def full(world: BackendWorld) -> Caller:
    """A tenant with rows in every dependent table."""
    actor = Actor(world)
    tenant = actor.tenant
    for organization_id in ("acme", "other"):
        of = {"organizationId": organization_id}
        documents = [{"documentId": "d"}, {"documentId": "e"}]
        tenant("add_folder", **of, folders=[{"folderId": "f"}], createOrganization=True)
        tenant("add_documents", **of, folderId="f", documents=documents)
        for document_id in ("d", "e"):
            comment = {"commentText": "x", "from": {"userId": "ada"}}
            tenant(
                "add_comment_annotations",
                **of,
                documentId=document_id,
                commentAnnotations=[{"annotationId": f"of-{document_id}", "commentData": [comment]}],
            )
    fill(world, tenant, "d", rows=3)
    fill(world, tenant, "e", rows=3, first=3)
    return tenant


def test_delete_documents_deletes_all_rows(world: BackendWorld, full: Caller) -> None:
    other = rows_of(world, "e")
    others = organization_rows(world, "other")
    full("delete_documents", **ORG, documentIds=["d"])

    with world.engine.connect() as connection:
        for table, column in DEPENDENT.items():
            left = connection.execute(
                select(table).where(table.c.organization_id == "acme", table.c[column] == "d")
            ).all()
            assert left == [], table.name
        for name in ("comment", "thread_user"):
            table = METADATA.tables[name]
            left = connection.execute(
                select(table).where(table.c.organization_id == "acme", table.c.annotation_id == "of-d")
            ).all()
            assert left == [], name
    assert rows_of(world, "e") == other
    assert organization_rows(world, "other") == others


def test_delete_folder_deletes_all_rows_of_documents(world: BackendWorld, full: Caller) -> None:
    full("delete_folder", **ORG, folderId="f")

    left = set(organization_rows(world, "acme"))
    assert left - {"organization"} == set()


def test_delete_organizations_deletes_all_rows(world: BackendWorld, full: Caller) -> None:
    others = organization_rows(world, "other")
    full("migrate_documents", **ORG, documentId="d", newDocumentId="d2")

    full("delete_organizations", organizationIds=["acme"])

    assert organization_rows(world, "acme") == {}
    assert organization_rows(world, "other") == others


def test_no_column_contains_ids_of_a_deleted_organization(world: BackendWorld) -> None:
    """Searches every column of every table."""
    actor = Actor(world)
    tenant = actor.tenant
    tenant("update_advanced_webhook_config", isEnabled=True)
    tenant("create_advanced_webhook_endpoint", url="https://hooks.example/")
    for name in ("gone", "kept"):
        of = {"organizationId": f"org-{name}"}
        on = of | {"documentId": f"doc-{name}"}
        people = [f"{who}-{name}" for who in ("author", "reader", "judge", "added", "member", "granted", "removed")]
        author, reader, judge, added, member, granted, removed = people
        tenant("add_organizations", organizations=[of | {"organizationName": f"name-{name}"}])
        tenant("add_folder", **of, folders=[{"folderId": f"folder-{name}"}])
        tenant("add_users", **on, users=[{"userId": one, "email": f"{one}@x.example"} for one in people])
        tenant("add_users", **of, users=[{"userId": one} for one in (author, removed)])
        tenant("delete_users", **of, userIds=[removed])
        tenant("add_groups", **of, organizationUserGroups=[{"groupId": f"group-{name}"}])
        tenant("add_users_to_groups", **of, organizationUserGroupId=f"group-{name}", userIds=[member])
        resource = {"type": "folder", "id": f"folder-{name}", **of}
        tenant("add_permissions", user={"userId": granted}, permissions={"resources": [resource]})
        wrote = {
            "commentText": "x",
            "from": {"userId": author},
            "reactions": [{"icon": "+1", "from": {"userId": reader}}],
        }
        threads = [
            {
                "annotationId": f"t{number}",
                "type": "suggestion",
                "assignedTo": {"userId": judge},
                "commentData": [wrote],
            }
            for number in range(2)
        ]
        tenant("add_comment_annotations", **on, commentAnnotations=threads)
        tenant(
            "update_comment_annotations",
            **on,
            annotationIds=["t0"],
            updatedData={"status": "accepted"},
            actionUser={"userId": judge},
        )
        tenant("delete_comment_annotations", **on, annotationIds=["t1"], actionUser={"userId": judge})
        tenant("add_crdt_data", **on, editorId=f"editor-{name}", data="x", type="text")
        tenant(
            "add_notifications",
            **on,
            actionUser={"userId": author},
            displayHeadlineMessageTemplate="x",
            displayBodyMessage="x",
            notifyUsers=[{"userId": added}],
        )
        tenant("migrate_documents", **on, newDocumentId=f"new-doc-{name}")
    assert len(naming(world, "gone")) > 15
    before = naming(world, "kept")

    tenant("delete_organizations", organizationIds=["org-gone"])

    assert naming(world, "gone") == {}
    assert naming(world, "kept") == before


def naming(world: BackendWorld, name: str) -> dict[str, int]:
    """The number of rows of each table that contain an id with this ending."""
    found: dict[str, int] = {}
    with world.engine.connect() as connection:
        for table in METADATA.sorted_tables:
            for row in connection.execute(select(table)):
                if any(f"-{name}" in str(value) for value in row):
                    found[table.name] = found.get(table.name, 0) + 1
    return found
