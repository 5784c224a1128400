"""The overview: concerns, the state of directory and backend, charts, and recent runs."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from flask import Response
from sqlalchemy import Connection

from app.access.browse.sizes import organization_sizes
from app.access.contents import oldest_good_read, source_states
from app.access.revisions import current_revision
from app.foundation.clock import epoch_ms
from app.monitoring.activity import ALIVE_FOR, Interval, activity_since, nodes
from app.monitoring.notify.concerns import Cause, Concern
from app.service.console.charts import Bar, line_chart
from app.service.console.console import COUNT_LIMIT, Console, query
from app.service.console.formatting import TONES, clock_time, counted, duration, percent
from app.service.console.pages.run import held_now, shown_status
from app.service.console.views import VIEWS
from app.sync.ledger.failures import PARKED_AFTER, count_failures
from app.sync.ledger.ledger import last_verify, ledger_in_use
from app.sync.runs.history import recent_runs
from app.sync.runs.run import Run, RunStatus
from app.sync.runs.status import held_runs, is_applying, last_ended

_WORST_FIRST = (
    Cause.WORKER,
    Cause.FAILED,
    Cause.PARKED,
    Cause.HELD,
    Cause.SHRUNK,
    Cause.SOURCE,
    Cause.FAILING,
    Cause.MISSED,
    Cause.AMBIGUOUS,
    Cause.DISABLING,
)
_NO_WORKER = "no worker"
"""The cause of the notice that no worker has been seen yet."""
_BARS = 96
_MIN_BARS = 2
"""Runs with items from which on the chart *Items per run* is drawn."""
_RECENT = 10
_CHARTED = (RunStatus.DONE, RunStatus.PARTIAL, RunStatus.HELD, RunStatus.FAILED)
"""The statuses of runs in the chart *Items per run*."""
_ORGANIZATIONS = 12
_DRIFT = frozenset({"missing", "changed"})
_ACTIVITY = timedelta(hours=24)


@VIEWS.get("overview")
def overview(console: Console) -> Response:
    query()
    parts, now = console.parts, console.parts.clock()
    with console.reading() as connection:
        runs = recent_runs(connection, _RECENT)
        charted = recent_runs(connection, _BARS, statuses=_CHARTED, previews=False)
        held = held_now(connection, now)
        last = last_ended(connection)
        concerns = parts.find_concerns(connection, now)
        sources = source_states(connection)
        read_at = oldest_good_read([state for state in sources if state.is_configured])
        alive = nodes(connection, now=epoch_ms(now))
        context: dict[str, Any] = {
            "read_at": read_at,
            "revision": current_revision(connection),
            **_verified(connection),
            "backend_state": _backend_state(connection, last, now),
            "charts": _activity_charts(connection, now),
            "processes": _processes([(node.role, node.version) for node in alive]),
            "organizations": organization_sizes(connection, limit=_ORGANIZATIONS),
            "sources": sources,
            "source_of": {state.name: state for state in sources},
        }
    index = None if parts.index_state is None else parts.index_state()
    due = parts.due_after(now)
    is_queued = any(run.status is RunStatus.QUEUED for run in runs)
    has_worker = any(node.role == "worker" for node in alive)
    notices: list[tuple[str, Concern | None]] = [
        (concern.cause, concern) for concern in sorted(concerns, key=lambda one: _WORST_FIRST.index(one.cause))
    ]
    died = any(cause == Cause.WORKER for cause, _ in notices)
    # A dead worker is a concern already. Without a schedule and without queued runs no worker is needed.
    if not has_worker and not died and (is_queued or due is not None):
        notices.insert(0, (_NO_WORKER, None))
    sizes = [run.total("planned") for run in charted]
    return console.show(
        "overview.html",
        runs=[(run, shown_status(run, held, now)) for run in runs],
        last=last,
        notices=notices,
        count_limit=COUNT_LIMIT,
        parked_after=PARKED_AFTER,
        has_worker=has_worker,
        is_queued=is_queued,
        due=due,
        interval=_interval(parts.due_after, due),
        index=index,
        index_age=duration(index.staleness) if index is not None and index.is_used else "",
        bars=[_bar(run, now) for run in reversed(charted)] if sum(map(bool, sizes)) >= _MIN_BARS else [],
        sizes=sizes,
        steps=None if last else _steps(console, has_read=read_at is not None, has_worker=has_worker),
        since=charted[-1].requested_at if charted else None,
        **context,
    )


def _steps(console: Console, *, has_read: bool, has_worker: bool) -> dict[str, bool]:
    """The steps of a new installation, and whether each is done."""
    keys = [key for key, value, _ in console.parts.settings_rows() if value not in {"", "[]"}]
    return {
        "source": has_read or any(key.startswith("directory.sources") for key in keys),
        "read": has_read,
        "worker": has_worker,
        "backend": console.parts.ask_backend is not None,
    }


def _verified(connection: Connection) -> dict[str, object]:
    ledger_id = ledger_in_use(connection)
    last = None if ledger_id is None else last_verify(connection, ledger_id)
    if last is None:
        return {"verified_at": None, "drifted": 0}
    drifted = sum(number for finding, number in last.findings.items() if finding in _DRIFT)
    return {"verified_at": last.at, "drifted": drifted}


def _backend_state(connection: Connection, last: Run | None, now: datetime) -> str:
    """The state of the backend in words: the last full run, and the held, parked and failing items."""
    if is_applying(connection):
        return "a run is changing it"
    if last is None:
        return "never synced"
    if last.status is RunStatus.FAILED:
        return "the last run was interrupted; another continues it" if last.continued_by else "the last run failed"
    if last.status is RunStatus.CANCELLED and last.held_until is None:
        return "the last run was cancelled"
    ledger_id = ledger_in_use(connection)
    failing = [] if ledger_id is None else count_failures(connection, ledger_id, limit=COUNT_LIMIT + 1)
    numbers = {
        "held": sum(run.deletes for run in held_runs(connection, epoch_ms(now))),
        "parked": sum(row.items for row in failing if row.parked),
        "failing": sum(row.items for row in failing if not row.parked),
    }
    exceptions = [f"{_limited(number)} {state}" for state, number in numbers.items() if number]
    return f"in step except {' and '.join(exceptions)}" if exceptions else "in step"


def _limited(number: int) -> str:
    return f"more than {COUNT_LIMIT:,}" if number > COUNT_LIMIT else f"{number:,}"


def _interval(due_after: Callable[[datetime], datetime | None], due: datetime | None) -> str:
    """The interval of the schedule, if the next runs have the same interval."""
    second = None if due is None else due_after(due)
    third = None if second is None else due_after(second)
    if due is None or second is None or third is None or second - due != third - second:
        return ""
    return f"every {duration((second - due).total_seconds())}"


def _bar(run: Run, now: datetime) -> Bar:
    items = run.total("planned")
    title = f"{clock_time(run.requested_at, now)} UTC, {run.status.value}: {counted(items, 'item')}"
    return Bar(items, TONES.get(run.status.value, "idle"), title)


def _processes(alive: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """The number of services and workers, and a remark. ``alive``: role and version of each."""
    services = sum(role == "service" for role, _ in alive)
    workers = len(alive) - services
    shown = f"{counted(services, 'service')}, {counted(workers, 'worker')}" if alive else "none seen"
    versions = sorted({version for _, version in alive})
    if len(versions) > 1:
        return shown, f"of versions {' and '.join(versions)}"
    if alive and not workers:
        return shown, "no worker is running"
    return shown, f"{'all seen' if alive else 'no heartbeat'} within {ALIVE_FOR.total_seconds():.0f} s"


def _activity_charts(connection: Connection, now: datetime) -> list[dict[str, Any]]:
    """The charts of the last day's activity. There are none without requests in two intervals or more."""
    intervals = activity_since(connection, since=epoch_ms(now - _ACTIVITY), now=epoch_ms(now))
    if sum(interval.p99 is not None for interval in intervals) < 2:
        return []
    return [_requests_chart(intervals), _latency_chart(intervals)]


