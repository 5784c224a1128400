"""The list of runs with its filters, and what has happened since yesterday."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from flask import Response
from sqlalchemy import Connection
from werkzeug.exceptions import NotFound

from app.foundation.clock import epoch_ms
from app.foundation.ids import may_be_stored
from app.service.console.console import COUNT_LIMIT, Console
from app.service.console.names import mentions_of_runs, read_names
from app.service.console.paging import PAGE_ROWS
from app.service.console.run_changes import ACTIONS
from app.service.console.run_reads import losses
from app.service.console.runs import RUN_ID, held_now, shown_status
from app.service.console.urls import one_of, query
from app.service.console.views import VIEWS
from app.sync.ledger.failure_lists import FailureCount, count_failures
from app.sync.ledger.items import ITEM_KINDS
from app.sync.ledger.ledger import ledger_in_use
from app.sync.runs.history import AUTOMATIC, RUN_KINDS, Recap, askers, recap, recent_runs
from app.sync.runs.run import RUNNING, Run, RunStatus
from app.sync.runs.status import HeldRun, held_runs

STATUSES = tuple(status.value for status in RunStatus)
PERIODS = ("day", "yesterday", "week", "month")
_FILTERS = ("kind", "status", "by", "period", "busy")
_SHOWN = 3
"""The failed runs, and the waiting runs, that the recap names."""


@VIEWS.get("runs")
def runs(console: Console) -> Response:
    filters = query(*_FILTERS, "before")
    before = filters.pop("before")
    one_of(filters["kind"], RUN_KINDS, "kind")
    one_of(filters["status"], STATUSES, "status")
    one_of(filters["period"], PERIODS, "period")
    one_of(filters["busy"], ("1",), "busy")
    if not may_be_stored(filters["by"]):
        raise NotFound("Nobody has this name")
    if before and not RUN_ID.fullmatch(before):
        raise NotFound("This is not a position in the list of runs; start from its first page")
    now = console.parts.clock()
    is_first_page = not before and not any(filters.values())
    with console.reading() as connection:
        runs = recent_runs(
            connection,
            PAGE_ROWS + 1,
            before or None,
            statuses=(filters["status"],) if filters["status"] else (),
            kind=filters["kind"] or None,
            asked_by=filters["by"] or None,
            since=_begin_of(filters["period"], now),
            idle=not filters["busy"],
        )
        held = held_now(connection, now)
        recent = _since_yesterday(connection, now, runs) if is_first_page and runs else None
        names = read_names(connection, mentions_of_runs(runs))
        by = askers(connection)
    return console.show(
        "runs.html",
        runs=[(run, shown_status(run, held, now)) for run in runs[:PAGE_ROWS]],
        next_before=runs[PAGE_ROWS - 1].run_id if len(runs) > PAGE_ROWS else "",
        filters=filters,
        kinds=RUN_KINDS,
        statuses=STATUSES,
        automatic=tuple(AUTOMATIC),
        askers=by,
        names=names,
        is_filtered=any(filters.values()),
        recent=recent,
        is_first=not before,
    )


def _begin_of(period: str, now: datetime) -> datetime | None:
    match period:
        case "day":
            return now - timedelta(days=1)
        case "yesterday":
            return _yesterday(now)
        case "week":
            return now - timedelta(days=7)
        case "month":
            return now - timedelta(days=30)
    return None


def _yesterday(now: datetime) -> datetime:
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


def _since_yesterday(connection: Connection, now: datetime, runs: Sequence[Run]) -> Recent:
    since = _yesterday(now)
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
            for run in runs
            if run.requested_at >= since and not run.dry_run and "held" in run.report and losses(run)
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
