"""The list of runs with its filters, and the sums of the runs since a time."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, insert

from app.foundation.clock import epoch_ms
from app.foundation.database.engine import reading, writing
from app.sync.runs import history
from app.sync.runs.history import RUN_KINDS, askers, kind_of, recap, recent_runs
from app.sync.runs.tables import RunRow
from tests.worlds.syncing import SyncedWorld

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)
DONE = {"document": {"add": {"planned": 2, "done": 2}, "delete": {"planned": 3, "held": 3}}}
PARTIAL = {"document": {"add": {"planned": 2, "done": 1, "failed": 1}}, "folder": {"delete": {"planned": 1, "done": 1}}}


def _add(engine: Engine, run_id: str, hours: float = 0, **values: Any) -> None:
    """A run that was requested so many hours before noon."""
    at = epoch_ms(NOON - timedelta(hours=hours))
    row = {"run_id": run_id, "trigger": "schedule", "status": "done", "requested_at": at, "finished_at": at + 1}
    with writing(engine) as connection:
        connection.execute(insert(RunRow.__table__).values(**row | values))


@pytest.fixture
def engine(world: SyncedWorld) -> Engine:
    """A database without runs."""
    return world.engine


@pytest.mark.parametrize("kind", RUN_KINDS)
def test_runs_are_found_by_kind(engine: Engine, kind: str) -> None:
    _add(engine, "sync", organization_ids='["acme"]')
    _add(engine, "preview", dry_run=True, verify=True, trigger="changes")
    _add(engine, "verify", verify=True, trigger="verify_schedule")
    _add(engine, "changes", trigger="changes", verify=True)
    _add(engine, "retry", retry=True, verify=True)
    with reading(engine) as connection:
        found = recent_runs(connection, 10, kind=kind)
        everything = recent_runs(connection, 10)
    assert [run.run_id for run in found] == [kind]
    assert {run.run_id: kind_of(run) for run in everything} == {name: name for name in RUN_KINDS}


def test_runs_are_found_by_who_started_them(engine: Engine) -> None:
    _add(engine, "1", asked_by="mira", trigger="console")
    _add(engine, "2", asked_by="schedule", trigger="console")
    _add(engine, "3", trigger="verify_schedule")
    _add(engine, "4", trigger="changes")
    _add(engine, "5", trigger="continuation")
    with reading(engine) as connection:
        assert askers(connection) == ["mira", "schedule"]
        for asked_by, ids in (
            ("mira", ["1"]),
            ("schedule", ["3"]),
            ("changes", ["4"]),
            ("continuation", ["5"]),
            ("x", []),
        ):
            assert [run.run_id for run in recent_runs(connection, 10, asked_by=asked_by)] == ids


def test_runs_are_found_by_time_and_idle_ones_are_left_out(engine: Engine) -> None:
    _add(engine, "1", hours=30, counts=json.dumps(DONE))
    _add(engine, "2", hours=20)
    _add(engine, "3", hours=10, error="away", status="failed")
    _add(engine, "4", finished_at=None, status="queued")
    with reading(engine) as connection:
        since = NOON - timedelta(days=1)
        assert [run.run_id for run in recent_runs(connection, 10, since=since)] == ["4", "3", "2"]
        assert [run.run_id for run in recent_runs(connection, 10, idle=False)] == ["4", "3", "1"]


def test_recap_sums_runs_without_previews(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    _add(engine, "before", hours=25, counts=json.dumps(DONE))
    for number in range(3):
        _add(engine, f"same-{number}", hours=number, counts=json.dumps(DONE))
    _add(engine, "partial", counts=json.dumps(PARTIAL), status="partial")
    _add(engine, "idle")
    _add(engine, "failed", status="failed", error="away")
    _add(engine, "preview", dry_run=True, counts=json.dumps(DONE))
    _add(engine, "failed-preview", dry_run=True, status="failed", error="malformed")
    with reading(engine) as connection:
        found = recap(connection, NOON - timedelta(days=1))
        assert (found.runs, found.busy, found.previews, found.failed) == (6, 4, 2, 1)
        assert found.done() == {"document": {"add": 7}, "folder": {"delete": 1}}
        assert (found.total("held"), found.total("failed"), found.total("parked")) == (9, 1, 0)
        assert not found.is_cut
        monkeypatch.setattr(history, "MAX_RECAPPED", 2)
        cut = recap(connection, NOON - timedelta(days=1))
    assert cut.is_cut
    assert cut.runs + cut.previews == 2
