"""Visits the pages of items, parked items, held deletes, sources, and the overview, in all states."""

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, update

from app.access.refresh.sources import UNCONFIGURED_POSITION
from app.access.source_tables import DirectorySourceRow, DirectoryStateRow, ProblemCountRow, ProblemRow
from app.access.tables import RevisionRow
from app.contract.errors import Status
from app.foundation.database.engine import reading, writing
from app.monitoring.activity import NodeActivity
from app.monitoring.notify.concerns import Cause, Concern
from app.monitoring.tables import NodeMinuteRow
from app.service.console.settings import Role
from app.service.console.urls import address
from app.sync.ledger.failures import message_digest
from app.sync.ledger.ledger import open_ledger
from app.sync.ledger.tables import CallRow, ItemFailureRow, LedgerItemRow, LedgerRow
from app.sync.plan.rules import Phase
from app.sync.plan.tables import PlanAccessRow, PlanItemRow, PlanRow
from app.sync.runs.run import Run, RunStatus
from app.sync.runs.settings import SyncSettings
from app.sync.runs.tables import RunRow
from tests.service.console import states
from tests.service.console.conftest import OURS, Office
from tests.service.console.visitors import Visitors, add_rows, token_of
from tests.worlds.plan_parts import note_parts

ITEM = {
    "phase": 10,
    "organization_id": "acme",
    "container_id": "",
    "scope": "[]",
    "reason": "it is gone",
    "message": "",
}
LINKED = '["acme","document","plan"]'
KNEW = {"accessRole": "", "accessType": "", "disabled": False, "parentId": "", "fields": None}


def _items() -> list[dict[str, Any]]:
    """Items of every kind, numbered by their position."""
    payload = json.dumps({"documentName": "Plan", "pages": 3})
    knew = json.dumps({**KNEW, "fields": {"documentName": "Old", "pages": 3}})
    document = {"kind": "document", "action": "update", "operation": "update_documents"}
    user = {"kind": "documentUser", "container_id": "plan", "operation": "add_users", "action": "add", "scope": LINKED}
    removed = {"kind": "document", "action": "delete", "operation": "delete_documents"}
    return [
        {**document, "item_id": "plan", "payload": payload, "was": knew, "status": "done"},
        {**document, "item_id": "plan", "payload": payload, "status": "failed", "message": "HTTP 400"},
        {**document, "item_id": "void", "was": json.dumps(KNEW | {"fields": {}}), "status": "planned"},
        {**user, "item_id": "ada", "status": "done", "access_role": "viewer"},
        {**user, "item_id": "user-00", "container_id": "d-00", "status": "waiting", "message": "rests"},
        {**user, "item_id": "user-00", "container_id": "d-02", "status": "done"},
        {**user, "item_id": "user-00", "container_id": "d-03", "status": "done"},
        {**user, "item_id": "nobody", "container_id": "absent", "status": "skipped", "message": "left out"},
        {**removed, "item_id": "handbook", "status": "held", "message": "over the limits"},
        {**removed, "item_id": "covered", "status": "done", "covered_by": 9},
        {**removed, "item_id": "covered-planned", "status": "planned", "covered_by": 9},
        {"kind": "groupMember", "container_id": "outer", "action": "add", "operation": "add_users_to_groups",
         "item_id": "ada", "status": "failed"},
        {"kind": "groupMember", "container_id": "void", "action": "add", "operation": "add_users_to_groups",
         "item_id": "ada", "status": "planned"},
        {"kind": "organization", "action": "delete", "operation": "delete_organizations", "organization_id": "old",
         "item_id": "old", "status": "done"},
        {"kind": "organizationUser", "action": "add", "operation": "add_users", "item_id": "ada", "status": "done"},
        {"kind": "group", "action": "add", "operation": "add_groups", "item_id": "inner", "status": "parked"},
        {"kind": "document", "action": "update", "operation": "update_document_access", "item_id": "plan",
         "status": "planned"},
        {**user, "action": "delete", "item_id": "zoe", "status": "held", "covered_by": 9},
        {"kind": "folder", "action": "delete", "operation": "delete_folder", "item_id": "x", "status": "done"},
    ]  # fmt: skip


