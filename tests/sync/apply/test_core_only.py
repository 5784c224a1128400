"""A backend with core operations only."""

from typing import Any

import pytest
from werkzeug.wrappers import Response

from app.contract.operation import Tier
from app.contract.operations import by_name
from app.sync.ledger.tables import DeletedItemRow
from tests.worlds.syncing import WorldCopy

# The statements of plan, ledger and apply run on both databases in the tests beside it.
pytestmark = [pytest.mark.slow, pytest.mark.one_database]


@pytest.fixture(params=["auto", "core"])
def fresh(world: Any, fill: Any, request: Any) -> Any:
    """The company on a backend that answers 404 to everything else; found out, or known from the settings."""
    world.wire.core_only = True
    world.operations = request.param
    fill(world.directory)
    return world


# Where it is found out, nobody knows before it is tried; where it is known, nothing is tried.
FOUND_OUT = pytest.mark.parametrize("fresh", ["auto"], indirect=True)
KNOWN = pytest.mark.parametrize("fresh", ["core"], indirect=True)

_COPIES: dict[tuple[str, str], WorldCopy] = {}
"""The first ``core`` of this process, by database and settings."""


@pytest.fixture
def core(fresh: Any) -> Any:
    """The same after its first run, which has sent all that the backend supports."""
    key = fresh.engine.dialect.name, fresh.operations
    if key in _COPIES:
        _COPIES[key].restore_to(fresh)
        return fresh
    run = fresh.sync()
    assert (run.status, run.error) == ("done", None), fresh.items(run)
    fresh.wire.forget()
    _COPIES[key] = WorldCopy(fresh)
    return fresh


def test_everything_supported_is_sent(fresh: Any) -> None:
    run = fresh.sync()
    assert (run.status, run.error) == ("done", None), fresh.items(run)
    held = fresh.held()
    assert set(held["members"]) == {"ada", "bob", "dan"}
    assert set(held["folders"]) == {"specs", "drafts", "archive"}
    assert set(held["documents"]) == {"roadmap"}, "a document comes into being with its first user"
    assert held["documentUsers"] == {"roadmap": {"cleo": ("Cleo", "editor")}}
    assert set(held["folderUsers"]) == {"specs", "drafts"}
    assert held["groups"] == {"core": ["dan"], "eng": ["bob", "dan"]}
    assert run.report["rolesAndAccessTypesUnsupported"] is True
    assert run.report["unsupported"]["add_documents"] == 4


def test_second_run_sends_nothing(core: Any) -> None:
    run = core.sync()
    assert (run.status, run.calls) == ("done", 0)
    # Where it was found out, one question without items asks whether it is still so.
    asked = [sent for sent in core.wire.sent if not sent.items]
    assert core.wire.sent == asked
    assert len(asked) == (core.operations == "auto")


@FOUND_OUT
def test_items_are_sent_after_an_operation_was_missing_for_a_while(core: Any) -> None:
    for key in (("folder", "acme", "archive"), ("document", "acme", "handbook")):
        core.directory.remove(*key)
    core.sync()
    core.wire.core_only = False
    core.time.move_on(hours=7)
    assert core.sync().status == "done"
    held = core.held()
    assert set(held["folders"]) == {"specs", "drafts"}
    assert held["folders"]["specs"] == ("Specs", "root", "restricted")
    assert set(held["documents"]) == {"roadmap", "pressrelease", "salaries"}
    assert held["documents"]["salaries"] == ("Salaries", "specs", "restricted")
    assert held["members"]["bob"] == ("Bob", "viewer")
    core.wire.forget()
    assert core.sync().calls == 0
    assert core.wire.sent == []


