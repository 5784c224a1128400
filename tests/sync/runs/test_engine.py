"""Runs from request to end, with the self-hosted backend."""

from typing import Any

import orjson
import pytest
import requests
from sqlalchemy import create_engine, text
from structlog.testing import capture_logs
from urllib3.exceptions import NewConnectionError
from werkzeug.wrappers import Response

from app.directory.source import EVERYTHING, Part, ReadRequest, Verdict
from app.foundation.database.engine import is_sqlite
from app.sync.plan.settings import LimitSettings
from app.sync.runs.lock import sync_lock
from app.sync.runs.queue import CHANGES
from app.sync.runs.report import unknown_sentence
from app.sync.runs.run import RunRequest
from tests.progress import QuietProgress

pytestmark = pytest.mark.slow


def failure(code: int, status: str, message: str) -> Response:
    body = {"error": {"status": status, "message": message}}
    return Response(orjson.dumps(body), code, content_type="application/json")


def test_first_sync_brings_everything(world: Any, fill: Any) -> None:
    fill(world.directory)
    run = world.sync()
    assert (run.status, run.error) == ("done", None)
    assert world.held() == {
        "organizations": {"acme": "acme"},
        "members": {"ada": ("Ada", "editor"), "bob": ("Bob", "viewer"), "dan": ("Dan", "editor")},
        "folders": {
            "specs": ("Specs", "root", "restricted"),
            "drafts": ("Drafts", "specs", None),
            "archive": ("Archive", "root", "organizationPrivate"),
        },
        "documents": {
            "handbook": ("Handbook", "root", "organizationPrivate"),
            "roadmap": ("Roadmap", "drafts", None),
            "pressrelease": ("Pressrelease", "root", "public"),
            "salaries": ("Salaries", "specs", "restricted"),
        },
        "folderUsers": {
            "specs": {"bob": ("Bob", "editor"), "dan": ("Dan", "editor")},
            "drafts": {"bob": ("Bob", "viewer")},
        },
        "documentUsers": {"roadmap": {"cleo": ("Cleo", "editor")}},
        "groups": {"core": ["dan"], "eng": ["bob", "dan"]},
    }
    assert world.unsettled_calls() == 0


def test_log_has_status_counts_and_duration_of_a_run(world: Any, fill: Any) -> None:
    fill(world.directory)

    def slowly(operation: str, _data: Any, backend: Any) -> Any:
        if operation == "add_groups":
            world.time.move_on(seconds=20)  # a call may take 30
        return backend()

    with capture_logs() as lines:
        world.wire.hook = slowly
        done = world.sync()
        world.wire.hook = lambda *_: failure(401, "UNAUTHENTICATED", "who are you?")
        world.directory.document("new")
        failed = world.sync(trigger="resync")
    first, second = (line for line in lines if line["event"] == "run_ended")
    assert (first["log_level"], first["status"], first["error"]) == ("info", "done", None)
    assert (first["run_id"], first["calls"]) == (done.run_id, done.calls)
    assert first["counts"] == done.counts
    assert first["counts"]["document"]["add"]["done"] == 4
    assert (first["seconds"], second["seconds"]) == (20.0, 0.0)
    assert (second["log_level"], second["status"], second["error"]) == ("error", "failed", failed.error)


def test_second_run_with_nothing_to_do_sends_no_write(company: Any) -> None:
    run = company.sync()
    assert (run.status, run.calls) == ("done", 0)
    assert company.wire.sent == []


def in_step(world: Any) -> bool:
    """Whether a further run would change nothing, according to the ledger and to a verify."""
    before = world.held()
    world.wire.forget()
    run = world.sync(verify=True)
    assert run.report["verify"]["missing"] == run.report["verify"]["changed"] == 0, run.report
    return run.status == "done" and world.wire.writes == [] and world.held() == before