def _requests_chart(intervals: Sequence[Interval]) -> dict[str, Any]:
    values = [interval.requests_per_minute for interval in intervals]
    total = sum(interval.allowed + interval.denied + interval.errors for interval in intervals)
    denied = sum(interval.denied for interval in intervals)
    label = (
        f"permission requests per minute: lowest {_rate(min(values))}, highest {_rate(max(values))}, last"
        f" {_rate(values[-1])}; {percent(denied, total)} of all were denied"
    )
    return {
        "title": "Permission requests per minute",
        "figure": _rate(values[-1]),
        "remark": f"{percent(denied, total)} of all denied",
        "svg": line_chart(values, label, denied=[interval.denied_per_minute for interval in intervals]),
        "since": intervals[0].begins_at,
        "peak": _rate(max(values)),
    }


def _latency_chart(intervals: Sequence[Interval]) -> dict[str, Any]:
    known = [interval.p99 for interval in intervals if interval.p99 is not None]
    silent = 60.0 * sum(interval.minutes for interval in intervals if interval.p99 is None)
    label = (
        f"latency of permission calls, 99th percentile: lowest {_time(min(known))}, highest {_time(max(known))},"
        f" last {_time(known[-1])}"
    )
    if silent:
        label += f"; gaps without requests, {duration(silent)} in total"
    remark = "99 of 100 took no longer" if intervals[-1].p99 is not None else "at the last request"
    return {
        "title": "Latency (p99)",
        "figure": _time(known[-1]),
        "remark": remark,
        "svg": line_chart([interval.p99 for interval in intervals], label),
        "since": intervals[0].begins_at,
        "peak": _time(max(known)),
    }


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
