"""Runs in every state that a run can be in, with a plan of several phases."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta

from sqlalchemy import insert, update

from app.access.change_counts import ChangeCounts, changes_to_json
from app.access.source_tables import DirectorySourceRow
from app.foundation.clock import epoch_ms
from app.foundation.database.engine import writing
from app.sync.ledger.ledger import open_ledger
from app.sync.plan.counts import read_run_counts
from app.sync.plan.tables import PlanItemRow, PlanRow
from app.sync.runs.run import Run, RunRequest, RunStatus
from tests.service.console.conftest import Office
from tests.worlds.plan_parts import note_parts

LIMIT = "2 of 4 documents would be deleted, over sync.limits.delete_percent (20 %): ask"
HOLD = {"kind": "document", "organizationId": "acme", "deletes": 2, "below": 0, "ledger": 4, "reason": LIMIT}
HOLD |= {"limit": "delete_percent", "allowed": 20.0}
UNREAD = {"name": "documents", "verdict": "failed", "reason": "documents.jsonl: No such file"}
LOST = "source hr takes away 2 of 4 document records; a read is refused above 1 records and 20 percent"
_PLANNED = (
    (10, "add", "folder", "add_folder", "planned"),
    (10, "add", "folder", "add_folder", "planned"),
    (20, "add", "document", "add_documents", "planned"),
    (20, "add", "document", "add_documents", "planned"),
    (160, "delete", "document", "delete_documents", "held"),
    (160, "delete", "document", "delete_documents", "held"),
)
"""Phase, action, kind, operation and status of each item of the plan."""

Counts = Mapping[str, Mapping[str, Mapping[str, int]]]


def counted(*, folders: int = 0, documents: int = 0, failed: int = 0) -> Counts:
    """The counts of a run that has added so many folders and documents."""
    return {
        "folder": {"add": {"planned": 2, "done": folders}},
        "document": {
            "add": {"planned": 2, "done": documents, "failed": failed},
            "delete": {"planned": 2, "held": 2},
        },
    }


def queued(office: Office, **changed: object) -> Run:
    """A run that waits for a worker."""
    office.time.move_on(seconds=1)
    run, _ = office.runs.enqueue(RunRequest(**{"trigger": "schedule", "alone": True, **changed}))  # type: ignore[arg-type]
    return run


def reading(office: Office, **changed: object) -> Run:
    """A run that reads the directory."""
    run = queued(office, **changed)
    office.time.move_on(seconds=1)
    return office.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=office.time(), worker="node:7")


def planning(office: Office, **changed: object) -> Run:
    """A run that makes its plan."""
    run = reading(office, **changed)
    office.time.move_on(seconds=1)
    return office.runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING, revision=1, ledger_id=1)


def verifying(office: Office) -> Run:
    """A run that reads the backend."""
    run = planning(office, verify=True)
    return office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.VERIFYING)


def planned(office: Office, **changed: object) -> Run:
    """A run that has made its plan and is about to apply it."""
    run = planning(office, **changed)
    ledger = open_ledger(office.engine, "http://backend.test", "key", office.time)
    plan = {"ledger_id": ledger.ledger_id, "revision": 1, "ledger_revision": 1, "plan_hash": "", "created_at": 0}
    row = {"organization_id": "acme", "container_id": "", "scope": "[]", "reason": "the directory says so"}
    with writing(office.engine) as connection:
        connection.execute(insert(PlanRow.__table__).values(plan_id=run.run_id, **plan))
        connection.execute(
            insert(PlanItemRow.__table__),
            [
                row
                | {"plan_id": run.run_id, "ordinal": ordinal, "item_id": f"{kind}-{ordinal}", "message": ""}
                | {"phase": phase, "action": action, "kind": kind, "operation": operation, "status": status}
                for ordinal, (phase, action, kind, operation, status) in enumerate(_PLANNED, 1)
            ],
        )
        note_parts(connection, run.run_id)
    office.runs.update(run.run_id, RunStatus.PLANNING, plan_id=run.run_id, counts=counted(), report={"held": [HOLD]})
    return office.runs.get(run.run_id)


def applying(office: Office, **changed: object) -> Run:
    """A run that has sent half of its plan: the first phase whole, the second in part."""
    run = planned(office, **changed)
    run = office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.APPLYING)
    office.runs.update(run.run_id, RunStatus.APPLYING, counts=counted(folders=2, documents=1), calls=3)
    return office.runs.get(run.run_id)


def cancelling(office: Office) -> Run:
    """A run that applies its plan and was asked to end."""
    return office.runs.cancel(applying(office).run_id, by="mira", reason="a mistake")


def _ended(office: Office, status: RunStatus, counts: Counts, **values: object) -> Run:
    run = applying(office)
    office.time.move_on(seconds=5)
    values |= {"counts": counts, "finished_at": office.time()}
    return office.runs.move(run.run_id, RunStatus.APPLYING, status, **values)


def done(office: Office) -> Run:
    """A run that has done everything."""
    return _ended(office, RunStatus.DONE, {"folder": {"add": {"planned": 2, "done": 2}}})


def partial(office: Office) -> Run:
    """A run one of whose items failed."""
    return _ended(office, RunStatus.PARTIAL, counted(folders=2, documents=1, failed=1))


def held(office: Office) -> Run:
    """A run whose deletes wait for approval."""
    now = office.time()
    until = {"held_at": now, "held_until": now + timedelta(days=7)}
    report = {"held": [HOLD], "losses": [LOST], "sources": [UNREAD]}
    return _ended(office, RunStatus.HELD, counted(folders=2, documents=2), report=report, **until)


def approved(office: Office) -> Run:
    """A held run whose deletes were approved, and which waits for a worker."""
    return office.runs.approve(held(office).run_id, by="mira", reason="the project has ended")


def approved_planning(office: Office) -> Run:
    """An approved run that plans its deletes again."""
    run = approved(office)
    office.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, resumed_at=office.time())
    return office.runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING)


def approved_partial(office: Office) -> Run:
    """An approved run that has planned its deletes again. Items of another kind had failed before the approval."""
    run = approved_planning(office)
    counts = {**counted(folders=2, documents=2), "group": {"add": {"planned": 5, "done": 1, "failed": 4}}}
    return office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.PARTIAL, counts=counts, finished_at=office.time())


def refused(office: Office) -> Run:
    """A run that failed because the backend refused its credentials."""
    run = applying(office)
    error = "the backend refuses the credentials: add_documents: UNAUTHENTICATED: The API key is suspended"
    office.runs.update(run.run_id, RunStatus.APPLYING, counts=counted())
    return office.runs.move(run.run_id, RunStatus.APPLYING, RunStatus.FAILED, error=error, finished_at=office.time())


def broken(office: Office) -> Run:
    """A run that an error of the program ended."""
    run = applying(office)
    error = "an error of the program, KeyError; the log has the details"
    return office.runs.move(run.run_id, RunStatus.APPLYING, RunStatus.FAILED, error=error, finished_at=office.time())


def discarded(office: Office) -> Run:
    """A held run whose deletes were discarded."""
    return office.runs.discard(held(office).run_id, by="mira", reason="a mistake in the directory")


def unread(office: Office) -> Run:
    """A run without changes that could not read one source, and read another in part."""
    run = planning(office)
    report = {
        "sources": [
            UNREAD,
            {"name": "people", "verdict": "partial", "reason": "1 malformed record"},
        ]
    }
    values = {"finished_at": office.time(), "report": report, "plan_id": run.run_id}
    return office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, **values)


def failed(office: Office) -> Run:
    """A run that failed before it made a plan."""
    run = reading(office)
    values = {"finished_at": office.time(), "error": "the backend: it refused the API key"}
    return office.runs.move(run.run_id, RunStatus.READING, RunStatus.FAILED, **values)


def cancelled(office: Office) -> Run:
    """A run that was cancelled while it waited."""
    return office.runs.cancel(queued(office).run_id, by="mira")


def interrupted(office: Office) -> Run:
    """A run whose process died while it applied."""
    run = applying(office)
    office.runs.end_orphans()
    return office.runs.get(run.run_id)


def continued(office: Office) -> Run:
    """An interrupted run that another run continues."""
    run = interrupted(office)
    assert office.runs.continue_run(run) is not None
    return office.runs.get(run.run_id)


def caused(office: Office) -> Run:
    """A run whose items have every cause that pages name."""
    run = planning(office)
    was = {"parentId": "", "accessType": "", "accessRole": None, "disabled": False}
    item = {"plan_id": run.run_id, "organization_id": "acme", "container_id": "", "scope": "[]", "status": "done"}
    item |= {"was": "", "access_role": "", "parent_id": "", "payload": ""}
    user = item | {"kind": "organizationUser", "phase": 50, "action": "update", "operation": "update_users"}
    joins = item | {"kind": "groupMember", "phase": 90, "action": "add", "operation": "add_users_to_groups"}
    leaves = joins | {"phase": 130, "action": "delete", "operation": "delete_users_from_groups", "reason": "left"}
    gone = item | {"kind": "folderUser", "phase": 140, "action": "delete", "operation": "delete_users"}
    rows = [
        user | {"item_id": "bob", "access_role": "viewer", "reason": "", "was": json.dumps(was)},
        user
        | {"item_id": "ada", "access_role": "viewer", "reason": "", "payload": '{"name": "Ada"}'}
        | {"was": json.dumps(was | {"accessRole": "editor", "fields": {"name": "Eve"}})},
        item
        | {"kind": "document", "phase": 55, "action": "update", "operation": "move_documents", "item_id": "handbook"}
        | {"reason": "", "parent_id": "specs", "was": json.dumps(was)},
        joins | {"item_id": "ada", "container_id": "eng", "reason": "a member by name"},
        item
        | {"kind": "folderUser", "phase": 95, "action": "add", "operation": "add_users", "item_id": "ada"}
        | {"container_id": "specs", "reason": "granted to group eng"},
        joins | {"item_id": "gus", "container_id": "en", "reason": "a member by name"},
        item
        | {"kind": "folderUser", "phase": 95, "action": "add", "operation": "add_users", "item_id": "gus"}
        | {"container_id": "specs", "reason": "granted to group eng"},
        leaves | {"item_id": "dan", "container_id": "eng"},
        leaves | {"item_id": "dan", "container_id": "ops"},
        gone | {"item_id": "dan", "container_id": "specs", "reason": "no grant on the folder any more"},
        gone | {"item_id": "eve", "container_id": "specs", "reason": "no grant on the folder any more"},
        gone | {"item_id": "fay", "container_id": "specs", "reason": "the user is no longer in the directory"},
        gone | {"item_id": "hal", "container_id": "specs", "reason": "the grant to the user expired on 2026-11-01"},
    ]
    removed = changes_to_json({"grant": ChangeCounts(removed=1), "groupMember": ChangeCounts(added=1)})
    with writing(office.engine) as connection:
        numbered = [row | {"ordinal": ordinal} for ordinal, row in enumerate(rows, 1)]
        connection.execute(insert(PlanItemRow.__table__), numbered)
        note_parts(connection, run.run_id)
        counts = read_run_counts(connection, run.run_id)
        values = {"last_changes": removed, "last_changed_at": epoch_ms(office.time())}
        connection.execute(update(DirectorySourceRow.__table__).values(**values))
    ended = {"plan_id": run.run_id, "counts": counts, "finished_at": office.time()}
    return office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, **ended)


def previewing(office: Office) -> Run:
    """A preview that reads the directory."""
    return reading(office, dry_run=True)


def previewed(office: Office) -> Run:
    """A preview whose plan can be applied."""
    run = planned(office, dry_run=True)
    return office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=office.time())


STATES: Mapping[str, Callable[[Office], Run]] = {
    made.__name__: made
    for made in (
        queued, reading, planning, verifying, planned, applying, cancelling, done, partial, held, approved,
        approved_planning, approved_partial, refused, broken, discarded, unread, failed,
        cancelled, interrupted, continued, caused, previewing, previewed,
    )
}  # fmt: skip