def test_run_carries_edits_of_every_kind(company: Any) -> None:
    directory = company.directory
    directory.organization("acme", organization_name="Acme Inc.")
    directory.user("bob", name="Robert")
    directory.member("ada", role="viewer")
    directory.folder("archive", parent="specs", folder_name="Old things")
    directory.folder("specs", access="public")
    directory.document("handbook", folder="archive", document_name="The handbook")
    directory.document("roadmap", folder="drafts", access="restricted")
    directory.grant("viewer", document="roadmap", user="cleo")
    directory.group("eng", users=("bob", "cleo"))
    run = company.sync()
    assert (run.status, run.error) == ("done", None)
    held = company.held()
    assert held["organizations"]["acme"] == "Acme Inc."
    assert held["members"]["ada"] == ("Ada", "viewer")
    assert held["members"]["bob"] == ("Robert", "viewer")
    assert held["folders"]["archive"] == ("Old things", "specs", None)
    assert held["folders"]["specs"] == ("Specs", "root", "public")
    assert held["documents"]["handbook"] == ("The handbook", "archive", held["documents"]["handbook"][2])
    assert held["documents"]["roadmap"] == ("Roadmap", "drafts", "restricted")
    assert held["documentUsers"]["roadmap"] == {"cleo": ("Cleo", "viewer")}
    assert held["folderUsers"]["drafts"] == {"bob": ("Robert", "viewer")}
    assert held["groups"]["eng"] == ["bob", "cleo", "dan"]
    assert in_step(company)


def test_run_deletes_what_left_the_directory(company: Any) -> None:
    directory = company.directory
    directory.remove("membership", "acme", "dan")
    directory.remove("groupMember", "acme", "core", "dan")
    directory.remove("document", "acme", "handbook")
    directory.remove("grant", "acme", "", "roadmap", "cleo")
    run = company.sync()
    assert (run.status, run.error) == ("done", None)
    held = company.held()
    assert set(held["members"]) == {"ada", "bob"}
    assert "handbook" not in held["documents"]
    assert held["documentUsers"] == {}
    assert held["groups"] == {"core": [], "eng": ["bob"]}
    assert held["folderUsers"]["specs"] == {"bob": ("Bob", "editor")}
    assert in_step(company)


def test_folder_delete_is_one_call_for_all_that_is_in_it(company: Any) -> None:
    directory = company.directory
    for key in (
        ("folder", "acme", "specs"),
        ("folder", "acme", "drafts"),
        ("document", "acme", "roadmap"),
        ("document", "acme", "salaries"),
        ("grant", "acme", "specs"),
        ("grant", "acme", "drafts"),
        ("grant", "acme", "", "roadmap"),
    ):
        directory.remove(*key)
    run = company.sync()
    assert run.status == "done"
    assert company.wire.counted() == {"delete_folder": 1}
    assert run.counts["document"]["delete"] == {"planned": 2, "done": 2}
    assert run.counts["folder"]["delete"] == {"planned": 2, "done": 2}
    assert {key for key in company.ledger() if key[0] in {"folder", "document", "folderUser", "documentUser"}} == {
        ("folder", "", "archive"),
        ("document", "", "handbook"),
        ("document", "", "pressrelease"),
    }
    assert in_step(company)


def test_document_is_moved_out_before_its_folder_goes(company: Any) -> None:
    directory = company.directory
    directory.remove("folder", "acme", "drafts")
    directory.remove("grant", "acme", "drafts")
    directory.document("roadmap", folder="archive")
    assert company.sync().status == "done"
    held = company.held()
    assert held["documents"]["roadmap"][1] == "archive"
    assert held["documentUsers"]["roadmap"] == {"cleo": ("Cleo", "editor")}
    assert "drafts" not in held["folders"]
    assert in_step(company)


def test_folder_is_kept_when_moving_out_of_it_failed(company: Any) -> None:
    directory = company.directory
    directory.remove("folder", "acme", "drafts")
    directory.remove("grant", "acme", "drafts")
    directory.document("roadmap", folder="archive")

    def refuses_moves(operation: str, data: Any, backend: Any) -> Any:
        return failure(400, "INVALID_ARGUMENT", "no moves today") if operation == "move_documents" else backend()

    company.wire.hook = refuses_moves
    run = company.sync()
    assert run.status == "partial"
    assert company.wire.counted()["delete_folder"] == 0
    kept = {(item.kind, item.item_id): item.message for item in company.items(run, "skipped")}
    assert set(kept) == {("folder", "drafts"), ("folderUser", "bob")}
    assert "roadmap" in kept["folder", "drafts"]
    assert "roadmap" in company.held()["documents"]
    company.wire.hook = None
    company.time.move_on(hours=1)
    assert company.sync().status == "done"
    assert "drafts" not in company.held()["folders"]


def test_leaving_an_organization_keeps_grants_by_name(company: Any) -> None:
    company.directory.remove("membership", "acme", "bob")
    assert company.sync().status == "done"
    held = company.held()
    assert "bob" not in held["members"]
    assert held["folderUsers"]["drafts"] == {"bob": ("Bob", "viewer")}
    assert held["groups"]["eng"] == ["bob", "dan"]
    assert in_step(company)