def _planned(office: Office, rows: list[dict[str, Any]]) -> Run:
    """A held run that has planned these items."""
    run = states.planning(office)
    ledger = open_ledger(office.engine, "http://backend.test", "key", office.time)
    plan = {"ledger_id": ledger.ledger_id, "revision": 1, "ledger_revision": 1, "plan_hash": "", "created_at": 0}
    add_rows(office, PlanRow, [plan | {"plan_id": run.run_id}])
    with writing(office.engine) as connection:
        for number, row in enumerate(rows, 1):
            # One by one: their columns differ.
            connection.execute(insert(PlanItemRow.__table__).values(**ITEM | row, plan_id=run.run_id, ordinal=number))
        note_parts(connection, run.run_id)
    office.runs.update(run.run_id, RunStatus.PLANNING, plan_id=run.run_id)
    return office.runs.get(run.run_id)


def visit_items(visitors: Visitors) -> None:
    """Each item of a plan, with request, response and history."""
    office = visitors.office
    for _ in range(2):
        earlier = _planned(office, [row | {"status": "failed", "message": "no, never"} for row in _items()[:1]])
    run = _planned(office, _items())
    for item in ("", "nobody", "zoe"):
        visitors.show("run", id=run.run_id, item=item)
    call = {
        "settled_at": 2_000,
        "answer": "",
        "run_id": run.run_id,
        "plan_id": run.run_id,
        "ledger_id": 1,
        "operation": "x",
        "sent_at": 1_000,
    }
    add_rows(
        office,
        CallRow,
        [
            {**call, **response}
            for response in (
                {"ordinals": "[1]", "first_ordinal": 1, "code": 200, "tries": 1},
                {
                    "ordinals": "[2, 4]",
                    "first_ordinal": 2,
                    "code": 400,
                    "tries": 2,
                    "settled_at": 2_000,
                    "answer": "{}",
                },
                {
                    "ordinals": "[9]",
                    "first_ordinal": 9,
                    "code": None,
                    "tries": 1,
                    "settled_at": 2_000,
                    "answer": "away",
                },
                {"ordinals": "[12]", "first_ordinal": 12, "code": None, "tries": 1, "settled_at": None},
            )
        ],
    )
    plan: dict[str, Any] = {"item_id": "plan", "message": "HTTP 400"}
    absent: dict[str, Any] = {"kind": "documentUser", "container_id": "d-00", "item_id": "user-00"}
    same = {"item_id": "plan", "payload": json.dumps({"documentName": "The plan"}), "status": "failed"}
    unsent = {"item_id": "absent", "payload": "", "status": "failed"}
    removed = unsent | {"action": "delete", "operation": "delete_documents"}
    sent = _planned(office, [_items()[1] | changed for changed in (same, unsent, removed)])
    for number in (1, 2, 3):
        visitors.show("item", run=sent.run_id, ordinal=number)
    failures: tuple[list[dict[str, Any]], ...] = (
        [],
        [plan | {"parked": True}, absent],
        [plan, plan | {"deleting": True, "message": "else"}],
    )
    for failing in failures:
        _failures(office, failing)
        for number in range(1, len(_items()) + 1):
            visitors.show("item", run=run.run_id, ordinal=number)
    visitors.show("item", run=earlier.run_id, ordinal=1)
    preview = _planned(office, [_items()[0] | {"item_id": "previewed"}])
    with writing(office.engine) as connection:
        of_preview = RunRow.__table__.c.run_id == preview.run_id
        connection.execute(update(RunRow.__table__).where(of_preview).values(dry_run=True))
    visitors.show("item", run=preview.run_id, ordinal=1)
    for run in _with_entries(office):
        visitors.show("run", id=run.run_id)
        visitors.show("overview")
    # As many runs as the recap reads, with more of them that changed entries than it lists.
    for _ in range(45):
        states.done(office)
    visitors.show("overview")