@KNOWN
def test_plan_marks_unsupported_items(fresh: Any) -> None:
    plan = fresh.sync(dry_run=True)
    assert fresh.wire.writes == []
    unsupported = {
        (item.kind, item.item_id, item.operation): item.message
        for item in fresh.items(plan, "skipped")
        if item.message.startswith("unsupported: ")
    }
    why = "backend.operations is core"
    assert unsupported["organization", "acme", "add_organizations"] == (
        f"unsupported: Add Organizations ({why}); it is created with its first user"
    )
    assert unsupported["document", "salaries", "update_document_access"] == (
        f"unsupported: Update Document Access ({why})"
    )
    assert {operation for *_, operation in unsupported} == set(plan.report["unsupported"])
    assert {by_name(operation).tier for *_, operation in unsupported} == {Tier.EXTENDED}
    assert {by_name(item.operation).tier for item in fresh.items(plan, "planned")} == {Tier.CORE}
    assert plan.counts["document"]["add"] == {"planned": 4, "skipped": 4}
    assert plan.counts["folder"]["add"] == {"planned": 3}
    run = fresh.sync(plan_id=plan.plan_id)
    assert (run.status, run.error) == ("done", None), fresh.items(run)
    assert set(fresh.held()["documents"]) == {"roadmap"}
    assert fresh.sync(dry_run=True).counts == {}


@KNOWN
def test_plan_shows_that_a_folder_is_left_behind(core: Any) -> None:
    core.directory.remove("folder", "acme", "archive")
    plan = core.sync(dry_run=True)
    assert [(item.item_id, item.status, item.message) for item in core.items(plan)] == [
        (
            "archive",
            "skipped",
            "unsupported: Delete Folder (backend.operations is core); it is emptied and left behind",
        )
    ]
    assert not plan.pending()


@KNOWN
def test_plan_shows_what_goes_by_itself_from_a_folder_that_is_left_behind(core: Any) -> None:
    core.directory.remove("folder", "acme", "drafts")
    core.directory.remove("grant", "acme", "drafts")
    plan = core.sync(dry_run=True)
    shown = {(item.kind, item.item_id): (item.status, item.message) for item in core.items(plan)}
    assert shown["folder", "drafts"][0] == "skipped"
    by_itself = ("planned", "goes by itself: folder drafts is left behind")
    people = {key: one for key, one in shown.items() if key[0] == "folderUser"}
    assert people
    assert set(people.values()) == {by_itself}
    assert plan.pending()
    run = core.sync(plan_id=plan.plan_id)
    assert (run.status, run.error) == ("done", None), core.items(run)
    assert "drafts" not in core.held()["folderUsers"]
    assert core.items(run, "planned") == []


@KNOWN
def test_missing_operations_are_not_tried_again(fresh: Any) -> None:
    fresh.sync(verify=True)
    fresh.directory.remove("document", "acme", "handbook")
    fresh.directory.remove("folder", "acme", "archive")
    fresh.sync()
    assert {by_name(sent.operation).tier for sent in fresh.wire.sent} == {Tier.CORE}
    assert {sent.path for sent in fresh.wire.sent} == {by_name(sent.operation).path for sent in fresh.wire.sent}


def test_deleted_folder_is_emptied_and_left_behind(core: Any) -> None:
    for key in (
        ("folder", "acme", "specs"),
        ("folder", "acme", "drafts"),
        ("document", "acme", "roadmap"),
        ("document", "acme", "salaries"),
        ("grant", "acme", "specs"),
        ("grant", "acme", "drafts"),
        ("grant", "acme", "", "roadmap"),
    ):
        core.directory.remove(*key)
    run = core.sync()
    assert (run.status, run.error) == ("done", None), core.items(run)
    held = core.held()
    assert set(held["folders"]) == {"specs", "drafts", "archive"}
    assert held["folderUsers"] == {}
    assert held["documents"] == {}
    assert run.report["leftBehind"] == {"folder": 2}
    assert not [key for key in core.ledger() if key[0] in {"folderUser", "documentUser"}]
    core.wire.forget()
    assert core.sync().calls == 0


def test_deleted_organization_is_emptied_and_left_behind(core: Any) -> None:
    core.directory.records.clear()
    core.directory.organization("other")
    run = core.sync(allow_deletes=True)
    assert (run.status, run.error) == ("done", None), core.items(run)
    held = core.held()
    assert (held["members"], held["documents"], held["folderUsers"]) == ({}, {}, {})
    assert run.report["leftBehind"] == {"organization": 1, "folder": 3}
    assert set(core.ledger()) == {("organization", "", "other")}
    groups = core.ask("get_users", organizationId="acme", organizationUserGroupIds=["eng", "core"])
    assert groups == []


