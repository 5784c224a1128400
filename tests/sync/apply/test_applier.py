"""Every row of ``app/sync/apply/README.md``, "Outcomes", and crashes."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import orjson
import pytest
import requests
from sqlalchemy import update
from urllib3.exceptions import ProtocolError
from werkzeug.wrappers import Response

from app.foundation.database.engine import writing
from app.sync.apply.applier import _phase_name
from app.sync.ledger.failures import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, PARKED_AFTER
from app.sync.ledger.items import ItemKey
from app.sync.ledger.tables import CallRow, ItemFailureRow, LedgerItemRow
from app.sync.plan.rules import Phase
from app.sync.plan.tables import PlanItemRow

ITEM_FAILURE = ItemFailureRow.__table__

pytestmark = pytest.mark.slow

Answer = Callable[[dict[str, Any], Callable[[], Response]], Response]


def failure(code: int, status: str, message: str, **further: Any) -> Response:
    body = {"error": {"status": status, "message": message, **further}}
    return Response(orjson.dumps(body), code, content_type="application/json")


def success(data: object) -> Response:
    body = {"result": {"status": "success", "message": "ok", "data": data}}
    return Response(orjson.dumps(body), 200, content_type="application/json")


def on(world: Any, operation: str, answer: Answer, times: int = 1_000_000) -> None:
    """Lets ``answer`` answer the first so many calls of the operation; everything else goes through."""
    left = [times]

    def hook(name: str, data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        if name != operation or left[0] <= 0:
            return backend()
        left[0] -= 1
        return answer(data, backend)

    world.wire.hook = hook


def with_item(item_id: str, **result: Any) -> Answer:
    """The backend's own answer, except for one item."""

    def answer(data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        body = backend().get_json()
        if item_id in body["result"]["data"]:
            body["result"]["data"][item_id] = result
        return success(body["result"]["data"])

    return answer


def add_documents(world: Any, number: int) -> None:
    for one in range(number):
        world.directory.document(f"new{one}", folder="archive")


def test_item_failure_leaves_its_neighbours(company: Any) -> None:
    add_documents(company, 3)

    def refuses_one(data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        return success(
            {
                one["documentId"]: {"success": one["documentId"] != "new1", "message": "no room"}
                for one in data["documents"]
            }
        )

    on(company, "add_documents", refuses_one)
    run = company.sync()
    assert run.status == "partial"
    assert run.counts["document"]["add"] == {"planned": 3, "done": 2, "failed": 1}
    (failed,) = company.items(run, "failed")
    assert (failed.item_id, failed.message) == ("new1", "no room")
    assert ("document", "", "new0") in company.ledger()
    assert ("document", "", "new1") not in company.ledger()


def test_run_of_everything_removes_failures_of_items_that_are_not_desired(company: Any) -> None:
    company.directory.document("new")
    on(company, "add_documents", lambda *_: success({"new": {"success": False, "message": "no room"}}))
    company.sync()
    first = company.failures()["document", "", "new"].failing_since
    assert first == round(company.time.now.timestamp() * 1000)
    company.time.move_on(hours=7)
    company.sync()
    row = company.failures()["document", "", "new"]
    assert (row.failures, row.failing_since) == (2, first)
    company.directory.remove("document", "acme", "new")
    company.sync(user_ids=("ada",))
    company.sync(dry_run=True)
    assert len(company.failures()) == 1
    company.sync()
    assert company.failures() == {}


def test_failures_rest_longer_each_time_and_are_parked_in_the_end(company: Any) -> None:
    company.directory.document("new", folder="archive")
    on(company, "add_documents", lambda data, backend: success({"new": {"success": False, "message": "no room"}}))
    pauses = []
    for number in range(1, PARKED_AFTER + 1):
        run = company.sync()
        assert run.counts["document"]["add"] == {"planned": 1, "failed": 1}, number
        row = company.failures()["document", "", "new"]
        now = round(company.time.now.timestamp() * 1000)
        pauses.append(row.retry_at - now)
        assert (row.failures, row.parked) == (number, number == PARKED_AFTER)
        assert company.sync().counts["document"]["add"] in (
            {"planned": 1, "waiting": 1},
            {"planned": 1, "parked": 1},
        )
        company.time.move_on(seconds=pauses[-1] / 1000 + 1)
    for number, pause in enumerate(pauses):
        full = min(FIRST_PAUSE_MS * 2**number, LONGEST_PAUSE_MS)
        assert 0.8 * full <= pause <= 1.2 * full
    company.wire.forget()
    company.time.move_on(days=30)
    assert company.sync().status == "partial"
    assert company.wire.writes == []
    # A change of what it should be is a reason to try again.
    company.wire.hook = None
    company.directory.document("new", folder="archive", document_name="Another name")
    assert company.sync().status == "done"
    assert company.failures() == {}


def test_retry_tries_now_what_waits_or_is_parked(company: Any) -> None:
    company.directory.document("new", folder="archive")
    company.directory.folder("attic")
    company.directory.organization("other")

    def refuses(name: str, data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        if name in {"add_documents", "add_folder", "add_organizations"}:
            return failure(400, "FAILED_PRECONDITION", "no room")
        return backend()

    company.wire.hook = refuses
    assert company.sync().status == "partial"
    with writing(company.engine) as connection:
        connection.execute(update(ITEM_FAILURE).where(ITEM_FAILURE.c.kind == "document").values(parked=True))
    company.wire.hook = None
    company.wire.forget()
    dry = company.sync(dry_run=True, retry=True)
    assert dry.report["retried"] == {"waiting": 2, "parked": 1}
    assert company.sync(retry=True, organization_ids=("acme",), user_ids=("ada",)).report["retried"] == {
        "waiting": 0, "parked": 0,
    }  # fmt: skip
    assert len(company.failures()) == 3
    assert company.wire.writes == []
    of_documents = company.sync(retry=True, kinds=("document",))
    assert of_documents.report["retried"] == {"waiting": 0, "parked": 1}
    assert company.wire.counted() == {"add_documents": 1}
    narrowed = company.sync(retry=True, organization_ids=("acme",))
    assert narrowed.report["retried"] == {"waiting": 1, "parked": 0}
    assert set(company.failures()) == {("organization", "", "other")}
    assert company.sync(retry=True).status == "done"
    assert company.failures() == {}


def test_retry_goes_on_counting(company: Any) -> None:
    """A retry from cron would otherwise never park anything."""
    company.directory.document("new", folder="archive")

    def refuses(name: str, data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        return failure(400, "FAILED_PRECONDITION", "no room") if name == "add_documents" else backend()

    company.wire.hook = refuses
    for number in range(1, 11):
        assert company.sync(retry=True).status == "partial"
        [failed] = company.failures().values()
        assert (failed.failures, failed.parked) == (number, number == 10)
    # The next try parks it at once.
    run = company.sync(retry=True)
    assert run.report["retried"] == {"waiting": 0, "parked": 1}
    [failed] = company.failures().values()
    assert (failed.failures, failed.parked) == (11, True)
    company.wire.hook = None
    assert company.sync(retry=True).status == "done"
    assert company.failures() == {}


def test_single_items_are_tried_again_and_the_others_wait(company: Any) -> None:
    for name in ("new", "newer"):
        company.directory.document(name, folder="archive")
    company.directory.folder("attic")

    def refuses(name: str, data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        if name in {"add_documents", "add_folder"}:
            return failure(400, "FAILED_PRECONDITION", "no room")
        return backend()

    company.wire.hook = refuses
    assert company.sync().status == "partial"
    company.wire.hook = None
    company.wire.forget()
    new, attic = ItemKey("document", "acme", "", "new"), ItemKey("folder", "acme", "", "attic")
    # A kind that none of the items has leaves nothing to try.
    assert company.sync(retry=True, kinds=("group",), items=(new,)).report["retried"] == {"waiting": 0, "parked": 0}
    assert company.wire.writes == []
    run = company.sync(retry=True, items=(new, attic, new), organization_ids=("acme",))
    assert run.report["retried"] == {"waiting": 2, "parked": 0}
    assert company.wire.counted() == {"add_documents": 1, "add_folder": 1}
    assert set(company.failures()) == {("document", "", "newer")}
    assert run.items == (new, attic)


def test_server_error_with_details_is_judged_item_by_item(company: Any) -> None:
    add_documents(company, 4)

    def in_part(data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        backend()
        return failure(
            500,
            "INTERNAL",
            "some failed",
            details={
                "new0": {"success": True, "message": "ok"},
                "new1": {"success": False, "message": "is there", "code": "already-exists"},
                "new2": {"success": False, "message": "broken", "code": "internal"},
                "new3": {"success": False, "message": "no folder", "code": "not-found"},
            },
        )

    on(company, "add_documents", in_part)
    run = company.sync()
    assert {item.item_id: (item.status, item.message) for item in company.items(run) if item.kind == "document"} == {
        "new0": ("done", ""),
        "new1": ("done", ""),
        "new2": ("failed", "broken"),
        "new3": ("failed", "no folder"),
    }
    # The state of an existing item is unknown: Usher sends its name, its place and the type that it would inherit.
    assert company.wire.counted() == {
        "add_documents": 1,
        "update_documents": 1,
        "move_documents": 1,
        "update_document_access": 1,
    }


def test_add_of_what_exists_becomes_an_update_in_one_call(company: Any) -> None:
    company.ask(
        "add_users",
        organizationId="acme",
        users=[{"userId": f"u{number}", "name": "Old name", "email": "old@acme.example"} for number in range(5)],
    )
    for number in range(5):
        company.directory.user(f"u{number}")
        company.directory.member(f"u{number}", role="viewer")
    run = company.sync()
    assert run.status == "done"
    assert company.wire.counted() == {"add_users": 1, "update_users": 1}
    assert run.calls == 2
    assert company.held()["members"]["u3"] == ("U3", "viewer")


def test_items_of_other_clients_are_right_after_one_run(company: Any) -> None:
    """A document, a folder and an organization that the ledger does not know, elsewhere and with other fields."""
    at = {"organizationId": "acme"}
    company.ask("add_documents", **at, documents=[{"documentId": d, "documentName": "X"} for d in ("m1", "m2", "m3")])
    company.ask("update_document_access", **at, documentIds=["m1", "m3"], accessType="public")
    company.ask("move_documents", **at, documentIds=["m3"], folderId="archive")
    company.ask("add_folder", **at, folders=[{"folderId": "attic", "folderName": "X", "parentFolderId": "specs"}])
    company.ask("update_folder_access", **at, folderIds=["attic"], accessType="public")
    company.ask("add_organizations", organizations=[{"organizationId": "made", "organizationName": "X"}])
    company.ask("disable_organizations", organizationIds=["made"], disabled=True)
    company.directory.folder("attic", parent="archive")
    company.directory.document("m1", folder="drafts")
    company.directory.document("m2", folder="attic", access="restricted")
    company.directory.document("m3")
    company.directory.organization("made")
    run = company.sync()
    assert run.status == "done", company.items(run)
    held = company.held()
    assert held["folders"]["attic"] == ("Attic", "archive", None)
    assert held["documents"]["m1"] == ("M1", "drafts", "restricted"), "it would have kept its own type"
    assert held["documents"]["m2"] == ("M2", "attic", "restricted")
    assert held["documents"]["m3"] == ("M3", "root", "organizationPrivate")
    made = next(one for one in company.ask("get_organizations") if one["id"] == "made")
    assert (made["organizationName"], made["disabled"]) == ("made", False)
    assert all(row.certain for row in company.ledger().values())
    company.wire.forget()
    again = company.sync()
    assert (again.status, company.wire.writes) == ("done", [])
    assert company.sync(verify=True).report["verify"]["changed"] == 0


def test_items_of_other_clients_that_cannot_be_moved_are_retried(company: Any) -> None:
    company.ask("add_documents", organizationId="acme", documents=[{"documentId": "m1", "documentName": "X"}])
    company.directory.document("m1", folder="drafts")
    on(company, "move_documents", lambda data, backend: failure(400, "FAILED_PRECONDITION", "not now"), times=1)
    run = company.sync()
    assert [(item.item_id, item.message) for item in company.items(run, "failed")] == [
        ("m1", "FAILED_PRECONDITION: not now")
    ]
    assert not company.ledger()["document", "", "m1"].certain
    company.time.move_on(minutes=2)
    assert company.sync().status == "done"
    assert company.held()["documents"]["m1"] == ("M1", "drafts", "restricted")


def test_update_of_what_is_missing_adds_it_again(company: Any) -> None:
    company.ask("delete_users", organizationId="acme", documentId="roadmap", userIds=["cleo"])
    company.directory.user("cleo", name="Cleopatra")
    run = company.sync()
    assert run.status == "done"
    assert company.wire.counted() == {"update_users": 1, "add_users": 1}
    assert company.held()["documentUsers"]["roadmap"] == {"cleo": ("Cleopatra", "editor")}


def test_document_added_again_gets_back_what_was_in_it(company: Any) -> None:
    company.ask("delete_documents", organizationId="acme", documentIds=["salaries", "roadmap"])
    company.directory.document("salaries", folder="specs", access="restricted", document_name="Pay")
    company.directory.document("roadmap", folder="drafts", document_name="The road")
    assert company.sync().status == "done"
    # Their contents are uncertain now, and the next run sends them again.
    assert company.sync().status == "done"
    held = company.held()
    assert held["documents"]["salaries"] == ("Pay", "specs", "restricted")
    assert held["documentUsers"]["roadmap"] == {"cleo": ("Cleo", "editor")}
    company.wire.forget()
    assert company.sync().calls == 0


def test_delete_of_what_is_missing_is_done(company: Any) -> None:
    company.ask("delete_users", organizationId="acme", userIds=["ada"])
    company.ask("delete_folder", organizationId="acme", folderId="archive")
    company.directory.remove("membership", "acme", "ada")
    company.directory.remove("folder", "acme", "archive")
    run = company.sync()
    assert run.status == "done"
    assert run.counts["organizationUser"]["delete"] == {"planned": 1, "done": 1}
    assert run.counts["folder"]["delete"] == {"planned": 1, "done": 1}
    assert "unsupportedOperations" not in run.report


@pytest.mark.parametrize(
    "throttle",
    [
        lambda: failure(429, "RESOURCE_EXHAUSTED", "slow down"),
        lambda: failure(503, "UNAVAILABLE", "busy"),
        lambda: failure(400, "RESOURCE_EXHAUSTED", "slow down"),
    ],
    ids=["429", "503", "status"],
)
def test_throttling_is_waited_for(company: Any, throttle: Callable[[], Response]) -> None:
    add_documents(company, 2)
    on(company, "add_documents", lambda data, backend: throttle(), times=3)
    run = company.sync()
    assert run.status == "done"
    assert sum(company.time.slept) > 0
    assert ("document", "", "new1") in company.ledger()


def unreadable(data: dict[str, Any], backend: Callable[[], Response]) -> Response:
    backend()
    return Response(b"<html>", 200, content_type="text/html")


def lost(data: dict[str, Any], backend: Callable[[], Response]) -> Response:
    backend()
    raise requests.ConnectionError(ProtocolError("Connection aborted."))


def timed_out(data: dict[str, Any], backend: Callable[[], Response]) -> Response:
    backend()
    raise requests.ReadTimeout("too slow")


def broken(data: dict[str, Any], backend: Callable[[], Response]) -> Response:
    backend()
    return Response(b"oops", 502, content_type="text/plain")


@pytest.mark.parametrize("trouble", [unreadable, lost, timed_out, broken])
def test_unknown_outcome_is_repeated_until_it_is_known(company: Any, trouble: Answer) -> None:
    add_documents(company, 2)
    on(company, "add_documents", trouble, times=5)
    run = company.sync()
    assert run.status == "done"
    assert company.wire.counted()["add_documents"] == 6
    assert company.failures() == {}


@pytest.mark.parametrize("trouble", [unreadable, lost, timed_out, broken])
def test_unknown_outcome_makes_items_unconfirmed(company: Any, trouble: Answer) -> None:
    add_documents(company, 2)
    company.directory.grant(document="new0", user="cleo")
    on(company, "add_documents", trouble, times=6)
    run = company.sync()
    assert run.status == "partial"
    assert run.counts["document"]["add"] == {"planned": 2, "failed": 2}
    assert run.counts["documentUser"]["add"] == {"planned": 1, "skipped": 1}
    assert not company.ledger()["document", "", "new0"].certain
    # It did go through. If the directory wants it no more, it is ours to delete.
    company.directory.remove("document", "acme", "new0")
    company.directory.remove("grant", "acme", "", "new0")
    company.time.move_on(hours=1)
    run = company.sync()
    assert run.status == "done", company.items(run)
    held = company.held()["documents"]
    assert ("new0" in held, "new1" in held) == (False, True)
    company.wire.forget()
    assert company.sync().calls == 0


def test_backend_that_never_answers_ends_the_run(company: Any) -> None:
    company.batch_size = 1
    add_documents(company, 30)
    on(company, "add_documents", timed_out)
    run = company.sync()
    assert run.status == "failed"
    assert "does not answer" in run.error
    assert run.counts["document"]["add"]["cancelled"] > 10


def test_refused_batch_is_halved_until_the_item_at_fault_is_alone(company: Any) -> None:
    add_documents(company, 16)

    def refuses_one(data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        if any(one["documentId"] == "new5" for one in data["documents"]):
            return failure(400, "INVALID_ARGUMENT", "data.documents[5].documentName: bad")
        return backend()

    on(company, "add_documents", refuses_one)
    run = company.sync()
    assert run.status == "partial"
    (failed,) = company.items(run, "failed")
    assert (failed.item_id, "documentName" in failed.message) == ("new5", True)
    assert run.counts["document"]["add"] == {"planned": 16, "done": 15, "failed": 1}
    assert run.calls == company.wire.counted()["add_documents"] == 9


def test_item_that_the_contract_refuses_fails_alone(company: Any) -> None:
    company.directory.document("x" * 600, folder="archive")
    company.directory.document("fine", folder="archive")
    run = company.sync()
    assert run.status == "partial"
    (failed,) = company.items(run, "failed")
    assert failed.item_id == "x" * 600
    assert "fine" in company.held()["documents"]


@pytest.mark.parametrize("code", [401, 403])
def test_refused_credentials_try_nothing_else(company: Any, code: int) -> None:
    add_documents(company, 1)
    company.directory.user("eve")
    company.directory.member("eve")
    status = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}[code]
    on(company, "add_documents", lambda data, backend: failure(code, status, "who are you?"))
    run = company.sync()
    assert run.status == "failed"
    assert company.wire.counted() == {"add_documents": 1}
    assert "eve" not in company.held()["members"]


def test_missing_extended_operation_falls_back_for_the_rest_of_the_run(company: Any) -> None:
    company.batch_size = 1
    add_documents(company, 3)
    company.directory.grant(document="new0", user="ada")
    page = Response(b"no such page", 404, content_type="text/html")
    on(company, "add_documents", lambda data, backend: page)
    run = company.sync()
    assert run.status == "done", company.items(run)
    assert run.report["unsupportedOperations"] == ["add_documents"]
    assert run.report["unsupported"] == {"add_documents": 3}
    assert company.wire.counted()["add_documents"] <= 3  # those under way at the same time
    assert company.held()["documentUsers"]["new0"] == {"ada": ("Ada", "editor")}
    company.wire.forget()
    assert company.sync().calls == 0


def test_missing_extended_operation_fails_the_run_where_all_are_demanded(company: Any) -> None:
    company.operations = "extended"
    add_documents(company, 1)
    page = Response(b"no such page", 404, content_type="text/html")
    on(company, "add_documents", lambda data, backend: page)
    run = company.sync()
    assert run.status == "failed"
    assert "add_documents" in run.error


def test_not_found_in_the_api_s_own_words_is_no_missing_operation(company: Any) -> None:
    company.directory.document("new", folder="archive")
    on(
        company,
        "add_documents",
        lambda data, backend: backend() if not data["documents"] else failure(404, "NOT_FOUND", "no folder archive"),
    )
    run = company.sync()
    assert run.status == "partial"
    assert "unsupportedOperations" not in run.report
    (failed,) = company.items(run, "failed")
    assert "no folder archive" in failed.message


def test_probe_of_an_operation_counts_its_calls(company: Any) -> None:
    company.directory.document("new", folder="archive")
    page = Response(b"no such page", 404, content_type="text/html")
    on(
        company,
        "add_documents",
        lambda data, backend: failure(404, "NOT_FOUND", "no folder archive") if data["documents"] else page,
    )
    run = company.sync()
    assert run.report["unsupportedOperations"] == ["add_documents"]
    assert [sent.operation for sent in company.wire.sent] == ["add_documents", "add_documents", "get_organizations"]
    assert run.calls == 3


def test_wrong_base_url_is_reported(company: Any) -> None:
    company.directory.user("eve")
    company.directory.member("eve")
    page = Response(b"no such page", 404, content_type="text/html")
    company.wire.hook = lambda name, data, backend: page
    run = company.sync()
    assert run.status == "failed"
    assert "base_url" in run.error


def test_dependents_of_a_failed_item_are_skipped_without_a_call(company: Any) -> None:
    company.batch_size = 1
    directory = company.directory
    directory.folder("outer")
    directory.folder("inner", parent="outer")
    directory.document("lost", folder="inner")
    directory.grant(document="lost", user="cleo")
    directory.grant(folder="outer", user="cleo")
    on(company, "add_folder", lambda data, backend: failure(400, "INVALID_ARGUMENT", "not this one"))
    run = company.sync()
    assert run.status == "partial"
    assert {(item.kind, item.item_id): item.status for item in company.items(run)} == {
        ("folder", "outer"): "failed",
        ("folder", "inner"): "skipped",
        ("document", "lost"): "skipped",
        ("documentUser", "cleo"): "skipped",
        ("folderUser", "cleo"): "skipped",
    }
    assert company.wire.counted() == {"add_folder": 1}
    assert all(item.message for item in company.items(run))


def test_parent_and_child_in_one_call_fail_as_one(company: Any) -> None:
    company.directory.folder("outer")
    company.directory.folder("inner", parent="outer")

    def refuses(data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        return success({one["folderId"]: {"success": False, "message": "not this one"} for one in data["folders"]})

    on(company, "add_folder", refuses)
    run = company.sync()
    assert {item.item_id: item.status for item in company.items(run)} == {"outer": "failed", "inner": "skipped"}
    assert set(company.failures()) == {("folder", "", "outer")}


def test_unanswered_item_is_unknown(company: Any) -> None:
    add_documents(company, 2)

    def forgets_one(data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        body = backend().get_json()
        del body["result"]["data"]["new1"]
        return success(body["result"]["data"])

    on(company, "add_documents", forgets_one, times=1)
    run = company.sync()
    assert run.counts["document"]["add"] == {"planned": 2, "done": 1, "failed": 1}
    assert not company.ledger()["document", "", "new1"].certain
    company.time.move_on(hours=1)
    assert company.sync().status == "done"
    assert company.ledger()["document", "", "new1"].certain


class Crash(BaseException):
    """The process is gone."""


def crash_after_sending(company: Any, monkeypatch: Any) -> None:
    """A sync that dies when its first calls were sent, and before their answers are written down."""

    def dies(self: Any, call_id: int, batch: Any) -> None:
        outcome = self.sender.send(batch)
        outcome.error = Crash()
        self._answers.put((call_id, outcome))

    with monkeypatch.context() as patched:
        patched.setattr("app.sync.apply.applier.Applier._send", dies)
        with pytest.raises(Crash):
            company.sync()


def test_crash_between_sending_and_settling_is_recovered(company: Any, monkeypatch: Any) -> None:
    directory = company.directory
    directory.document("arrived", folder="archive")
    directory.document("roadmap", folder="archive")
    directory.user("bob", name="Robert")
    directory.remove("document", "acme", "handbook")

    crash_after_sending(company, monkeypatch)
    assert company.unsettled_calls() >= 1
    assert "arrived" in company.held()["documents"]
    assert ("document", "", "arrived") not in company.ledger()
    (orphan,) = company.runs.end_orphans()
    assert orphan.status == "failed"
    # Meanwhile the directory changed its mind about what was in flight.
    directory.remove("document", "acme", "arrived")
    run = company.sync()
    assert run.status == "done", (run.error, company.items(run, "failed"))
    assert run.report["interruptedCalls"] >= 1
    assert company.unsettled_calls() == 0
    held = company.held()
    assert "arrived" not in held["documents"]
    assert "handbook" not in held["documents"]
    assert held["documents"]["roadmap"][1] == "archive"
    assert held["members"]["bob"][0] == "Robert"
    company.wire.forget()
    assert company.sync(verify=True).report["verify"]["changed"] == 0
    assert company.wire.writes == []


def test_crash_in_renames_makes_no_more_work_than_they_were(company: Any, monkeypatch: Any) -> None:
    for number in range(12):
        company.directory.document(f"d{number}", folder="archive")
    company.sync()
    for number in range(12):
        company.directory.document(f"d{number}", folder="archive", document_name="Renamed")
    company.directory.user("ada", name="Ada Lovelace")
    company.batch_size = 2

    crash_after_sending(company, monkeypatch)
    company.runs.end_orphans()
    # One of them was lost meanwhile, with who was in it.
    company.ask("delete_documents", organizationId="acme", documentIds=["d3"])
    company.wire.forget()
    run = company.sync()
    assert run.status == "done"
    assert run.counts == {
        "document": {"update": {"planned": 12, "done": 12}},
        "organizationUser": {"update": {"planned": 1, "done": 1}},
    }
    assert {name: documents[0] for name, documents in company.held()["documents"].items() if name[1:].isdigit()} == {
        f"d{number}": "Renamed" for number in range(12)
    }
    assert company.held()["members"]["ada"][0] == "Ada Lovelace"


def test_delete_in_flight_at_a_crash_is_not_repeated_if_the_item_is_desired(company: Any) -> None:
    company.directory.remove("document", "acme", "handbook")
    dry = company.sync(dry_run=True)
    with writing(company.engine) as connection:
        ordinal = next(item.ordinal for item in company.items(dry))
        connection.execute(
            CallRow.__table__.insert().values(
                call_id=999_999,
                run_id=dry.run_id,
                plan_id=dry.plan_id,
                ledger_id=1,
                operation="delete_documents",
                ordinals=f"[{ordinal}]",
                sent_at=0,
            )
        )
    company.directory.document("handbook")
    run = company.sync()
    assert run.status == "done"
    assert "delete_documents" not in company.wire.counted()
    assert "handbook" in company.held()["documents"]
    assert company.ledger()["document", "", "handbook"].certain


def test_late_answers_after_a_takeover_are_not_taken_in(company: Any) -> None:
    company.directory.document("late", folder="archive")

    def taken_over(data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        response = backend()
        with writing(company.engine) as connection:
            connection.execute(update(CallRow.__table__).values(settled_at=1))
        return response

    on(company, "add_documents", taken_over)
    company.sync()
    assert ("document", "", "late") not in company.ledger()


def test_every_answered_batch_moves_the_ledger_on(company: Any) -> None:
    before = company.ledger_revision()
    company.directory.document("new", folder="archive")
    company.sync()
    assert company.ledger_revision() == before + 1


def test_ledger_has_what_each_operation_set(company: Any) -> None:
    company.directory.document("roadmap", folder="archive", document_name="Renamed")
    on(company, "move_documents", lambda data, backend: failure(400, "INVALID_ARGUMENT", "no"))
    before = company.ledger()["document", "", "roadmap"]
    run = company.sync()
    assert run.counts["document"]["update"] == {"planned": 2, "done": 1, "failed": 1}
    after = company.ledger()["document", "", "roadmap"]
    assert after.digest != before.digest
    assert after.parent_id == "drafts"
    assert company.failures()["document", "", "roadmap"].failures == 1
    company.time.move_on(minutes=2)
    run = company.sync()
    assert run.counts["document"]["update"] == {"planned": 1, "failed": 1}


def test_pruned_runs_take_their_plans_along(company: Any) -> None:
    company.directory.document("new", folder="archive")
    company.sync()
    company.time.move_on(days=40)
    latest = company.sync()
    assert company.runs.prune(timedelta(days=30)) == 2
    assert [run.run_id for run in company.runs.recent()] == [latest.run_id]
    assert {row.plan_id for row in company.rows(PlanItemRow)} <= {latest.plan_id}
    assert company.rows(LedgerItemRow) != []


def test_organization_that_is_enabled_again_is_announced_as_that(company: Any) -> None:
    for disabled, state in ((True, "disabled"), (False, "enabled")):
        company.directory.organization("acme", disabled=disabled)
        run = company.sync()
        assert run.status == "done"
        reasons = [item.reason for item in company.items(run) if item.operation == "disable_organizations"]
        assert reasons == [f"{state} in the directory"]
    assert _phase_name(Phase.DISABLE_ORGANIZATIONS) == "enable or disable organizations"
