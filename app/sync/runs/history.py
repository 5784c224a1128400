"""Lists past runs, and sums up what they did since a time."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

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


def find_runs(connection: Connection, run_ids: Sequence[str]) -> dict[str, Run]:
    """The runs that have one of these ids, by id."""
    rows = connection.execute(select(RUN).where(RUN.c.run_id.in_(run_ids)))
    return {row.run_id: run_from(row) for row in rows}


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


class ItemGroup(NamedTuple):
    """Items of one kind, action and status."""

    kind: str
    action: str
    status: str


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
    items: Mapping[ItemGroup, int]
    """The number of items, without previews."""
    is_cut: bool
    """Whether it contains ``MAX_RECAPPED`` runs, so that there may be more."""

    def total(self, status: str) -> int:
        """The number of items with this status."""
        return sum(number for group, number in self.items.items() if group.status == status)

    def done(self) -> dict[str, dict[str, int]]:
        """Kind → action → the number of items that were changed."""
        changed: dict[str, dict[str, int]] = {}
        for group, number in self.items.items():
            if group.status == ItemStatus.DONE:
                changed.setdefault(group.kind, {})[group.action] = number
        return changed


def recap(connection: Connection, since: datetime) -> Recap:
    """What the runs since then did. One statement, in which runs that are alike are one row."""
    rows = run(connection, _SINCE, {"since": epoch_ms(since), "limit": MAX_RECAPPED}).all()
    synced = [row for row in rows if not row.dry_run]
    items: Counter[ItemGroup] = Counter()
    busy = 0
    for row in synced:
        numbers = _by_group(json.loads(row.counts))
        busy += row.runs if any(group.status == ItemStatus.DONE for group in numbers) else 0
        items += Counter({group: number * row.runs for group, number in numbers.items()})
    return Recap(
        runs=sum(row.runs for row in synced),
        busy=busy,
        previews=sum(row.runs for row in rows if row.dry_run),
        failed=sum(row.runs for row in synced if row.status == RunStatus.FAILED),
        items=items,
        is_cut=sum(row.runs for row in rows) >= MAX_RECAPPED,
    )


def _by_group(counts: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Mapping[ItemGroup, int]:
    return {
        ItemGroup(kind, action, status): number
        for kind, actions in counts.items()
        for action, numbers in actions.items()
        for status, number in numbers.items()
    }
