"""Query plans of organizations, folders, documents, users, groups and permissions are index lookups."""

import random
from typing import Any

import pytest
from sqlalchemy import text

from app.foundation.database.engine import is_sqlite
from tests.bench.features import fill
from tests.bench.resources import furnish, resource_operations

from .conftest import BackendWorld, Caller
from .plans import check_plans, recorded

TABLES = ("organization", "folder", "document", "user_entry", "user_group", "group_member")
RECORDS = 20_000
DOCUMENTS = 200
USERS = 2_000
READ_FROM_ONE_END = {
    "users of an organization",
    "users of all documents",
    "documents of an organization",
    "folders at the top",
}
"""Operations that page through the organization in the order of its index."""
ACME = {"organizationId": "acme"}


def more_operations() -> dict[str, tuple[str, dict[str, Any]]]:
    """Calls that are not in the benchmark."""
    leaf = {"folderId": "leaf", "folderName": "Leaf", "parentFolderId": "shelf"}
    return {
        "folders at the top": ("get_folders", {**ACME, "maxDepth": 1}),
        "add a folder in a folder": ("add_folder", {**ACME, "folders": [leaf]}),
        "add a user to a folder": ("add_users", {**ACME, "folderId": "leaf", "users": [{"userId": "u7"}]}),
        "users of some groups": (
            "get_users",
            {**ACME, "organizationUserGroupIds": ["crew", "team-100"], "pageSize": 50},
        ),
        "users of a folder": ("get_users", {**ACME, "folderId": "leaf", "pageSize": 50}),
        "move a document into a folder": ("move_documents", {**ACME, "documentIds": ["d1"], "folderId": "leaf"}),
        "documents of a folder": ("get_documents", {**ACME, "folderId": "leaf", "pageSize": 50}),
        "permissions on a folder": ("get_permissions", {**ACME, "userIds": ["u7"], "folderIds": ["leaf"]}),
        "access of a folder with something in it": (
            "update_folder_access",
            {**ACME, "folderIds": ["shelf"], "accessType": "public"},
        ),
        "move a folder": (
            "update_folder",
            {**ACME, "folders": [{"folderId": "leaf", "parentFolderId": "root"}]},
        ),
        "delete a folder": ("delete_folder", {**ACME, "folderId": "leaf"}),
        "take everybody out of a group": (
            "delete_users_from_groups",
            {**ACME, "organizationUserGroupId": "crew", "deleteAll": True},
        ),
        "delete a user of a document": ("delete_users", {**ACME, "documentId": "d2", "userIds": ["u8"]}),
    }


@pytest.fixture(scope="module")
def tenant(shared_world: BackendWorld) -> Caller:
    """An organization with many users and documents, for all tests of the module."""
    world = shared_world
    tenant = world.tenant()
    fill(world.engine, tenant.ids["api_key"], RECORDS, USERS)
    furnish(lambda operation, data: tenant(operation, **data), deletable=20)
    tenant("add_folder", **ACME, folders=[{"folderId": f"top-{n}", "folderName": "Top"} for n in range(20)])
    for top in range(20):
        below = [{"folderId": f"in-{top}-{n}", "folderName": "In", "parentFolderId": f"top-{top}"} for n in range(50)]
        tenant("add_folder", **ACME, folders=below)
        inside = [{"documentId": f"in-{top}-{n}", "documentName": "In", "folderId": f"in-{top}-{n}"} for n in range(50)]
        tenant("add_documents", **ACME, documents=inside)
    for start in range(0, USERS, 100):
        members = [f"u{number}" for number in range(start, start + 100)]
        tenant("add_users_to_groups", **ACME, organizationUserGroupId=f"team-{start}", userIds=members)
    if not is_sqlite(world.engine):
        # What autovacuum does within a minute.
        with world.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ANALYZE"))
    return tenant


@pytest.mark.extended
def test_every_statement_is_an_index_lookup(shared_world: BackendWorld, tenant: Caller) -> None:
    calls = {name: call() for name, call in resource_operations(DOCUMENTS, USERS, random.Random(1)).items()}
    seen = 0
    for name, (operation, data) in (calls | more_operations()).items():
        with recorded(shared_world.engine, TABLES) as statements:
            answer = tenant.call(operation, **data)
            assert answer.status_code == 200, f"{name}: {answer.get_json()}"
        check_plans(shared_world.engine, name, statements, TABLES, through_organization=name in READ_FROM_ONE_END)
        seen += len(statements)
    assert seen > 80


@pytest.mark.extended
def test_later_page_is_an_index_lookup(shared_world: BackendWorld, tenant: Caller) -> None:
    for operation, field, filters in (
        ("get_users", "nextPageToken", {}),
        ("get_users", "nextPageToken", {"documentId": "d1"}),
        ("get_documents", "pageToken", {}),
    ):
        query = {**ACME, "pageSize": 2, **filters}
        if filters:
            tenant("add_users", **ACME, **filters, users=[{"userId": f"u{n}"} for n in range(5)])
        token = tenant.call(operation, **query).get_json()["result"][field]
        with recorded(shared_world.engine, TABLES) as statements:
            assert tenant.call(operation, **query, pageToken=token).status_code == 200
        assert statements
        check_plans(shared_world.engine, operation, statements, TABLES, through_organization=not filters)


def test_deleting_an_organization_scans_no_other(shared_world: BackendWorld, tenant: Caller) -> None:
    tenant("add_organizations", organizations=[{"organizationId": "leaving", "organizationName": "Leaving"}])
    tenant("add_users", organizationId="leaving", users=[{"userId": "u1"}])
    with recorded(shared_world.engine, TABLES) as statements:
        assert tenant.call("delete_organizations", organizationIds=["leaving"]).status_code == 200
    assert statements
    check_plans(shared_world.engine, "delete an organization", statements, TABLES, through_organization=True)