def _with_entries(office: Office) -> Iterator[Run]:
    """Runs that changed entries of users: many, too many to list, none, and those of an empty backend."""
    done = {"kind": "documentUser", "container_id": "plan", "operation": "add_users", "action": "add", "status": "done"}
    was = json.dumps(KNEW | {"accessRole": "viewer"}, separators=(",", ":"))
    rows = [{**done, "item_id": f"u{number}", "organization_id": f"o{number % 2}"} for number in range(12)]
    rows += [{**done, "item_id": "ada", "action": "delete", "container_id": f"d{number}"} for number in range(4)]
    rows += [{**done, "item_id": "bob", "action": "update", "was": was, "access_role": "editor"}]
    member = {**done, "kind": "organizationUser", "container_id": ""}
    rows += [{**member, "item_id": "eve"}]
    rows += [{**member, "item_id": "fay", "action": "update", "was": was, "access_role": "editor"}]
    of_access: dict[str, Any] = {**done, "container_id": "", "action": "update", "was": was}
    document = of_access | {"kind": "document", "phase": Phase.DOCUMENT_ACCESS, "operation": "update_document_access"}
    folder = of_access | {"kind": "folder", "phase": Phase.FOLDER_ACCESS, "operation": "update_folder_access"}
    rows += [{**document, "item_id": "plan"}]
    rows += [{**done, "item_id": "x", "status": status} for status in ("failed", "held", "waiting")]
    report: dict[str, Any]
    for report, entries in (({}, 1), ({}, 6_000), ({}, 0), ({}, 2), ({"verify": {"seen": 0, "missing": 0}}, 1)):
        run = _planned(office, [*rows, {**folder, "item_id": "archive"}] if entries == 2 else rows)
        ended = {"finished_at": office.time(), "report": report}
        of_users = {"add": {"planned": entries, "done": entries}, "delete": {"done": max(0, entries - 1)}}
        waiting = {"add": {"planned": 30, "done": 25, "failed": 2, "waiting": 2, "held": 1}}
        counts = {"documentUser": of_users, "folder": waiting}
        yield office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, counts=counts, **ended)


FAILURE = {"kind": "document", "organization_id": "acme", "container_id": "", "retry_at": 0, "deleting": False}
FAILURE |= {"fingerprint": "", "failures": 3, "parked": False, "message": "no"}


def _failures(office: Office, rows: list[dict[str, Any]]) -> None:
    ledger = open_ledger(office.engine, "http://backend.test", "key", office.time)
    with writing(office.engine) as connection:
        connection.execute(delete(ItemFailureRow))
        if rows:
            usual = FAILURE | {"ledger_id": ledger.ledger_id, "failing_since": None}
            given = [{**usual, **row, "message_digest": message_digest({**usual, **row}["message"])} for row in rows]
            connection.execute(insert(ItemFailureRow.__table__), given)


def visit_ledger_items(visitors: Visitors) -> None:
    """Confirmed, unconfirmed and missing items of the ledger."""
    office = visitors.office
    ledger = open_ledger(office.engine, "http://backend.test", "key", office.time)
    user = {"kind": "documentUser", "organization_id": "acme", "container_id": "plan", "item_id": "ada"}
    document = {"kind": "document", "organization_id": "acme", "container_id": "", "item_id": "plan"}
    organization = {"kind": "organization", "organization_id": "acme", "container_id": "", "item_id": "acme"}
    kept = {"ledger_id": ledger.ledger_id, "digest": "", "parent_id": "", "access_role": "", "gone_at": None}
    add_rows(
        office,
        LedgerItemRow,
        [
            kept | user | {"access_role": "viewer", "certain": False},
            kept | document | {"parent_id": "below", "certain": True, "gone_at": 1_000},
            kept | document | {"item_id": "note", "certain": True},
            kept | organization | {"certain": True},
        ],
    )
    note = document | {"item_id": "note", "action": "add", "operation": "add_documents", "status": "done"}
    run = _planned(office, [note])
    office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=office.time())
    _failures(office, [document | {"parked": True, "deleting": True, "failures": 10}, document, user])
    for one in (user, document, document | {"item_id": "note"}, organization, document | {"item_id": "unheard-of"}):
        asked = {"kind": one["kind"], "organization": one["organization_id"], "container": one["container_id"]}
        visitors.show("ledger_item", **asked, item=one["item_id"])
    visitors.show("document", organization="acme", id="plan")