def test_organization_goes_with_all_that_is_in_it(company: Any) -> None:
    company.directory.records.clear()
    company.directory.organization("other")
    run = company.sync()
    assert (run.status, company.wire.counted()) == ("held", {"add_organizations": 1})
    run = company.sync(allow_deletes=True)
    assert (run.status, run.error) == ("done", None)
    assert company.wire.counted() == {"add_organizations": 1, "delete_organizations": 1}
    assert company.held() == {}
    assert set(company.ledger()) == {("organization", "", "other")}


def test_deletes_over_the_limit_are_held_until_approved(company: Any) -> None:

    company.limits = LimitSettings(delete_count=1, delete_percent=100)
    for document in ("handbook", "pressrelease", "salaries"):
        company.directory.remove("document", "acme", document)
    company.directory.user("ada", name="Ada Lovelace")
    run = company.sync()
    assert run.status == "held"
    assert run.counts["document"]["delete"] == {"planned": 3, "held": 3}
    assert run.report["held"][0]["deletes"] == 3
    assert set(company.held()["documents"]) == {"handbook", "pressrelease", "salaries", "roadmap"}
    assert company.held()["members"]["ada"] == ("Ada Lovelace", "editor")
    # One of them is wanted again in the meantime: approving lets go what is still due.
    company.directory.document("handbook")
    company.wire.forget()
    company.runs.approve(run.run_id)
    run = company.execute(run.run_id)
    assert run.status == "done", run
    assert set(company.held()["documents"]) == {"handbook", "roadmap"}
    assert company.wire.counted() == {"delete_documents": 1}
    assert run.counts["document"]["delete"] == {"planned": 2, "done": 2}
    assert run.counts["organizationUser"]["update"] == {"planned": 1, "done": 1}


def test_failure_before_the_approval_makes_an_approved_run_partial(company: Any) -> None:
    def refuses_documents(operation: str, data: Any, backend: Any) -> Any:
        return failure(400, "INVALID_ARGUMENT", "no") if operation == "add_documents" else backend()

    company.limits = LimitSettings(delete_count=0, delete_percent=0)
    company.directory.remove("document", "acme", "handbook")
    company.directory.document("new")
    company.wire.hook = refuses_documents
    run = company.sync()
    assert run.status == "held"
    company.runs.approve(run.run_id)
    run = company.execute(run.run_id)
    assert run.counts["document"]["add"] == {"planned": 1, "failed": 1}
    assert run.counts["document"]["delete"] == {"planned": 1, "done": 1}
    assert run.status == "partial"


def test_allow_deletes_lifts_the_limits_for_one_run(company: Any) -> None:

    company.limits = LimitSettings(delete_count=0, delete_percent=0)
    company.directory.remove("document", "acme", "handbook")
    assert company.sync().status == "held"
    assert company.sync(allow_deletes=True).status == "done"
    assert "handbook" not in company.held()["documents"]


def test_grace_keeps_what_is_gone_for_a_while(company: Any) -> None:
    company.grace = 3600
    company.directory.remove("document", "acme", "handbook")
    run = company.sync()
    assert (run.status, run.counts["document"]["delete"]) == ("done", {"planned": 1, "waiting": 1})
    company.time.move_on(hours=2)
    assert company.sync().counts["document"]["delete"] == {"planned": 1, "done": 1}


def test_dry_run_stores_a_plan_that_can_be_applied_once(company: Any) -> None:
    company.directory.document("new")
    dry = company.sync(dry_run=True)
    assert dry.status == "done"
    assert company.wire.writes == []
    assert dry.counts["document"]["add"] == {"planned": 1}
    run = company.sync(plan_id=dry.plan_id)
    assert (run.status, run.plan_id) == ("done", dry.plan_id)
    assert "new" in company.held()["documents"]
    again = company.sync(plan_id=dry.plan_id)
    assert (again.status, again.decision) == ("cancelled", None)
    assert "nothing was done: make a new one" in again.error


def test_stored_plan_is_refused_when_the_directory_moved_on(company: Any) -> None:
    company.directory.document("new")
    dry = company.sync(dry_run=True)
    company.directory.document("newer")
    run = company.sync(plan_id=dry.plan_id)
    assert (run.status, company.wire.writes) == ("cancelled", []), "nothing failed that anybody else has to know of"
    assert dry.plan_id in run.error


