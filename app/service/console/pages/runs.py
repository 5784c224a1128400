"""The list of runs with its filters."""

from datetime import datetime, timedelta

from flask import Response
from werkzeug.exceptions import NotFound

from app.foundation.ids import may_be_stored
from app.service.console.console import Console
from app.service.console.names import mentions_of_runs, read_names
from app.service.console.paging import PAGE_ROWS
from app.service.console.recap import yesterday
from app.service.console.runs import RUN_ID, with_status
from app.service.console.urls import one_of, query
from app.service.console.views import VIEWS
from app.sync.runs.history import AUTOMATIC, RUN_KINDS, askers, recent_runs
from app.sync.runs.run import RunStatus

STATUSES = tuple(status.value for status in RunStatus)
PERIODS = ("day", "yesterday", "week", "month")
_FILTERS = ("kind", "status", "by", "period", "busy")


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
        shown = with_status(connection, runs[:PAGE_ROWS], now)
        names = read_names(connection, mentions_of_runs(runs))
        by = askers(connection)
    return console.show(
        "runs.html",
        runs=shown,
        next_before=runs[PAGE_ROWS - 1].run_id if len(runs) > PAGE_ROWS else "",
        filters=filters,
        kinds=RUN_KINDS,
        statuses=STATUSES,
        automatic=tuple(AUTOMATIC),
        askers=by,
        names=names,
        is_filtered=any(filters.values()),
        is_first=not before,
    )


def _begin_of(period: str, now: datetime) -> datetime | None:
    match period:
        case "day":
            return now - timedelta(days=1)
        case "yesterday":
            return yesterday(now)
        case "week":
            return now - timedelta(days=7)
        case "month":
            return now - timedelta(days=30)
    return None