def visit_parked(visitors: Visitors) -> None:
    """None, few and many of each."""
    office, show = visitors.office, visitors.show
    _failures(office, [])
    show("parked")
    show("parked", state="waiting", kind="folder")
    parked: dict[str, Any] = {"parked": True, "failures": 10, "failing_since": 1_000}
    one = parked | {"item_id": "d", "failing_since": None}
    unlike = one | {"organization_id": "other"}
    retried, other = {"item_id": "r"}, {"item_id": "s"}
    for failing in (
        [one],
        [one, unlike],
        [parked | {"item_id": "d"}, unlike | {"message": "too long"}],
        [retried],
        [retried, other],
        [retried, one],
        [one | {"message": "INVALID_ARGUMENT: no"}],
        *([one | {"message": f"{status}: no"}, unlike | {"message": f"{status}: no"}] for status in Status),
        *(
            [one | {"message": message, "item_id": f"d-{number:02}"} for number in range(size)]
            for message in ("INVALID_ARGUMENT: no", "no")
            for size in (1, 2, 4, 5)
        ),
    ):
        _failures(office, failing)
        show("parked")
    _failures(
        office,
        [
            *(parked | {"item_id": f"d{number:03}"} for number in range(60)),
            *(
                parked
                | {
                    "kind": "documentUser",
                    "organization_id": one,
                    "container_id": "plan",
                    "item_id": "ada",
                    "deleting": True,
                }
                for one in ("acme", "shut")
            ),
            parked | {"kind": "organization", "item_id": "acme", "failing_since": None},
            *(
                parked | {"organization_id": one, "item_id": "x", "message": "other", "failing_since": None}
                for one in ("acme", "shut")
            ),
            {"item_id": "waits"},
            {"item_id": "waits for long", "retry_at": 4_000_000_000_000},
        ],
    )
    for state in ("parked", "waiting"):
        for asked in (
            {},
            {"kind": "document"},
            {"organization": "acme", "message": "no"},
            {"kind": "documentUser"},
            {"kind": "documentUser", "organization": "acme"},
        ):
            show("parked", state=state, **asked)
    for page in ("overview", "keys", "runs"):
        show(page)
    _failures(office, [parked | {"item_id": f"d{number:04}"} for number in range(1_100)])
    show("parked")
    visitors.browsers[Role.ADMIN].get(address("sync"))
    show("runs")


def visit_held(visitors: Visitors) -> None:
    """Held deletes, and the pages that approve and discard them."""
    office, show = visitors.office, visitors.show
    show("held")
    for run in _held(office):
        for page in ("held", "overview", "runs"):
            show(page)
        visitors.browsers[Role.ADMIN].get(address("sync"))
        for word in ("approve", "discard"):
            browser = visitors.browsers[Role.APPROVER]
            browser.get(address(word, run=run.run_id))
            assert browser.status == 200
            visitors.send(Role.APPROVER, word, 400, run=run.run_id)
    run = states.held(office)
    office.runs.discard(run.run_id, by="mira", reason="so")
    visitors.send(Role.APPROVER, "approve", 409, run=run.run_id, reason="so")


