"""The changed fields of planned updates, with names."""

import pytest
from sqlalchemy import func, select

from app.access.records import AccessRole, User
from app.access.refresh.model_changes import FORMER_PAYLOAD, delete_unused_payloads
from app.foundation.database.engine import reading, writing
from app.service.admin.wire import change_to_wire
from app.sync.plan.fields import NOT_KNOWN, all_fields
from app.sync.plan.listing import PlannedChange
from app.sync.runs.run import Run
from tests.worlds.directory import small_company
from tests.worlds.syncing import SyncedWorld

pytestmark = pytest.mark.slow


@pytest.fixture
def company(world: SyncedWorld) -> SyncedWorld:
    small_company(world.directory)
    assert world.sync().status == "done"
    return world


def changes(company: SyncedWorld, run: Run) -> list[PlannedChange]:
    return company.runs.changes(run.run_id, limit=1000)


def updates(company: SyncedWorld, run: Run) -> dict[tuple[str, str, str], dict[str, tuple[object, object]]]:
    return {
        (change.operation, change.container_id, change.item_id): {
            field.field: (field.old, field.new) for field in change.fields
        }
        for change in changes(company, run)
        if change.action == "update"
    }


def kept(company: SyncedWorld) -> int:
    with reading(company.engine) as connection:
        return connection.execute(select(func.count()).select_from(FORMER_PAYLOAD)).scalar_one()


@pytest.mark.parametrize("dry", [True, False])
def test_updates_have_exactly_the_changed_fields(company: SyncedWorld, dry: bool) -> None:
    company.directory.user("ada", name="Ada King", email="ada@acme.example", extra_fields={"title": "Countess"})
    company.directory.member("ada", role="viewer")
    company.directory.folder("specs", folder_name="Specifications", access="restricted")
    company.directory.organization("acme", organization_name="Acme & Co")

    run = company.sync(dry_run=dry)

    found = updates(company, run)
    assert found["update_organizations", "", "acme"] == {"organizationName": ("acme", "Acme & Co")}
    assert found["update_users", "", "ada"]["accessRole"] == ("editor", "viewer")
    assert found["update_users", "", "ada"]["name"][1] == "Ada King"
    assert found["update_users", "", "ada"]["title"] == (None, "Countess")
    assert "userId" not in found["update_users", "", "ada"]
    assert all(change.all_fields_known for change in changes(company, run))


def test_changes_have_the_former_parents_roles_and_access_types(company: SyncedWorld) -> None:
    company.directory.member("ada", role="viewer")
    company.directory.document("roadmap", folder="archive")
    company.directory.document("handbook", access="public")
    company.directory.folder("drafts", parent="archive")

    run = company.sync()

    found = updates(company, run)
    assert found["update_users", "", "ada"] == {"accessRole": ("editor", "viewer")}
    assert found["move_documents", "", "roadmap"] == {"folderId": ("drafts", "archive")}
    assert found["update_folder", "", "drafts"] == {"parentFolderId": ("specs", "archive")}
    assert found["update_document_access", "", "handbook"]["accessType"][1] == "public"
    # Long after, and whatever was synced since.
    company.directory.member("ada", role="editor")
    company.sync()
    assert updates(company, run) == found


def test_items_have_names_even_if_they_are_gone(company: SyncedWorld) -> None:
    company.directory.remove("document", "acme", "handbook")
    company.directory.remove("grant", "acme", "drafts")
    company.directory.grant(folder="archive", user="cleo")

    run = company.sync(dry_run=True)

    names = {(one.action, one.kind, one.item_id): (one.name, one.container_name) for one in changes(company, run)}
    assert names["delete", "document", "handbook"] == ("Handbook", None)
    assert names["delete", "folderUser", "bob"] == ("Bob", "Drafts")
    assert names["add", "folderUser", "cleo"] == ("Cleo", "Archive")


def test_fields_sent_before_they_were_stored_are_unknown_until_they_are_sent_again(company: SyncedWorld) -> None:
    company.directory.document("handbook", document_name="Manual")
    # As after an upgrade, of what the directory had changed before.
    with writing(company.engine) as connection:
        connection.exec_driver_sql("UPDATE ledger_item SET digest = 'of old' WHERE item_id = 'handbook'")
    run = company.sync()

    (change,) = changes(company, run)
    assert (change.fields, change.all_fields_known) == ((), False)
    assert change_to_wire(change)["allFieldsKnown"] is False
    company.directory.document("handbook", document_name="Handbook")
    assert updates(company, company.sync()) == {
        ("update_documents", "", "handbook"): {"documentName": ("Manual", "Handbook")}
    }


def test_fields_are_kept_once_and_as_long_as_a_backend_may_hold_them(company: SyncedWorld) -> None:
    assert kept(company) == 0
    company.directory.user("bob", name="Robert")
    company.sync(dry_run=True)
    assert kept(company) == 0
    company.directory.user("bob", name="Bobby")
    with writing(company.engine) as connection:
        assert delete_unused_payloads(connection) == 0
    company.sync()
    # bob is a member, and has entries at folders and documents: all of them have the same fields.
    assert kept(company) == 1
    with writing(company.engine) as connection:
        assert delete_unused_payloads(connection) == 1
    company.directory.remove("user", "dan")
    company.directory.remove("membership", "acme", "dan")
    company.directory.remove("groupMember", "acme", "core")
    company.sync(dry_run=False)
    assert kept(company) == 1


def stories(company: SyncedWorld, run: Run, kind: str, item_id: str) -> dict[str, tuple[object, object]]:
    """Field → before and after, of the one item of that kind and id."""
    assert run.plan_id is not None
    with reading(company.engine) as connection:
        (item,) = [one for one in changes(company, run) if (one.kind, one.item_id) == (kind, item_id)]
        found = all_fields(connection, item, item.was)
    return {one.field: (one.old, one.new) for one in found}


def test_item_has_its_fields_before_and_after_even_if_it_is_deleted(company: SyncedWorld) -> None:
    company.directory.user("bob", name="Robert")
    changed = company.sync()
    shown = stories(company, changed, "organizationUser", "bob")
    assert shown["name"] == ("Bob", "Robert")
    assert shown["email"] == ("bob@acme.example", "bob@acme.example")
    assert shown["accessRole"][0] == shown["accessRole"][1] != NOT_KNOWN
    company.directory.remove("user", "dan")
    company.directory.remove("membership", "acme", "dan")
    company.directory.remove("groupMember", "acme", "core")
    gone = company.sync()
    with writing(company.engine) as connection:
        delete_unused_payloads(connection)
    shown = stories(company, gone, "organizationUser", "dan")
    assert shown["name"] == ("Dan", None)
    assert shown["accessRole"][1] is None


def test_wire_omits_unknown_values(company: SyncedWorld) -> None:
    long = "x" * 500 + "\x1b[31m"
    company.directory.add(User(user_id="ada", name=long, email="ada@acme.example"))
    company.directory.member("ada", role=AccessRole.VIEWER)
    (change,) = [one for one in changes(company, company.sync(dry_run=True)) if one.kind == "organizationUser"]
    wire = change_to_wire(change)
    assert wire["name"] == long
    assert wire["fields"] == [
        {"field": "accessRole", "old": "editor", "new": "viewer"},
        {"field": "name", "old": "Ada", "new": long},
    ]
