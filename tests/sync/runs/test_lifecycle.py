"""The queue and the life cycle of runs."""

import random
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from app.commands.schema import METADATA
from app.foundation.database.engine import open_engine, reading, writing
from app.sync.ledger.tables import CallRow
from app.sync.plan.parts import PartWriter
from app.sync.plan.tables import PlanItemRow, PlanRow
from app.sync.runs.history import recent_runs
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import FINAL, HELD_FOR, MOVES, RunConflictError, RunNotFoundError, RunRequest, RunStatus
from tests.tables import make_tables
from tests.worlds.clock import NOON, SimulatedTime


@pytest.fixture
def clock() -> SimulatedTime:
    return SimulatedTime()


@pytest.fixture
def runs(database_url: str, clock: SimulatedTime) -> Iterator[Runs]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield Runs(engine, clock, random.Random(3))
    engine.dispose()


def enqueue(runs: Runs, **request: Any) -> Any:
    return runs.enqueue(RunRequest(**{"trigger": "resync"} | request))


def make_plan(runs: Runs, plan_id: str, *statuses: str, created_at: int = 0) -> None:
    with writing(runs.engine) as connection:
        connection.execute(
            insert(PlanRow.__table__).values(
                plan_id=plan_id,
                ledger_id=1,
                revision=1,
                ledger_revision=1,
                plan_hash="",
                created_at=created_at,
                organization_ids="[]",
                user_ids="[]",
                limits="[]",
            )
        )
        parts = PartWriter(connection, plan_id)
        for ordinal, status in enumerate(statuses, 1):
            parts.add([f"150|{'document' if ordinal % 2 else 'folder'}|delete|delete_documents|{status}|acme"])
            connection.execute(
                insert(PlanItemRow.__table__).values(
                    plan_id=plan_id,
                    ordinal=ordinal,
                    phase=150,
                    action="delete",
                    kind="document" if ordinal % 2 else "folder",
                    organization_id="acme",
                    container_id="",
                    item_id=f"d{ordinal}",
                    operation="delete_documents",
                    scope="[]",
                    reason="gone",
                    status=status,
                    digest="",
                    parent_id="",
                    access_type="",
                    access_role="",
                    disabled=False,
                    payload="",
                    message="",
                )
            )
        parts.end()


def go(runs: Runs, run_id: str, *steps: RunStatus, **values: Any) -> None:
    """Moves a run on from wherever it is."""
    for step in steps:
        runs.move(run_id, runs.get(run_id).status, step, **values)


def held(runs: Runs) -> str:
    """A held run with two held items."""
    run, _ = enqueue(runs)
    make_plan(runs, "p1", "done", "held", "held")
    now = runs.clock()
    go(runs, run.run_id, RunStatus.READING, started_at=now)
    go(runs, run.run_id, RunStatus.PLANNING, ledger_id=1, plan_id="p1")
    counts = {"document": {"delete": {"held": 2}}}
    go(runs, run.run_id, RunStatus.HELD, finished_at=now, held_at=now, held_until=now + HELD_FOR, counts=counts)
    return run.run_id


def test_enqueue_stores_the_request(runs: Runs) -> None:
    run, created = enqueue(
        runs,
        organization_ids=("b", "a", "b"),
        user_ids=("u",),
        dry_run=True,
        verify=True,
        allow_deletes=True,
        plan_id="p",
    )
    assert created
    assert (run.status, run.organization_ids, run.user_ids) == (RunStatus.QUEUED, ("a", "b"), ("u",))
    assert (run.dry_run, run.verify, run.allow_deletes, run.requested_plan_id) == (True, True, True, "p")
    assert (run.requested_at, run.started_at, run.counts, run.report, run.calls) == (NOON, None, {}, {}, 0)
    assert runs.get(run.run_id) == run


def test_identical_queued_run_is_returned(runs: Runs) -> None:
    first, _ = enqueue(runs, organization_ids=("a", "b"))
    again, created = enqueue(runs, organization_ids=("b", "a"))
    assert (again, created) == (first, False)
    assert enqueue(runs, organization_ids=("a",))[1]
    runs.move(first.run_id, RunStatus.QUEUED, RunStatus.READING)
    assert enqueue(runs, organization_ids=("a", "b"))[1], "one that has begun may have read the directory already"


def test_idempotency_key_returns_the_same_run_in_any_status(runs: Runs) -> None:
    first, _ = enqueue(runs, idempotency_key="k1")
    runs.cancel(first.run_id)
    again, created = enqueue(runs, idempotency_key="k1")
    assert (again.run_id, again.status, created) == (first.run_id, RunStatus.CANCELLED, False)
    assert enqueue(runs, idempotency_key="k2")[0].run_id != first.run_id


