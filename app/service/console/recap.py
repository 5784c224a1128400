"""The recap for operators: what has changed, failed and waits since yesterday. The overview shows it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection

from app.foundation.clock import epoch_ms
from app.service.console.console import COUNT_LIMIT
from app.service.console.paging import PAGE_ROWS
from app.service.console.run_changes import ACTIONS
from app.service.console.run_reads import losses
from app.sync.ledger.failure_lists import FailureCount, count_failures
from app.sync.ledger.items import ITEM_KINDS
from app.sync.ledger.ledger import ledger_in_use
from app.sync.runs.history import Recap, recap, recent_runs
from app.sync.runs.run import RUNNING, Run, RunStatus
from app.sync.runs.status import HeldRun, held_runs

_SHOWN = 3
"""The failed runs, and the waiting runs, that the recap names."""


def yesterday(now: datetime) -> datetime:
    """The beginning of the day before, in UTC."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)


class Recent(NamedTuple):
    """What has changed, failed and waits since yesterday."""

    since: datetime
    recap: Recap
    events: Sequence[tuple[Run, Sequence[str]]]
    """Runs that held deletes because sources lost records, and what was lost."""
    changed: Sequence[tuple[str, Sequence[tuple[str, int]]]]
    """Kind, and the number of items for each action."""
    failed: Sequence[Run]
    waiting: Sequence[Run]
    """Runs that are queued or in progress."""
    held: Sequence[HeldRun]
    failing: dict[bool, int]
    """Whether items are parked → their number. Numbers above ``COUNT_LIMIT`` are not exact."""


def since_yesterday(connection: Connection, now: datetime) -> Recent | None:
    """The recap; None: no run was ever requested."""
    if not recent_runs(connection, 1):
        return None
    since = yesterday(now)
    recapped = recap(connection, since)
    changed: dict[str, Any] = recapped.done()
    ledger_id = ledger_in_use(connection)
    failing: Sequence[FailureCount] = ()
    if ledger_id is not None:
        failing = count_failures(connection, ledger_id, limit=COUNT_LIMIT + 1)
    return Recent(
        since=since,
        recap=recapped,
        events=[
            (run, losses(run))
            for run in recent_runs(connection, PAGE_ROWS, since=since, previews=False)
            if "held" in run.report and losses(run)
        ],
        changed=[
            (kind, [(action, changed[kind].get(action, 0)) for action in ACTIONS])
            for kind in ITEM_KINDS
            if kind in changed
        ],
        failed=recent_runs(connection, _SHOWN, statuses=(RunStatus.FAILED,), since=since, previews=False),
        waiting=recent_runs(connection, _SHOWN, statuses=(RunStatus.QUEUED, *RUNNING)),
        held=held_runs(connection, epoch_ms(now)),
        failing={parked: sum(row.items for row in failing if row.parked == parked) for parked in (True, False)},
    )
