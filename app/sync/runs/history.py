"""The list of past runs with its filters, and what happened in them since a time."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, select

from app.foundation.clock import epoch_ms
from app.foundation.database.statements import run
from app.sync.ledger.items import ItemStatus
from app.sync.runs.queue import CHANGES, CONTINUATION
from app.sync.runs.run import RUN, Run, RunStatus, run_from

RUN_KINDS = ("sync", "preview", "verify", "changes", "retry")
"""A sync, a dry run, a sync that reads the backend first, a sync of the changes between two syncs, and a retry of
failed items."""

AUTOMATIC = {"schedule": ("schedule", "verify_schedule"), "changes": (CHANGES,), "continuation": (CONTINUATION,)}
"""Reason → the triggers of runs that nobody requested."""

MAX_RECAPPED = 1_000
"""The most runs that a recap contains: the latest."""
_MAX_ASKERS = 50


def kind_of(run: Run) -> str:
    """One of ``RUN_KINDS``."""
    if run.dry_run:
        return "preview"
    if run.trigger == CHANGES:
        return "changes"
    if run.retry:
        return "retry"
    return "verify" if run.verify else "sync"


_IS_SYNC = ~RUN.c.dry_run & (RUN.c.trigger != CHANGES)
_IS_KIND: Mapping[str, ColumnElement[bool]] = {
    "preview": RUN.c.dry_run,
    "changes": and_(~RUN.c.dry_run, RUN.c.trigger == CHANGES),
    "retry": _IS_SYNC & RUN.c.retry,
    "verify": _IS_SYNC & ~RUN.c.retry & RUN.c.verify,
    "sync": _IS_SYNC & ~RUN.c.retry & ~RUN.c.verify,
}


def recent_runs(
    connection: Connection,
    limit: int,
    before: str | None = None,
    *,
    statuses: Sequence[str] = (),
    kind: str | None = None,
    asked_by: str | None = None,
    since: datetime | None = None,
    previews: bool = True,
    idle: bool = True,
) -> list[Run]:
    """The latest runs, newest first.

    ``before``: the id of a run, for older ones. ``kind``: one of ``RUN_KINDS``. ``asked_by``: the name of an operator,
    or a key of ``AUTOMATIC``. ``previews``: whether dry runs are included. ``idle``: whether runs without items are.
    """
    query = select(RUN).order_by(RUN.c.run_id.desc()).limit(limit)
    if before is not None:
        query = query.where(RUN.c.run_id < before)
    if statuses:
        query = query.where(RUN.c.status.in_(statuses))
    if kind is not None:
        query = query.where(_IS_KIND[kind])
    if asked_by in AUTOMATIC:
        query = query.where(RUN.c.asked_by.is_(None), RUN.c.trigger.in_(AUTOMATIC[asked_by]))
    elif asked_by is not None:
        query = query.where(RUN.c.asked_by == asked_by)
    if since is not None:
        query = query.where(RUN.c.requested_at >= epoch_ms(since))
    if not previews:
        query = query.where(~RUN.c.dry_run)
    if not idle:
        # A run that failed early or still waits is not idle.
        query = query.where((RUN.c.counts != "{}") | RUN.c.error.is_not(None) | RUN.c.finished_at.is_(None))
    return [run_from(row) for row in connection.execute(query)]


def askers(connection: Connection) -> list[str]:
    """The names of those who requested runs, in alphabetical order."""
    query = select(RUN.c.asked_by).where(RUN.c.asked_by.is_not(None)).distinct().order_by(RUN.c.asked_by)
    return [str(name) for name in connection.execute(query.limit(_MAX_ASKERS)).scalars()]


_SINCE = """
SELECT dry_run, status, counts, COUNT(*) AS runs FROM (
  SELECT dry_run, status, counts FROM run WHERE requested_at >= :since AND finished_at IS NOT NULL
  ORDER BY requested_at DESC LIMIT :limit
) AS latest GROUP BY dry_run, status, counts
"""


@dataclass(frozen=True, slots=True)
class Recap:
    """The sums over the runs that were requested since a time, and have ended."""

    runs: int
    """Without previews."""
    busy: int
    """Those of them that changed something in the backend."""
    previews: int
    failed: int
    """Those that failed."""
    items: Mapping[tuple[str, str, str], int]
    """Kind, action and status of items → number, without previews."""
    is_cut: bool
    """Whether there are more than ``MAX_RECAPPED`` runs."""

    def total(self, status: str) -> int:
        """The number of items with this status."""
        return sum(number for (_, _, outcome), number in self.items.items() if outcome == status)

    def done(self) -> dict[str, dict[str, int]]:
        """Kind → action → the number of items that were changed."""
        changed: dict[str, dict[str, int]] = {}
        for (kind, action, status), number in self.items.items():
            if status == ItemStatus.DONE:
                changed.setdefault(kind, {})[action] = number
        return changed


def recap(connection: Connection, since: datetime) -> Recap:
    """What the runs since then did. One statement, in which runs that are alike are one row."""
    numbers: Counter[str] = Counter()
    items: Counter[tuple[str, str, str]] = Counter()
    rows = run(connection, _SINCE, {"since": epoch_ms(since), "limit": MAX_RECAPPED}).all()
    for dry_run, status, encoded, runs in rows:
        numbers["all"] += runs
        if dry_run:
            numbers["previews"] += runs
            continue
        numbers["runs"] += runs
        numbers["failed"] += runs if status == RunStatus.FAILED else 0
        items_of_runs = Counter({key: number * runs for key, number in _items(json.loads(encoded))})
        numbers["busy"] += runs if any(outcome == ItemStatus.DONE for _, _, outcome in items_of_runs) else 0
        items += items_of_runs
    return Recap(
        runs=numbers["runs"],
        busy=numbers["busy"],
        previews=numbers["previews"],
        failed=numbers["failed"],
        items=items,
        is_cut=numbers["all"] >= MAX_RECAPPED,
    )


def _items(counts: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Iterator[tuple[tuple[str, str, str], int]]:
    for kind, actions in counts.items():
        for action, outcomes in actions.items():
            for outcome, number in outcomes.items():
                yield (kind, action, outcome), number