def test_verify_reports_kinds_that_it_cannot_read(core: Any) -> None:
    core.ask("delete_users", organizationId="acme", userIds=["ada"])
    core.ask("delete_users", organizationId="acme", folderId="drafts", userIds=["bob"])
    run = core.sync(verify=True)
    assert run.status == "done"
    assert run.report["verify"]["notRead"] == ["document", "folder", "group"]
    assert run.report["verify"]["missing"] == 2
    held = core.held()
    assert "ada" in held["members"]
    assert "bob" in held["folderUsers"]["drafts"]


def test_settings_that_allow_the_rest_are_enough(core: Any) -> None:
    """No verify is needed to fix it."""
    core.directory.remove("folder", "acme", "archive")
    assert core.sync().report["leftBehind"] == {"folder": 1}
    core.wire.core_only = False
    core.operations = "auto"
    core.time.move_on(hours=7)
    assert core.sync().status == "done"
    held = core.held()
    assert set(held["folders"]) == {"specs", "drafts"}
    assert held["folders"]["specs"] == ("Specs", "root", "restricted")
    assert held["documents"]["salaries"] == ("Salaries", "specs", "restricted")
    assert held["members"]["bob"] == ("Bob", "viewer")
    core.wire.forget()
    assert core.sync().calls == 0


@FOUND_OUT
def test_verify_that_cannot_read_a_kind_forgets_none_of_its_deletions(fresh: Any) -> None:
    fresh.wire.core_only = False
    fresh.sync()
    fresh.directory.remove("document", "acme", "handbook")
    fresh.sync()
    fresh.operations = "core"
    assert "document" in fresh.sync(verify=True).report["verify"]["notRead"]
    assert [row.item_id for row in fresh.rows(DeletedItemRow)] == ["handbook"]
    fresh.operations = "auto"
    fresh.sync(verify=True)
    assert fresh.rows(DeletedItemRow) == []


def test_unsupported_items_are_sent_after_a_verify_finds_the_operations(core: Any) -> None:
    core.wire.core_only = False
    core.operations = "auto"
    assert core.sync(verify=True).status == "done"
    assert core.sync(verify=True).status == "done"
    held = core.held()
    assert set(held["documents"]) == {"handbook", "roadmap", "pressrelease", "salaries"}
    assert held["documents"]["roadmap"][:2] == ("Roadmap", "drafts")
    assert held["documents"]["salaries"] == ("Salaries", "specs", "restricted")
    assert held["folders"]["specs"] == ("Specs", "root", "restricted")
    assert held["members"]["bob"] == ("Bob", "viewer")
    core.wire.forget()
    assert core.sync().calls == 0


def test_existing_item_gets_the_rest_if_the_backend_supports_it(world: Any, fill: Any) -> None:
    """The state of existing items is unknown: an add becomes an update, and further calls send the other fields."""
    world.operations = "auto"
    world.directory.organization("acme")
    world.sync()  # what is there by then would be adopted
    fill(world.directory)
    folders = [
        {"folderId": folder, "folderName": folder.title(), "accessType": "public"} for folder in ("specs", "drafts")
    ]
    world.ask("add_folder", organizationId="acme", folders=folders)
    documents = [
        {"documentId": name, "documentName": "old", "accessType": "public"} for name in ("roadmap", "salaries")
    ]
    world.ask("add_documents", organizationId="acme", documents=documents)
    lacked = {"update_folder_access", "move_documents", "update_document_access"}

    def hook(name: str, data: dict[str, Any], backend: Any) -> Response:
        if name in lacked:
            return Response(b"<html>no such page</html>", 404, content_type="text/html")
        answer: Response = backend()
        return answer

    world.wire.hook = hook
    assert world.sync().status == "done"
    world.wire.hook = None
    world.time.move_on(hours=7)
    assert world.sync().status == "done"
    held = world.held()
    assert (held["folders"]["specs"][2], held["folders"]["drafts"][2]) == ("restricted", None)
    assert held["documents"]["roadmap"][:2] == ("Roadmap", "drafts")
    assert held["documents"]["salaries"] == ("Salaries", "specs", "restricted")
    world.wire.forget()
    assert world.sync().calls == 0
