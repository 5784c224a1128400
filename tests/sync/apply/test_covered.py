"""Results of single items in successful answers."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError
from werkzeug.wrappers import Response

from app.sync.ledger.items import Kind
from app.sync.ledger.settlement import store_counts

# The statements of plan, ledger and apply run on both databases in the tests beside it.
pytestmark = [pytest.mark.slow, pytest.mark.one_database]


def failure(details: object, code: int = 500, status: str = "INTERNAL") -> Response:
    body = {"error": {"status": status, "message": "Some failed.", "details": details}}
    return Response(orjson.dumps(body), code, content_type="application/json")


def success(data: object) -> Response:
    body = {"result": {"status": "success", "message": "ok", "data": data}}
    return Response(orjson.dumps(body), 200, content_type="application/json")


def once(world: Any, operation: str, answer: Callable[[dict[str, Any]], Response]) -> None:
    """The next call of the operation is answered like this; everything else goes through."""
    left = [True]

    def hook(name: str, data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        if name != operation or not left:
            return backend()
        left.clear()
        return answer(data)

    world.wire.hook = hook


def results(*done: str, failed: tuple[str, ...] = ()) -> dict[str, Any]:
    return {name: {"success": True, "message": "Done."} for name in done} | {
        name: {"success": False, "message": "Temporarily unavailable."} for name in failed
    }


def members(world: Any, group: str) -> list[str]:
    return sorted(
        one["userId"] for one in world.ask("get_users", organizationId="acme", organizationUserGroupIds=[group])
    )


def without_group(company: Any) -> None:
    """The directory without the group "eng", of which bob and dan are members."""
    company.directory.remove("group", "acme", "eng")
    company.directory.remove("groupMember", "acme", "eng")
    company.directory.remove("grant", "acme")


@pytest.mark.parametrize("in_details", [False, True], ids=["200", "500 with details"])
def test_member_who_could_not_be_removed_with_all_the_others_is_removed_by_name(company: Any, in_details: bool) -> None:
    without_group(company)

    def leaves_bob(data: dict[str, Any]) -> Response:
        assert data["deleteAll"] is True
        group = {"organizationId": "acme", "organizationUserGroupId": "eng"}
        company.ask("delete_users_from_groups", **group, userIds=["dan"])
        items = results("dan", failed=("bob",))
        return failure(items) if in_details else success(items)

    once(company, "delete_users_from_groups", leaves_bob)
    run = company.sync()
    assert run.status == "partial"
    assert run.counts["groupMember"]["delete"] == {"planned": 2, "done": 1, "failed": 1}
    (failed,) = company.items(run, "failed")
    assert (failed.kind, failed.item_id, failed.message) == ("groupMember", "bob", "Temporarily unavailable.")
    assert members(company, "eng") == ["bob"]
    assert ("groupMember", "eng", "bob") in company.ledger()
    assert ("groupMember", "eng", "dan") not in company.ledger()
    company.time.move_on(minutes=2)
    company.wire.forget()
    assert company.sync().status == "done"
    assert [sent.data.get("userIds") for sent in company.wire.writes] == [["bob"]]
    assert members(company, "eng") == []
    assert company.failures() == {}


def test_members_whom_the_answer_does_not_mention_are_removed_by_name_in_the_same_run(company: Any) -> None:
    without_group(company)
    once(company, "delete_users_from_groups", lambda data: success({}))
    run = company.sync()
    assert (run.status, run.counts["groupMember"]["delete"]) == ("done", {"planned": 2, "done": 2})
    assert members(company, "eng") == []
    assert not [key for key in company.ledger() if key[1] == "eng" or key[2] == "eng"]


def test_member_who_is_desired_after_a_partial_emptying_is_added_again(company: Any) -> None:
    """The run ends before it reads the members that the response does not contain."""
    without_group(company)

    def empties_and_ends(data: dict[str, Any]) -> Response:
        company.ask("delete_users_from_groups", **data)
        company.stop.set()
        return success({})

    once(company, "delete_users_from_groups", empties_and_ends)
    assert company.sync().status == "cancelled"
    company.stop.clear()
    company.directory.group("eng", users=("bob",))
    assert company.sync().status == "done"
    assert members(company, "eng") == ["bob"]


@pytest.mark.parametrize("is_away", [False, True], ids=["", "the database is away for a moment"])
def test_group_is_emptied_again_if_a_foreign_member_stayed(
    company: Any, is_away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_group(company)
    outages = [OperationalError("", None, Exception(), connection_invalidated=True)] if is_away else []

    def store_once_it_is_back(connection: Connection, run_id: str, counts: dict[str, Any], calls: int) -> bool:
        if outages and "failed" in counts.get("group", {}).get("delete", {}):
            raise outages.pop()
        return store_counts(connection, run_id, counts, calls)

    monkeypatch.setattr("app.sync.apply.applier.store_counts", store_once_it_is_back)
    everyone = results("bob", "dan", failed=("stranger",))

    def leaves_a_stranger(data: dict[str, Any]) -> Response:
        company.ask("delete_users_from_groups", **data)
        return success(everyone)

    once(company, "delete_users_from_groups", leaves_a_stranger)
    run = company.sync()
    assert not outages
    assert run.status == "partial"
    assert run.counts["groupMember"]["delete"] == {"planned": 2, "done": 2}
    (failed,) = company.items(run, "failed")
    assert (failed.kind, failed.item_id) == ("group", "eng")
    assert "stranger: Temporarily unavailable." in failed.message
    company.time.move_on(minutes=2)
    assert company.sync().status == "done"
    assert ("group", "", "eng") not in company.ledger()


@pytest.mark.parametrize("in_details", [False, True], ids=["200", "500 with details"])
def test_document_that_did_not_go_with_its_folder_is_deleted_by_name(company: Any, in_details: bool) -> None:
    for kind, name in (("folder", "specs"), ("folder", "drafts"), ("document", "salaries"), ("document", "roadmap")):
        company.directory.remove(kind, "acme", name)
    company.directory.remove("grant", "acme")

    def leaves_salaries(data: dict[str, Any]) -> Response:
        company.ask("move_documents", organizationId="acme", documentIds=["salaries"], folderId="archive")
        company.ask("delete_folder", **data)
        items = results("specs", "drafts", "roadmap", failed=("salaries",))
        return failure(items) if in_details else success(items)

    once(company, "delete_folder", leaves_salaries)
    run = company.sync()
    assert run.status == "partial"
    assert [item.item_id for item in company.items(run, "failed") if item.kind == "document"] == ["salaries"]
    assert ("document", "", "salaries") in company.ledger()
    assert ("document", "", "roadmap") not in company.ledger()
    company.time.move_on(minutes=2)
    assert company.sync().status == "done"
    assert set(company.held()["folders"]) == {"archive"}
    assert set(company.held()["documents"]) == {"handbook", "pressrelease"}
    assert "salaries" not in {key[2] for key in company.ledger()}


@pytest.mark.parametrize("in_details", [False, True], ids=["200", "500 with details"])
def test_folder_that_the_answer_reports_as_existing_is_still_ours(company: Any, in_details: bool) -> None:
    company.directory.remove("folder", "acme", "archive")
    items = results(failed=("archive",))
    once(company, "delete_folder", lambda data: failure(items) if in_details else success(items))
    assert company.sync().status == "partial"
    assert ("folder", "", "archive") in company.ledger()
    company.time.move_on(minutes=2)
    assert company.sync().status == "done"
    assert "archive" not in company.held()["folders"]


@pytest.mark.parametrize("in_details", [False, True], ids=["200", "500 with details"])
def test_document_that_was_not_moved_with_the_others_is_moved_later(company: Any, in_details: bool) -> None:
    for name in ("handbook", "pressrelease"):
        company.directory.document(name, folder="archive", access="public" if name == "pressrelease" else None)

    def leaves_one(data: dict[str, Any]) -> Response:
        company.ask("move_documents", **data | {"documentIds": ["handbook"]})
        items = results("handbook", failed=("pressrelease",))
        return failure(items) if in_details else success(items)

    once(company, "move_documents", leaves_one)
    run = company.sync()
    assert run.status == "partial"
    assert [item.item_id for item in company.items(run, "failed")] == ["pressrelease"]
    company.time.move_on(minutes=2)
    assert company.sync().status == "done"
    assert {name: company.held()["documents"][name][1] for name in ("handbook", "pressrelease")} == {
        "handbook": "archive",
        "pressrelease": "archive",
    }


def test_document_that_the_answer_to_a_move_does_not_mention_is_moved_again(company: Any) -> None:
    for name in ("handbook", "pressrelease"):
        company.directory.document(name, folder="archive", access="public" if name == "pressrelease" else None)
    once(company, "move_documents", lambda data: success(results("handbook")))
    assert company.sync().status == "partial"
    assert not company.ledger()["document", "", "pressrelease"].certain


def test_organization_that_was_not_disabled_is_disabled_later(company: Any) -> None:
    company.directory.organization("acme", disabled=True)
    once(company, "disable_organizations", lambda data: success(results(failed=("acme",))))
    assert company.sync().status == "partial"
    assert not company.ledger()["organization", "", "acme"].disabled
    company.time.move_on(minutes=2)
    assert company.sync().status == "done"
    assert company.ask("get_organizations")[0]["disabled"] is True


def test_member_who_did_not_go_with_the_organization_is_removed_by_name(company: Any) -> None:
    """An id alone is ambiguous: everything with that id is deleted again, without losing other items."""
    company.directory.organization("other")
    company.sync()
    company.directory.remove("organization", "acme")

    def leaves_bob(data: dict[str, Any]) -> Response:
        company.ask("delete_organizations", **data)
        company.ask(
            "add_users", organizationId="acme", users=[{"userId": "bob", "name": "Bob", "email": "b@x.example"}]
        )
        return success(results("acme", failed=("bob", "nobody-asked")))

    once(company, "delete_organizations", leaves_bob)
    run = company.sync(allow_deletes=True)
    assert run.status == "partial"
    assert (Kind.ORGANIZATION_USER, "", "bob") in company.ledger()
    assert (Kind.ORGANIZATION, "", "acme") not in company.ledger()
    company.time.move_on(minutes=2)
    company.sync(allow_deletes=True)
    company.time.move_on(minutes=5)
    company.sync(allow_deletes=True)
    assert company.ask("get_users", organizationId="acme") == []
    assert {key[0] for key in company.ledger()} == {"organization"}


@pytest.mark.parametrize("body", [{"result": {"status": "error", "message": "no"}}, {"result": {"message": "moved"}}])
def test_answer_without_success_is_no_success(company: Any, body: dict[str, Any]) -> None:
    company.directory.document("handbook", folder="archive")
    once(company, "move_documents", lambda data: Response(orjson.dumps(body), 200, content_type="application/json"))
    assert company.sync().status == "done"
    assert company.wire.counted()["move_documents"] == 2
    assert company.held()["documents"]["handbook"][1] == "archive"
