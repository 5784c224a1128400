"""How do things stand now: what is held, did the last run fail, when did one last begin?

Every run that finds the same deletes over the limits holds them anew, and the earlier ones can still be approved:
somebody may have been told of those. What is held *now* is what the last run of everything held, and what narrower runs
have held since.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from app.store.statements import run

EVERYTHING = "NOT dry_run AND organization_ids = '[]' AND user_ids = '[]'"
"""The condition on ``run`` that it was to bring all of the backend in step."""

# A run whose held deletes were discarded has settled them as well as one that applied them.
_SETTLED = "(status IN ('done', 'partial', 'held') OR (status = 'cancelled' AND held_until IS NOT NULL))"

_HELD = """
SELECT run_id, finished_at, held_until, counts, report FROM run
WHERE status = 'held' AND (held_until IS NULL OR held_until >= :now) AND finished_at >= (
  SELECT COALESCE(MAX(finished_at), 0) FROM run WHERE finished_at IS NOT NULL AND {everything} AND {settled})
ORDER BY finished_at, run_id
"""

_LAST = """
SELECT run_id, status, error, finished_at FROM run
WHERE finished_at IS NOT NULL AND {everything} AND status IN ('done', 'partial', 'held', 'failed')
ORDER BY finished_at DESC, run_id DESC LIMIT 1
"""

_FAILING_SINCE = """
SELECT MIN(finished_at) FROM run
WHERE status = 'failed' AND finished_at IS NOT NULL AND {everything} AND finished_at > (
  SELECT COALESCE(MAX(finished_at), 0) FROM run
  WHERE finished_at IS NOT NULL AND {everything} AND status IN ('done', 'partial', 'held'))
"""

_LAST_BEGAN = "SELECT MAX(started_at) AS began, MIN(requested_at) AS asked FROM run WHERE {everything}"


@dataclass(frozen=True, slots=True)
class HeldRun:
    """A run whose held deletes still wait for someone's word. Times are epoch milliseconds."""

    run_id: str
    finished_at: int
    held_until: int | None
    counts: Mapping[str, Mapping[str, Mapping[str, int]]]
    holds: tuple[Mapping[str, object], ...]
    """The numbers behind each hold: kind, organizationId, deletes, ledger, reason."""

    @property
    def deletes(self) -> int:
        """How many are held."""
        return sum(numbers.get("held", 0) for actions in self.counts.values() for numbers in actions.values())


@dataclass(frozen=True, slots=True)
class FailedRun:
    """The last run, which failed. Times are epoch milliseconds."""

    run_id: str
    error: str
    since: int
    """When the first of the runs ended that have failed one after the other."""


def held_runs(connection: Connection, now_ms: int) -> list[HeldRun]:
    """What is held now, one run of everything at most, and narrower ones since."""
    return [
        HeldRun(
            run_id=row.run_id,
            finished_at=row.finished_at,
            held_until=row.held_until,
            counts=json.loads(row.counts),
            holds=tuple(_holds(row.report)),
        )
        for row in run(connection, _HELD, {"now": now_ms}, everything=EVERYTHING, settled=_SETTLED)
    ]


def failed_run(connection: Connection) -> FailedRun | None:
    """The last run of everything, if it failed; one that was cancelled is no failure."""
    last = run(connection, _LAST, {}, everything=EVERYTHING).first()
    if last is None or last.status != "failed":
        return None
    since = run(connection, _FAILING_SINCE, {}, everything=EVERYTHING).scalar()
    return FailedRun(run_id=last.run_id, error=last.error or "", since=since or last.finished_at)


def last_began(connection: Connection) -> int | None:
    """When a run of everything last began, in epoch milliseconds; where none ever did, when the first was asked for."""
    row = run(connection, _LAST_BEGAN, {}, everything=EVERYTHING).one()
    found: int | None = row.asked if row.began is None else row.began
    return found


def _holds(report: str) -> Iterator[Mapping[str, object]]:
    held = json.loads(report).get("held")
    yield from held if isinstance(held, list) else ()