def visit_sync(visitors: Visitors) -> None:
    """The page that confirms a sync, of every scope, with and without previews and runs before."""
    office, browser = visitors.office, visitors.browsers[Role.ADMIN]
    many = "\n".join(f"u{number}" for number in range(110))

    def show(**query: object) -> None:
        browser.get(address("sync", **query))
        assert browser.status == 200

    for query in ({}, {"preview": 1}, {"organizations": "acme\nnowhere"}, {"users": many, "organizations": "acme"}):
        show(**query)
    visitors.send(Role.ADMIN, "sync", 200, narrow="1", organization="acme", verify="1", deletes="1")
    visitors.send(Role.APPROVER, "sync", 400, narrow="1", organization="no such")
    states.previewed(office)
    show()
    for losing in (None, 1):
        made = states.planned(office, dry_run=True)
        impact = {"gain": 1, "lose": 1, "change": 0, "usersWhoLose": losing}
        values = {"finished_at": office.time(), "report": {"impact": impact, "sources": [states.UNREAD]}}
        office.runs.move(made.run_id, RunStatus.PLANNING, RunStatus.DONE, **values)
    show()
    visitors.show("runs")
    lost: dict[str, Any] = {
        "organization_id": "acme",
        "kind": "document",
        "before": "viewer",
        "after": "",
        "names": "{}",
    }
    lost |= {"users": 1, "resources": 1, "pairs": 1, "user_ids": '["ada"]', "resource_ids": '["plan"]'}
    add_rows(office, PlanAccessRow, [{"plan_id": made.plan_id, "ordinal": 1, **lost}])
    show()
    made = states.planning(office, dry_run=True)
    office.runs.move(made.run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=office.time())
    show()
    for verdict in ("failed", "partial", "complete"):
        for read_at in (None, 1_000):
            with writing(office.engine) as connection:
                read = {"last_verdict": verdict, "last_good_at": read_at}
                connection.execute(update(DirectorySourceRow.__table__).values(read))
            show()
    run = states.done(office)
    with writing(office.engine) as connection:
        table = RunRow.__table__
        connection.execute(update(table).where(table.c.run_id == run.run_id).values(revision=0))
    show()
    with writing(office.engine) as connection:
        connection.execute(insert(RevisionRow.__table__).values(revision=90, created_at=0, changes="{}"))
        connection.execute(update(table).where(table.c.run_id == run.run_id).values(revision=1))
    show()


def visit_preview_file(visitors: Visitors) -> None:
    """The form of a file, empty and wrong."""
    browser = visitors.browsers[Role.APPROVER]
    browser.get(address("preview_file"))
    assert browser.status == 200
    form = {"formToken": token_of(browser), "source": "nothing", "file": (BytesIO(b""), "next.yaml")}
    answer = browser.client.post(address("preview_file"), data=form, headers=OURS, content_type="multipart/form-data")
    assert answer.status_code == 400


def _held(office: Office) -> Iterator[Run]:
    """Runs that hold much, one delete, deletes of nowhere, and items that are shown; superseded, and without an end."""
    hold = states.HOLD
    yield office.held_run(141)
    superseded = states.held(office)
    office.time.move_on(seconds=1)
    states.held(office)
    yield superseded
    single = hold | {"deletes": 1, "below": 3}
    holds = [
        hold,
        single,
        hold | {"kind": "documentUser"},
        hold | {"organizationId": "nowhere"},
        hold | {"organizationId": ""},
    ]
    kinds = {kind: {"delete": {"planned": 1, "held": 1}} for kind in ("document", "folderUser", "documentUser")}
    member = {"documentUser": kinds["documentUser"]}
    for run, held, counts in ((office.held_run(1), [single], member), (_planned_deletes(office), holds, kinds)):
        with writing(office.engine) as connection:
            values = {"report": json.dumps({"held": held}), "held_until": None, "counts": json.dumps(counts)}
            connection.execute(update(RunRow).where(RunRow.__table__.c.run_id == run.run_id).values(**values))
        yield office.runs.get(run.run_id)


