"""When runs are due, and the current concerns."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine

from app.foundation.database.engine import reading
from app.sync.runs.run import RunRequest, RunStatus
from app.sync.runs.schedule import first_due_after
from app.sync.runs.status import failed_run, held_runs, last_began
from tests.monitoring.notify.conftest import Past
from tests.worlds.clock import NOON, SimulatedTime

NOON_MS = round(NOON.timestamp() * 1000)


@pytest.mark.parametrize(
    ("schedules", "timezone", "due"),
    [
        (["*/15 * * * *"], "UTC", datetime(2026, 11, 20, 12, 15, tzinfo=UTC)),
        (["every 1h"], "UTC", datetime(2026, 11, 20, 13, 0, tzinfo=UTC)),
        (["0 3 * * *"], "Europe/Berlin", datetime(2026, 11, 21, 2, 0, tzinfo=UTC)),
        (["0 3 * * *", "30 12 * * *"], "UTC", datetime(2026, 11, 20, 12, 30, tzinfo=UTC)),
        (["0 0 30 2 *"], "UTC", None),
        ([], "UTC", None),
    ],
)
def test_first_due_after_a_moment(schedules: list[str], timezone: str, due: datetime | None) -> None:
    assert first_due_after(NOON, schedules, timezone) == due


def test_held_is_what_the_last_run_of_everything_held_and_narrower_ones_since(
    engine: Engine, past: Past, time: SimulatedTime
) -> None:
    def narrowed(organization: str) -> str:
        run, _ = past.runs.enqueue(RunRequest(trigger="command", organization_ids=(organization,)))
        past.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=time())
        past.runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING)
        past.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.HELD, finished_at=time())
        return run.run_id

    def held() -> list[str]:
        with reading(engine) as connection:
            return [run.run_id for run in held_runs(connection, round(time().timestamp() * 1000))]

    narrowed("acme")
    time.move_on(minutes=1)
    first = past.held(30).run_id
    assert held() == [first]
    time.move_on(minutes=1)
    second = past.held(30).run_id
    assert held() == [second]
    time.move_on(minutes=1)
    third = narrowed("bravo")
    assert held() == [second, third]
    time.move_on(minutes=1)
    past.ended(RunStatus.FAILED, error="down")
    assert held() == [second, third], "a run that failed has settled nothing"
    time.move_on(days=8)
    assert held() == [third], "the time for approval is over; the narrow one here never had any"
    past.ended(RunStatus.DONE)
    assert held() == []


def test_failure_counts_from_the_first_of_a_row(engine: Engine, past: Past, time: SimulatedTime) -> None:
    with reading(engine) as connection:
        assert failed_run(connection, NOON_MS) is None
        assert last_began(connection) is None
    past.ended(RunStatus.FAILED, error="before")
    time.move_on(minutes=1)
    past.ended(RunStatus.DONE)
    for _ in range(3):
        time.move_on(minutes=1)
        last = past.ended(RunStatus.FAILED, error="down")
    with reading(engine) as connection:
        found = failed_run(connection, NOON_MS + 240_000)
        assert found is not None
        assert (found.run_id, found.error, found.since) == (last.run_id, "down", NOON_MS + 120_000)
        assert last_began(connection) == NOON_MS + 240_000


def test_run_that_is_continued_is_no_failure(engine: Engine, past: Past, time: SimulatedTime) -> None:
    def failed() -> str | None:
        with reading(engine) as connection:
            found = failed_run(connection, round(time().timestamp() * 1000))
        return None if found is None else found.run_id

    past.ended(RunStatus.DONE)
    time.move_on(minutes=1)
    cut = past.ended(RunStatus.FAILED, error="the connection was cut", interrupted=True)
    assert failed() is None, "a worker is about to queue the continuation"
    follower = past.runs.continue_run(cut)
    assert follower is not None
    time.move_on(hours=1)
    assert failed() is None
    past.runs.move(follower.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=time())
    past.runs.move(follower.run_id, RunStatus.READING, RunStatus.PLANNING)
    # All failed items wait for their next try, so this run sends nothing and reports nothing.
    waiting = {"document": {"add": {"planned": 2, "waiting": 2}}}
    past.runs.move(follower.run_id, RunStatus.PLANNING, RunStatus.PARTIAL, finished_at=time(), counts=waiting)
    assert failed() is None

    time.move_on(minutes=1)
    past.ended(RunStatus.DONE)
    time.move_on(minutes=1)
    cut = past.ended(RunStatus.FAILED, error="the connection was cut", interrupted=True)
    follower = past.runs.continue_run(cut)
    assert follower is not None
    past.runs.move(follower.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=time())
    past.runs.move(follower.run_id, RunStatus.READING, RunStatus.FAILED, finished_at=time(), error="refused")
    assert failed() == follower.run_id, "the continuation failed, and nothing continues that"


def test_interrupted_run_that_nobody_continues_is_a_failure_after_a_minute(
    engine: Engine, past: Past, time: SimulatedTime
) -> None:
    run = past.ended(RunStatus.FAILED, error="the process that ran it ended", interrupted=True)
    time.move_on(seconds=61)
    with reading(engine) as connection:
        found = failed_run(connection, round(time().timestamp() * 1000))
    assert found is not None
    assert found.run_id == run.run_id