def test_two_keys_may_share_a_queued_run(runs: Runs) -> None:
    first, _ = enqueue(runs, idempotency_key="k1")
    assert enqueue(runs, idempotency_key="k2")[0] == first
    runs.move(first.run_id, RunStatus.QUEUED, RunStatus.READING)
    assert enqueue(runs, idempotency_key="k2")[0].run_id == first.run_id


def test_idempotency_key_for_something_else_is_a_conflict(runs: Runs) -> None:
    enqueue(runs, idempotency_key="k1")
    with pytest.raises(RunConflictError, match="different request"):
        enqueue(runs, idempotency_key="k1", dry_run=True)


def test_simultaneous_identical_requests_make_one_run(runs: Runs) -> None:
    found: list[str] = []
    start = threading.Barrier(6)

    def ask() -> None:
        start.wait()
        found.append(enqueue(runs)[0].run_id)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len(set(found)) == 1


def test_ids_sort_by_time_and_differ_within_it(runs: Runs, clock: SimulatedTime) -> None:
    ids = []
    for number in range(5):
        ids.append(enqueue(runs, user_ids=(str(number),))[0].run_id)
        clock.now += timedelta(milliseconds=number // 2)
    assert len(set(ids)) == 5
    assert max(ids) == ids[-1]
    assert [run.run_id for run in runs.recent(limit=2)] == sorted(ids, reverse=True)[:2]
    with reading(runs.engine) as connection:
        assert [run.run_id for run in recent_runs(connection, 10, before=sorted(ids)[1])] == [min(ids)]


def test_next_queued_is_the_one_that_waited_longest(runs: Runs, clock: SimulatedTime) -> None:
    assert runs.next_queued() is None
    first, _ = enqueue(runs, user_ids=("a",))
    clock.now += timedelta(seconds=1)
    enqueue(runs, user_ids=("b",))
    waiting = runs.next_queued()
    assert waiting is not None
    assert waiting.run_id == first.run_id


@pytest.mark.parametrize("source", list(RunStatus))
def test_only_the_moves_of_the_table_are_possible(runs: Runs, source: RunStatus) -> None:
    for target in RunStatus:
        run, _ = enqueue(runs, user_ids=(source.value, target.value))
        go(runs, run.run_id, *_way_to(source))
        for other in set(RunStatus) - {source}:
            with pytest.raises(RunConflictError, match=f"is {source.value}, not {other.value}"):
                runs.move(run.run_id, other, target)
        if target in MOVES[source]:
            assert runs.move(run.run_id, source, target).status == target
        else:
            with pytest.raises(RunConflictError, match=source.value):
                runs.move(run.run_id, source, target)
            assert runs.get(run.run_id).status == source


def _way_to(status: RunStatus) -> list[RunStatus]:
    begun = [RunStatus.READING, RunStatus.PLANNING]
    return {
        RunStatus.QUEUED: [],
        RunStatus.READING: begun[:1],
        RunStatus.PLANNING: begun,
        RunStatus.CANCELLED: [RunStatus.CANCELLED],
        RunStatus.FAILED: [RunStatus.FAILED],
    }.get(status, [*begun, status])


def test_nothing_follows_a_final_status() -> None:
    assert all(not MOVES[status] for status in FINAL)


def test_unknown_run_is_an_error(runs: Runs) -> None:
    for act in (runs.get, runs.approve, runs.discard, runs.cancel, runs.changes):
        with pytest.raises(RunNotFoundError, match="nope"):
            act("nope")


def test_cancel_ends_a_queued_run_at_once_and_asks_a_running_one(runs: Runs) -> None:
    queued, _ = enqueue(runs)
    assert runs.cancel(queued.run_id).status == RunStatus.CANCELLED
    running, _ = enqueue(runs)
    runs.move(running.run_id, RunStatus.QUEUED, RunStatus.READING)
    asked = runs.cancel(running.run_id)
    assert (asked.status, asked.cancel_requested) == (RunStatus.READING, True)
    assert asked.decided == "asked to be cancelled on 2026-11-20 12:00 UTC"
    with pytest.raises(RunConflictError, match="has ended"):
        runs.cancel(queued.run_id)
    assert runs.cancel(held(runs)).status == RunStatus.CANCELLED


def test_approve_queues_a_held_run_again(runs: Runs, clock: SimulatedTime) -> None:
    run_id = held(runs)
    clock.now += timedelta(days=6)
    run = runs.approve(run_id)
    assert (run.status, run.approved_at, run.finished_at, run.plan_id) == (RunStatus.QUEUED, clock.now, None, "p1")
    assert enqueue(runs)[1], "an approved run is no answer to a new request"
    with pytest.raises(RunConflictError, match="queued"):
        runs.approve(run_id)


def test_approve_comes_too_late_after_seven_days(runs: Runs, clock: SimulatedTime) -> None:
    run_id = held(runs)
    clock.now += timedelta(days=7, seconds=1)
    with pytest.raises(RunConflictError, match="until 2026-11-27 12:00 UTC"):
        runs.approve(run_id)


def test_discard_drops_the_held_items(runs: Runs) -> None:
    run_id = held(runs)
    assert runs.discard(run_id).status == RunStatus.CANCELLED
    assert [change.status for change in runs.changes(run_id)] == ["done", "discarded", "discarded"]
    assert runs.changes(run_id)[1].message == "left alone: discarded on 2026-11-20 12:00 UTC"
    with pytest.raises(RunConflictError, match="cancelled"):
        runs.approve(run_id)


def test_held_run_keeps_its_history(runs: Runs, clock: SimulatedTime) -> None:
    run_id = held(runs)
    clock.now += timedelta(hours=3)
    runs.approve(run_id, by="ada (command line)", reason="they left")
    clock.now += timedelta(hours=1)
    runs.move(run_id, RunStatus.QUEUED, RunStatus.READING, resumed_at=clock.now)
    runs.cancel(run_id, by="bob", reason="stop")
    run = runs.get(run_id)
    assert (run.decision, run.decided_at, run.decided_by) == (
        "approved",
        NOON + timedelta(hours=3),
        "ada (command line)",
    )
    assert (run.held_at, run.started_at, run.resumed_at) == (NOON, NOON, clock.now)
    assert run.decided == "approved on 2026-11-20 15:00 UTC by ada (command line) (they left)"


def test_late_decision_is_refused_with_the_earlier_one(runs: Runs) -> None:
    run_id = held(runs)
    run = runs.discard(run_id, by="admin token 0a1b2c3d", reason="they are on leave")
    assert (run.error, run.decision, run.counts) == (None, "discarded", {"document": {"delete": {"discarded": 2}}})
    message = "cancelled, discarded on 2026-11-20 12:00 UTC by admin token 0a1b2c3d (they are on leave)"
    for act in (runs.approve, runs.discard, runs.cancel):
        with pytest.raises(RunConflictError, match=re.escape(message)):
            act(run_id)


def test_changes_are_filtered_and_paged(runs: Runs) -> None:
    run_id = held(runs)
    assert [change.ordinal for change in runs.changes(run_id)] == [1, 2, 3]
    assert [change.ordinal for change in runs.changes(run_id, status="held")] == [2, 3]
    assert [change.ordinal for change in runs.changes(run_id, kind="document")] == [1, 3]
    assert [change.ordinal for change in runs.changes(run_id, after=1, limit=1)] == [2]
    assert runs.changes(run_id)[0].reason == "gone"


def test_orphaned_runs_are_ended(runs: Runs) -> None:
    queued, _ = enqueue(runs, user_ids=("a",))
    running, _ = enqueue(runs, user_ids=("b",))
    runs.move(running.run_id, RunStatus.QUEUED, RunStatus.READING, worker="node1:17")
    (orphan,) = runs.end_orphans()
    assert (orphan.run_id, orphan.status) == (running.run_id, RunStatus.FAILED)
    assert orphan.error == (
        "the process that ran it (node1:17), or its connection to the database, ended unexpectedly; "
        "the next run continues from there"
    )
    assert runs.get(queued.run_id).status == RunStatus.QUEUED
    assert runs.end_orphans() == []


def test_prune_keeps_what_may_still_be_needed(runs: Runs, clock: SimulatedTime) -> None:
    waiting = held(runs)
    old, _ = enqueue(runs, idempotency_key="k")
    runs.cancel(old.run_id)
    make_plan(runs, "stored", "planned")
    make_plan(runs, "in-flight", "planned")
    with writing(runs.engine) as connection:
        connection.execute(
            insert(CallRow.__table__).values(
                run_id="x", plan_id="in-flight", ledger_id=1, operation="add_users", ordinals="[1]", sent_at=0
            )
        )
    clock.now += timedelta(days=5)
    assert runs.prune(timedelta(days=2)) == 1
    with pytest.raises(RunNotFoundError):
        runs.get(old.run_id)
    assert runs.get(waiting).status == RunStatus.HELD
    assert len(runs.changes(waiting)) == 3
    with runs.engine.connect() as connection:
        plans = set(connection.execute(PlanRow.__table__.select()).scalars())
    assert plans == {"p1", "in-flight"}
    assert enqueue(runs, idempotency_key="k")[1], "the key is free again"
    clock.now += timedelta(days=30)
    runs.prune(timedelta(days=2))
    with pytest.raises(RunNotFoundError):
        runs.get(waiting)