def _planned_deletes(office: Office) -> Run:
    row = {"kind": "document", "action": "delete", "operation": "delete_documents", "status": "held"}
    user = {"kind": "documentUser", "action": "delete", "operation": "delete_users", "status": "held"}
    rows = [user | {"item_id": "ada", "container_id": "plan"}, row | {"item_id": "plan"}]
    run = _planned(office, [*rows, row | {"item_id": "acme"}, *(row | {"item_id": f"d-{n:02}"} for n in range(9))])
    office.time.move_on(seconds=1)
    ended = {"finished_at": office.time(), "held_at": office.time(), "held_until": office.time()}
    counts = {"document": {"delete": {"planned": 12, "held": 12}}}
    return office.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.HELD, counts=counts, **ended)


CHANGED = '{"user": {"added": 1, "updated": 2, "removed": 0}}'


def visit_sources(visitors: Visitors) -> None:
    """Sources with every verdict, refused, never read, no longer configured, and behind held deletes."""
    office, show = visitors.office, visitors.show
    show("sources")
    lost = states.LOST.replace("source hr", "source source-1")
    for verdict in ("partial", "failed"):
        unread = {"name": "source-1", "verdict": verdict, "reason": "page 2" if verdict == "partial" else ""}
        run = states.held(office)
        office.runs.update(run.run_id, run.status, report={**run.report, "losses": [lost], "sources": [unread]})
        show("sources")
    table = DirectorySourceRow.__table__
    at = {"last_read_at": 1_000, "last_good_at": 1_000, "last_complete_at": 1_000}
    for row in (
        {"last_verdict": "failed", "last_reason": "away", "last_changed_at": 5, "last_changes": CHANGED, **at},
        {"last_verdict": "partial", "last_reason": "half of it", "malformed": 2, "cursor": "7", **at},
        {"last_verdict": "failed", "refused": "is empty", "last_refusal_acceptance": "accept-empty", **at},
        {"last_verdict": "complete", "last_refusal": "too little", "last_refused_at": 500, **at},
        {"last_verdict": "failed", "last_reason": "no such host", "last_read_at": 2_000},
        {"last_verdict": "failed", "last_reason": "away", **at, "last_read_at": 2_000},
        {"last_verdict": "partial", "last_reason": "page 2", **at, "last_complete_at": 500},
        {"last_verdict": "partial", "last_reason": "page 2", **at, "last_complete_at": None},
        {"last_verdict": "", "last_reason": "waits"},
        {"last_verdict": "complete", "last_read_at": 1_000},
        {"last_verdict": "complete", "position": UNCONFIGURED_POSITION, "records": 3, **at},
    ):
        with writing(office.engine) as connection:
            number = len(connection.execute(select(table)).all())
            values = {"name": f"source-{number + 1}", "position": number + 1, "last_reason": ""}
            connection.execute(insert(table).values(**values | row))
    with reading(office.engine) as connection:
        source = connection.execute(select(table.c.source_id).where(table.c.name == "source-3")).scalar_one()
    for source_id, sort, number in ((source, "malformed", 250), (source, "ownedElsewhere", 1), (0, "groupCycle", 1)):
        of_source = {"source_id": source_id, "sort": sort, "by_read": True}
        add_rows(office, ProblemCountRow, [of_source | {"problems": number, "since": 1}])
        first = of_source | {"cause": "wrong", "kind": "", "key": "[]", "detail": "[]", "origin": ""}
        places = ({"ordinal": 1, "place": ""}, {"ordinal": 2, "place": "people.yaml:7"})
        add_rows(office, ProblemRow, [first | place for place in places])
    count = {"source_id": source, "sort": "folderCycle", "problems": 2, "since": 1, "by_read": False}
    add_rows(office, ProblemCountRow, [count])
    show("sources")
    with writing(office.engine) as connection:
        connection.execute(update(DirectoryStateRow.__table__).values(counted_revision=1, counted_at=1))
    show("sources")
    for query in ({"source": "source-3", "sort": "malformed"}, {"sort": "groupCycle"}, {"sort": "dangling"}):
        show("problems", **query)
    show("problems", 404, source="source-3")
    show("problems", 404, source="nobody", sort="dangling")
    show("problems", source="source-3", sort="dangling")
    membership = {"kind": "membership", "key": '["acme", "gone", ""]', "detail": '["user", "gone", "userId"]'}
    of_source = {"source_id": source, "sort": "dangling", "by_read": True, "cause": "withoutEffect", "origin": ""}
    add_rows(office, ProblemRow, [{**of_source, **membership, "ordinal": 1, "place": ""}])
    assert "which is left out itself" in show("problems", source="source-3", sort="dangling")
    away = {"kind": "membership", "key": '["acme", "away", ""]', "detail": '["user", "away", "userId"]'}
    add_rows(office, ProblemRow, [{**of_source, **away, "ordinal": 2, "place": "people.yaml:8"}])
    html = show("problems", source="source-3", sort="dangling")
    assert "All are" in html
    assert "Each refers to a user that is left out itself" in html
    context = {
        "kind": "contextGrant",
        "key": '["acme", "away", "", "page", "7", "", ""]',
        "detail": '["user", "away", "userId"]',
    }
    add_rows(office, ProblemRow, [{**of_source, **context, "ordinal": 3, "place": ""}])
    show("problems", source="source-3", sort="dangling")
    show("overview")


