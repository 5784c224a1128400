"""Reads the current status of synchronization: held deletes, the last failure, the last start.

Each run holds the deletes over the limits again, and earlier runs can still be approved. The deletes held *now* are
those of the last full run, and of narrower runs since.
"""

# ruff: noqa: S608 - SQL consists of constants of this module; data is in parameters.

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from app.foundation.clock import epoch_ms
from app.foundation.database.statements import json_list, run
from app.sync.ledger.items import ItemStatus
from app.sync.plan.counts import total
from app.sync.runs.run import Run, RunStatus, row_of, run_from

IS_FULL_RUN = "NOT dry_run AND organization_ids = '[]' AND user_ids = '[]'"
"""The condition on ``run`` that it is a full run: not narrowed, and not a dry run."""

# A cancelled run whose held deletes were discarded has resolved them too.
_RESOLVED = "(status IN ('done', 'partial', 'held') OR (status = 'cancelled' AND held_until IS NOT NULL))"

_CONTINUED_WITHIN = 60_000
"""Milliseconds within which a worker queues the continuation of an interrupted run."""

_MAX_FAILURES = 1_000
"""The maximum of failed runs in a row that are read."""

_HELD = f"""
SELECT run_id, requested_at, finished_at, held_until, counts, report FROM run
WHERE status = 'held' AND (held_until IS NULL OR held_until >= :now) AND finished_at >= (
  SELECT COALESCE(MAX(finished_at), 0) FROM run WHERE finished_at IS NOT NULL AND {IS_FULL_RUN} AND {_RESOLVED})
ORDER BY finished_at, run_id
"""

_SUPERSEDED_BY = f"""
SELECT MAX(run_id) AS run_id FROM run WHERE finished_at = (
  SELECT MAX(finished_at) FROM run WHERE finished_at > :finished_at AND {IS_FULL_RUN} AND {_RESOLVED})
AND {IS_FULL_RUN} AND {_RESOLVED}
"""

_LAST_ENDED = f"""
SELECT run_id FROM run WHERE finished_at IS NOT NULL AND started_at IS NOT NULL AND {IS_FULL_RUN}
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

_SPENT_PLANS = """
SELECT p.plan_id, CASE
  WHEN p.plan_id IN (
    SELECT requested_plan_id FROM run
    WHERE requested_plan_id IN (@list(plan_ids)) AND NOT dry_run AND plan_id IS NOT NULL) THEN 'applied'
  WHEN l.verified_at IS NOT NULL AND l.ledger_revision <> p.ledger_revision THEN 'outdated' END AS state
FROM plan p CROSS JOIN ledger l WHERE p.plan_id IN (@list(plan_ids)) AND l.ledger_id = p.ledger_id
"""

_LAST = f"""
SELECT run_id, status, error, finished_at, counts FROM run
WHERE finished_at IS NOT NULL AND {IS_FULL_RUN} AND status IN ('done', 'partial', 'held', 'failed')
  AND NOT (status = 'failed' AND interrupted AND (continued_by IS NOT NULL OR finished_at > :continued_until))
ORDER BY finished_at DESC, run_id DESC LIMIT {_MAX_FAILURES}
"""

_LAST_BEGAN = f"SELECT MAX(started_at) AS began, MIN(requested_at) AS requested FROM run WHERE {IS_FULL_RUN}"


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
    """``Hold.to_wire()`` of each hold."""

    @property
    def deletes(self) -> int:
        """The number of held deletes."""
        return total(self.counts, ItemStatus.HELD)


@dataclass(frozen=True, slots=True)
class FailedRun:
    """The last full run, if it or all of its items failed. Times are epoch milliseconds."""

    run_id: str
    error: str
    since: int
    """When the first run of the current series of failures ended."""
    items: int = 0
    """The number of failed items if all items of the run failed. 0 if the run itself failed."""


def held_runs(connection: Connection, now_ms: int) -> list[HeldRun]:
    """The runs with deletes held now: at most one full run, and narrower ones since."""
    return [
        HeldRun(
            run_id=row.run_id,
            requested_at=row.requested_at,
            finished_at=row.finished_at,
            held_until=row.held_until,
            counts=json.loads(row.counts),
            holds=tuple(_holds(row.report)),
        )
        for row in run(connection, _HELD, {"now": now_ms})
    ]


def superseded_by(connection: Connection, held: Run) -> str | None:
    """The id of the newest full run after this held run. None if the deletes of this one are still held."""
    finished_at = 0 if held.finished_at is None else epoch_ms(held.finished_at)
    run_id: str | None = run(connection, _SUPERSEDED_BY, {"finished_at": finished_at}).scalar()
    return run_id


def last_ended(connection: Connection) -> Run | None:
    """The last full run that has started and ended."""
    row = run(connection, _LAST_ENDED).first()
    return None if row is None else run_from(row_of(connection, row.run_id))


def is_applying(connection: Connection) -> bool:
    """Whether a run changes the backend now, or will because it is approved."""
    return run(connection, _APPLYING).first() is not None


def applied_by(connection: Connection, plan_id: str) -> Run | None:
    """The run that applied or will apply this stored plan. None if there is none."""
    row = run(connection, _APPLIED_BY, {"plan_id": plan_id}).first()
    return None if row is None else run_from(row_of(connection, row.run_id))


def spent_plans(connection: Connection, plan_ids: Sequence[str]) -> dict[str, str]:
    """Plan id → ``applied`` or ``outdated``, of the plans that cannot be applied any more."""
    rows = run(connection, _SPENT_PLANS, {"plan_ids": json_list(plan_ids)}) if plan_ids else ()
    return {row.plan_id: row.state for row in rows if row.state}


def failed_run(connection: Connection, now_ms: int) -> FailedRun | None:
    """The last full run, if it or all of its items failed. A cancelled run is not a failure.

    Two kinds of runs are ignored: those that tried nothing, because all failed items wait for their retry, and
    interrupted ones that another run continues.
    """
    failure: FailedRun | None = None
    parameters = {"continued_until": now_ms - _CONTINUED_WITHIN}
    for row in run(connection, _LAST, parameters):
        if row.status not in {RunStatus.FAILED, RunStatus.PARTIAL}:
            break
        failed = 0
        if row.status == RunStatus.PARTIAL:
            counts = json.loads(row.counts)
            failed = total(counts, ItemStatus.FAILED)
            if total(counts, ItemStatus.DONE):
                break
            if not failed:
                continue
        if failure is None:
            failure = FailedRun(run_id=row.run_id, error=row.error or "", since=row.finished_at, items=failed)
        failure = replace(failure, since=row.finished_at)
    return failure


def last_began(connection: Connection) -> int | None:
    """When a full run last started, or else when the first was requested, in epoch milliseconds."""
    row = run(connection, _LAST_BEGAN).one()
    began_ms: int | None = row.requested if row.began is None else row.began
    return began_ms


def waiting_runs(connection: Connection) -> tuple[int, int | None]:
    """The number of queued runs and the time of the oldest request, in epoch milliseconds. (0, None) during a run."""
    row = run(connection, _WAITING).one()
    return (0, None) if row.running else (row.waiting, row.since)


def _holds(report: str) -> Iterator[Mapping[str, object]]:
    held = json.loads(report).get("held")
    yield from held if isinstance(held, list) else ()
