"""The current status of synchronization: held deletes, the last failure, the last start.

Each run holds the deletes over the limits again, and earlier runs can still be approved. The deletes held *now* are
those of the last run of everything, and of narrower runs since.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from app.foundation.clock import epoch_ms
from app.foundation.database.statements import run
from app.sync.ledger.counts import total
from app.sync.runs.rows import row_of, run_from
from app.sync.runs.run import Run

EVERYTHING = "NOT dry_run AND organization_ids = '[]' AND user_ids = '[]'"
"""The condition on ``run`` that it is not narrowed and no dry run."""

# A run whose held deletes were discarded has settled them too.
_SETTLED = "(status IN ('done', 'partial', 'held') OR (status = 'cancelled' AND held_until IS NOT NULL))"

_HELD = """
SELECT run_id, requested_at, finished_at, held_until, counts, report FROM run
WHERE status = 'held' AND (held_until IS NULL OR held_until >= :now) AND finished_at >= (
  SELECT COALESCE(MAX(finished_at), 0) FROM run WHERE finished_at IS NOT NULL AND {everything} AND {settled})
ORDER BY finished_at, run_id
"""

_SUPERSEDED_BY = """
SELECT MAX(run_id) AS run_id FROM run WHERE finished_at = (
  SELECT MAX(finished_at) FROM run WHERE finished_at > :finished_at AND {everything} AND {settled})
AND {everything} AND {settled}
"""

_LAST_ENDED = """
SELECT run_id FROM run WHERE finished_at IS NOT NULL AND started_at IS NOT NULL AND {everything}
ORDER BY finished_at DESC, run_id DESC LIMIT 1
"""

_APPLYING = """
SELECT run_id FROM run WHERE NOT dry_run AND (status = 'applying' OR (approved_at IS NOT NULL AND finished_at IS NULL))
LIMIT 1
"""

_APPLIED_BY = """
SELECT run_id FROM run
WHERE requested_plan_id = :plan_id AND NOT dry_run AND (plan_id IS NOT NULL OR finished_at IS NULL)
ORDER BY run_id DESC LIMIT 1
"""

_LAST = """
SELECT run_id, status, error, finished_at, counts FROM run
WHERE finished_at IS NOT NULL AND {everything} AND status IN ('done', 'partial', 'held', 'failed')
  AND NOT (status = 'failed' AND interrupted AND (continued_by IS NOT NULL OR finished_at > :continued_until))
ORDER BY finished_at DESC, run_id DESC LIMIT {remembered}
"""

_CONTINUED_WITHIN = 60_000
"""Milliseconds within which a worker queues the continuation of an interrupted run."""

_MAX_FAILURES = 1_000
"""The maximum of failed runs in a row that are read."""

_LAST_BEGAN = "SELECT MAX(started_at) AS began, MIN(requested_at) AS asked FROM run WHERE {everything}"


_WAITING = """
SELECT COUNT(CASE WHEN status = 'queued' THEN 1 END) AS waiting,
       MIN(CASE WHEN status = 'queued' THEN requested_at END) AS since,
       COUNT(CASE WHEN status <> 'queued' THEN 1 END) AS running
FROM run WHERE status IN ('queued', 'reading', 'verifying', 'planning', 'applying')
"""


@dataclass(frozen=True, slots=True)
class HeldRun:
    """A run whose held deletes can be approved. Times are epoch milliseconds."""

    run_id: str
    requested_at: int
    finished_at: int
    held_until: int | None
    counts: Mapping[str, Mapping[str, Mapping[str, int]]]
    holds: tuple[Mapping[str, object], ...]
    """kind, organizationId, deletes, ledger and reason of each hold."""

    @property
    def deletes(self) -> int:
        """The number of held deletes."""
        return total(self.counts, "held")


@dataclass(frozen=True, slots=True)
class FailedRun:
    """The last run, which failed. Times are epoch milliseconds."""

    run_id: str
    error: str
    since: int
    """When the first of the failed runs in a row ended."""
    items: int = 0
    """The number of failed items if all items of the run failed; 0 if the run itself failed."""


def held_runs(connection: Connection, now_ms: int) -> list[HeldRun]:
    """The runs with deletes held now: at most one run of everything, and narrower ones since."""
    return [
        HeldRun(
            run_id=row.run_id,
            requested_at=row.requested_at,
            finished_at=row.finished_at,
            held_until=row.held_until,
            counts=json.loads(row.counts),
            holds=tuple(_holds(row.report)),
        )
        for row in run(connection, _HELD, {"now": now_ms}, everything=EVERYTHING, settled=_SETTLED)
    ]


def superseded_by(connection: Connection, held: Run) -> str | None:
    """The id of the newest run that settled the deletes of this held run again; None if they are still held."""
    finished_at = 0 if held.finished_at is None else epoch_ms(held.finished_at)
    values = {"finished_at": finished_at}
    found: str | None = run(connection, _SUPERSEDED_BY, values, everything=EVERYTHING, settled=_SETTLED).scalar()
    return found


def last_ended(connection: Connection) -> Run | None:
    """The last run of everything that has started and ended."""
    row = run(connection, _LAST_ENDED, {}, everything=EVERYTHING).first()
    return None if row is None else run_from(row_of(connection, row.run_id))


def is_applying(connection: Connection) -> bool:
    """Whether a run changes the backend now, or will because it is approved."""
    return run(connection, _APPLYING, {}).first() is not None


def applied_by(connection: Connection, plan_id: str) -> Run | None:
    """The run that applied or will apply this stored plan; None if there is none."""
    row = run(connection, _APPLIED_BY, {"plan_id": plan_id}).first()
    return None if row is None else run_from(row_of(connection, row.run_id))


def failed_run(connection: Connection, now_ms: int) -> FailedRun | None:
    """The last run of everything, if it failed or all of its items did. A cancelled run is no failure.

    Two kinds of runs are ignored: those that tried nothing, because all failed items still wait, and interrupted ones
    that another run continues.
    """
    found: FailedRun | None = None
    parameters = {"continued_until": now_ms - _CONTINUED_WITHIN}
    for row in run(connection, _LAST, parameters, everything=EVERYTHING, remembered=str(_MAX_FAILURES)):
        failures = _failures_alone(row.counts) if row.status == "partial" else 0
        if row.status == "partial" and failures is None:
            continue
        if row.status != "failed" and not failures:
            break
        if found is None:
            found = FailedRun(run_id=row.run_id, error=row.error or "", since=row.finished_at, items=failures or 0)
        found = replace(found, since=row.finished_at)
    return found


def last_began(connection: Connection) -> int | None:
    """When a run of everything last started, or else when the first was requested, in epoch milliseconds."""
    row = run(connection, _LAST_BEGAN, {}, everything=EVERYTHING).one()
    found: int | None = row.asked if row.began is None else row.began
    return found


def waiting_runs(connection: Connection) -> tuple[int, int | None]:
    """The number of queued runs and the time of the oldest request, in epoch milliseconds; none while one runs."""
    row = run(connection, _WAITING, {}).one()
    return (0, None) if row.running else (row.waiting, row.since)


def _failures_alone(counts: str) -> int | None:
    """The number of failed items of a run without done ones; 0 if some were done; None if none was tried."""
    numbers = [outcomes for actions in json.loads(counts).values() for outcomes in actions.values()]
    if any(outcomes.get("done") for outcomes in numbers):
        return 0
    return sum(outcomes.get("failed", 0) for outcomes in numbers) or None


def _holds(report: str) -> Iterator[Mapping[str, object]]:
    held = json.loads(report).get("held")
    yield from held if isinstance(held, list) else ()