def visit_overview(visitors: Visitors) -> None:
    """With workers and without, a schedule and none, verified and not, and with every concern."""
    office, show = visitors.office, visitors.show
    show("overview")
    states.queued(office)
    show("overview")
    for verify in ("", "every 1d"):
        schedules = office.settings.model_copy(update={"sync": SyncSettings(schedule="", verify_schedule=verify)})
        Visitors(Office(schedules, office.engine, office.time, office.runs)).show("overview")
    service = NodeActivity(node="n:1", role="service", clock=office.time)
    for asked in (10, 30):
        office.time.move_on(minutes=1)
        service.answered(asked, {}, 1, 0.003)
        service.write(office.engine)
    show("overview")
    NodeActivity(node="n", role="worker", clock=office.time).write(office.engine)
    show("overview")
    activity = NodeMinuteRow.__table__
    with writing(office.engine) as connection:
        connection.execute(update(activity).where(activity.c.role == "worker").values(version="0.9"))
    show("overview")
    office.time.move_on(minutes=30)
    show("overview")
    held = states.held(office)
    _failures(office, [{"item_id": "a", "parked": True}, *({"item_id": one, "message": one} for one in "bcd")])
    show("overview")
    _failures(office, [])
    office.runs.cancel(held.run_id)
    ledger = open_ledger(office.engine, "http://backend.test", "key", office.time)
    of_ledger = LedgerRow.__table__.c.ledger_id == ledger.ledger_id
    for findings in ("{}", '{"missing": 2}'):
        with writing(office.engine) as connection:
            values = {"looked_at": 1_000, "findings": findings}
            connection.execute(update(LedgerRow.__table__).where(of_ledger).values(**values))
        show("overview")
    states.failed(office)
    show("overview")
    # Nothing has begun for a while, although it was due.
    office.time.move_on(hours=8)
    Visitors(office).show("overview")


def visit_notices(visitors: Visitors, monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview with every notice, about one item or record and about many, with a worker and without."""
    office = visitors.office
    given: dict[str, Any] = {"fingerprint": "", "summary": "", "advice": "", "since": office.time()}
    run_id = office.runs.recent()[0].run_id
    for size in (1, 2_000):
        found = [
            Concern(cause=cause, about=f"source-{number}", size=size, run_id=run_id, **given)
            for number in (3, 4, 7)
            for cause in Cause
        ]
        with monkeypatch.context() as patched:
            patched.setattr("app.commands.bootstrap.service.concern_finder", lambda *_, of=found, **__: lambda *_: of)
            html = Visitors(office).show("overview")
            parked = [one for one in found if one.cause is Cause.PARKED]
            patched.setattr("app.commands.bootstrap.service.concern_finder", lambda *_, of=parked, **__: lambda *_: of)
            Visitors(office).show("overview")
        assert f"{len(found) - 9} more</summary>" in html
        NodeActivity(node="n", role="worker", clock=office.time).write(office.engine)