def test_narrowed_run_leaves_the_rest_alone(company: Any) -> None:
    company.directory.organization("globex")
    company.directory.document("new")
    company.directory.user("ada", name="Ada Lovelace")
    assert company.sync(organization_ids=("globex",)).status == "done"
    assert "new" not in company.held()["documents"]
    assert company.sync(user_ids=("ada",)).status == "done"
    held = company.held()
    assert "globex" in held["organizations"]
    assert "new" not in held["documents"]
    assert held["members"]["ada"] == ("Ada Lovelace", "editor")


def test_run_that_follows_changes_reads_no_source(company: Any) -> None:
    """The change is in force already. Later changes of the source wait for the next run that reads it."""
    company.directory.organization("globex")
    company.directory.document("new")
    assert company.sync(trigger=CHANGES, organization_ids=("acme",)).status == "done"
    assert "new" not in company.held()["documents"]
    assert company.sync(organization_ids=("acme",)).status == "done"
    assert "new" in company.held()["documents"]


def test_run_reports_unknown_ids(company: Any) -> None:
    run = company.sync(organization_ids=("acme", "acmee"), user_ids=("ada", "adda", *(f"u{n:02}" for n in range(30))))
    assert run.status == "done"
    unknown = run.report["unknown"]
    assert (unknown["organizationIds"], unknown["count"]) == (["acmee"], 32)
    assert unknown["userIds"] == ["adda", *(f"u{n:02}" for n in range(19))]
    assert unknown_sentence(run.report) == (
        f"in neither the directory nor the ledger: organization acmee, user adda,"
        f" {', '.join(f'user u{n:02}' for n in range(19))} and 11 more"
    )


def test_ids_of_the_ledger_are_known(company: Any) -> None:
    company.directory.records.clear()
    company.directory.organization("other")
    run = company.sync(organization_ids=("acme", "other"), dry_run=True)
    assert "unknown" not in run.report
    run = company.sync(user_ids=("ada",), dry_run=True)
    assert "unknown" not in run.report
    assert unknown_sentence(run.report) is None


def test_failed_source_deletes_nothing_and_is_reported(company: Any) -> None:

    company.directory.records.clear()
    company.directory.verdict = Verdict.FAILED
    run = company.sync()
    assert (run.status, run.calls) == ("done", 0)
    assert run.report["sources"][0]["verdict"] == "failed"


def test_unreachable_backend_fails_the_run_but_reading_counts(company: Any) -> None:

    def nobody_there(operation: str, data: Any, backend: Any) -> Any:
        raise requests.ConnectionError(NewConnectionError(None, "refused"))  # type: ignore[arg-type]

    company.wire.hook = nobody_there
    company.directory.document("new")
    run = company.sync()
    assert run.status == "failed"
    assert run.error.startswith("the backend cannot be reached")
    assert run.revision == 2
    assert company.failures() == {}
    company.wire.hook = None
    assert company.sync().status == "done"
    assert "new" in company.held()["documents"]


def test_refused_credentials_stop_the_run_at_once(company: Any) -> None:
    company.batch_size = 1
    for number in range(20):
        company.directory.document(f"new{number}")
    company.auth_token = "wrong"
    run = company.sync()
    assert run.status == "failed"
    assert "credentials" in run.error
    assert len(company.wire.writes) <= 4
    assert {item.status for item in company.items(run)} == {"cancelled"}
    assert company.failures() == {}


@pytest.mark.parametrize("dry_run", [False, True])
def test_cancel_ends_a_verify_before_its_next_call(company: Any, dry_run: bool) -> None:
    read: list[str] = []

    def cancels(operation: str, data: Any, backend: Any) -> Any:
        if operation.startswith("get_"):
            read.append(operation)
            (running,) = [run for run in company.runs.recent() if run.is_running]
            company.runs.cancel(running.run_id)
        return backend()

    company.wire.hook = cancels
    run = company.sync(verify=True, dry_run=dry_run)
    assert (run.status, run.error) == ("cancelled", "cancelled on request")
    assert len(read) == 1
    assert [stage.status for stage in run.stages][-2:] == ["verifying", "cancelled"]


