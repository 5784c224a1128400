"""The recap for operators: what has changed and failed since yesterday, and the runs that have not ended. The overview
shows it below the notices, which contain what waits for an operator."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection

from app.service.console.changed_entries import count_entries
from app.service.console.paging import PAGE_ROWS
from app.service.console.run_changes import ACTIONS
from app.service.console.run_reads import own_losses
from app.sync.ledger.items import ITEM_KINDS, USER_KINDS
from app.sync.runs.history import Recap, recap, recent_runs
from app.sync.runs.run import RUNNING, Run, RunStatus
from app.sync.runs.status import HeldRun

_SHOWN = 3
"""The failed runs, and the waiting runs, that the recap names."""


def yesterday(now: datetime) -> datetime:
    """The beginning of the day before, in UTC."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)


class RunEntries(NamedTuple):
    """The numbers of users' entries that a run removed and added."""

    run: Run
    removed: int
    added: int


class Recent(NamedTuple):
    """The content of the recap."""

    since: datetime
    recap: Recap
    events: Sequence[tuple[Run, Sequence[str]]]
    """Runs that held deletes because sources lost records, and what was lost."""
    entries: tuple[int, int]
    """The numbers of users' entries that were removed, and added."""
    entry_runs: Sequence[RunEntries]
    """The latest runs that removed or added entries. Those that removed most are first."""
    changed: Sequence[tuple[str, Sequence[tuple[str, int]]]]
    """Kind, and the number of items for each action."""
    failed: Sequence[Run]
    waiting: Sequence[Run]
    """Runs that are queued or in progress."""
    held: Sequence[HeldRun]


def since_yesterday(connection: Connection, now: datetime, held: Sequence[HeldRun]) -> Recent | None:
    """The recap. None: no run was ever requested. ``held``: the runs whose deletes are held now."""
    if not recent_runs(connection, 1):
        return None
    since = yesterday(now)
    recapped = recap(connection, since)
    changed = recapped.done()
    runs = recent_runs(connection, PAGE_ROWS, since=since, previews=False, idle=False)
    of_runs = [RunEntries(run, count_entries(run, "delete"), count_entries(run, "add")) for run in runs]
    return Recent(
        since=since,
        recap=recapped,
        events=[(run, lost) for run in runs if "held" in run.report and (lost := own_losses(connection, run))],
        entries=(_entries(changed, "delete"), _entries(changed, "add")),
        entry_runs=sorted((of for of in of_runs if of.removed or of.added), key=lambda of: (-of.removed, -of.added)),
        changed=[
            (kind, [(action, changed[kind].get(action, 0)) for action in ACTIONS])
            for kind in ITEM_KINDS
            if kind in changed
        ],
        failed=recent_runs(connection, _SHOWN, statuses=(RunStatus.FAILED,), since=since, previews=False),
        waiting=recent_runs(connection, _SHOWN, statuses=(RunStatus.QUEUED, *RUNNING)),
        held=held,
    )


def _entries(changed: Mapping[str, Mapping[str, int]], action: str) -> int:
    return sum(changed.get(kind, {}).get(action, 0) for kind in USER_KINDS)