def test_cancel_ends_a_run_before_its_next_call(company: Any) -> None:
    company.batch_size = 1
    for number in range(40):
        company.directory.document(f"new{number}")
    run_ids: list[str] = []

    def cancels(operation: str, data: Any, backend: Any) -> Any:
        if not run_ids:
            (running,) = [run for run in company.runs.recent() if run.is_running]
            run_ids.append(running.run_id)
            company.runs.cancel(running.run_id)
        return backend()

    company.wire.hook = cancels
    run = company.sync()
    assert (run.status, run.error) == ("cancelled", "cancelled on request")
    assert run.counts["document"]["add"]["cancelled"] > 10
    assert run.counts["document"]["add"]["done"] + run.counts["document"]["add"]["cancelled"] == 40
    company.wire.hook = None
    assert company.sync().status == "done"
    assert in_step(company)


def test_stop_signal_ends_a_run_in_a_consistent_state(company: Any) -> None:
    company.batch_size = 1
    for number in range(40):
        company.directory.document(f"new{number}")

    def stops(operation: str, data: Any, backend: Any) -> Any:
        company.stop.set()
        return backend()

    company.wire.hook = stops
    run = company.sync()
    assert run.status == "cancelled"
    assert "asked to end" in run.error
    assert company.unsettled_calls() == 0
    company.stop.clear()
    company.wire.hook = None
    assert company.sync().status == "done"
    assert in_step(company)


def test_lost_lock_ends_a_run_before_its_next_call(company: Any) -> None:

    company.batch_size = 1
    for number in range(40):
        company.directory.document(f"new{number}")
    lock = sync_lock(company.engine)
    assert lock.acquire()

    def loses(operation: str, data: Any, backend: Any) -> Any:
        lock.release()
        return backend()

    company.wire.hook = loses
    company.time.move_on(seconds=1)
    run, _ = company.runs.enqueue(RunRequest(trigger="command"))
    run = company.sync_engine().execute(run.run_id, lock=lock, progress=QuietProgress(), stop=company.stop)
    assert run.status == "failed"
    assert "lock was lost" in run.error
    assert len(company.wire.writes) <= 4


def test_cut_connection_is_named_and_the_run_can_go_on(company: Any) -> None:
    if is_sqlite(company.engine):
        pytest.skip("a SQLite database has no connections that somebody could cut")
    for number in range(12):
        company.directory.document(f"new{number}", folder="archive")
    company.batch_size = 1
    other = create_engine(company.engine.url, isolation_level="AUTOCOMMIT")

    def cuts(name: str, data: dict[str, Any], backend: Any) -> Any:
        company.wire.hook = None
        with other.connect() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        return backend()

    company.wire.hook = cuts
    run = company.sync()
    other.dispose()
    assert (run.status, run.interrupted) == ("failed", True)
    assert "connection to the database was cut" in run.error
    follower = company.runs.continue_run(run)
    assert company.execute(follower.run_id).status == "done"
    assert company.runs.get(run.run_id).continued_by == follower.run_id
    assert {f"new{number}" for number in range(12)} < company.held()["documents"].keys()


def test_minimum_number_of_calls(world: Any) -> None:
    world.batch_size = 7
    world.directory.organization("acme")
    for number in range(30):
        world.directory.user(f"u{number}")
        world.directory.member(f"u{number}")
        world.directory.document(f"d{number}")
        world.directory.folder(f"f{number}", parent=f"f{number - 1}" if number else None)
        world.directory.grant(document="d0", user=f"u{number}")
    assert world.sync().status == "done"
    # Documents at the top of the tree carry the organization's access type, which is a call of its own.
    assert world.wire.counted() == {
        "add_organizations": 1,
        "add_folder": 5,
        "add_documents": 5,
        "update_document_access": 5,
        "add_users": 10,
    }


def test_folders_of_an_organization_go_one_after_the_other(world: Any) -> None:
    world.batch_size = 1
    world.directory.organization("acme")
    for number in range(25):
        world.directory.folder(f"f{number:02}", parent=f"f{number - 1:02}" if number else None)
    assert world.sync().status == "done"
    added = [sent.data["folders"][0]["folderId"] for sent in world.wire.writes if sent.operation == "add_folder"]
    assert added == sorted(added)
    assert len(world.held()["folders"]) == 25


def test_run_of_a_user_asks_the_sources_for_a_part(company: Any) -> None:
    asked = []
    read = company.directory.read

    def note(request: ReadRequest = EVERYTHING) -> Any:
        asked.append(request)
        return read(request)

    company.directory.read = note
    assert company.sync().status == "done"
    assert company.sync(organization_ids=("acme",), user_ids=("ada",)).status == "done"
    assert [request.part for request in asked] == [None, Part(("acme",), ("ada",))]
