"""The overview: concerns, the state of directory and backend, charts, and recent runs."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from flask import Response
from sqlalchemy import Connection

from app.access.browse.sizes import organization_sizes
from app.access.contents import SourceState, source_states
from app.access.records import Organization
from app.foundation.clock import epoch_ms
from app.foundation.text import counted
from app.monitoring.activity import ALIVE_FOR, activity_since, nodes
from app.monitoring.notify.concerns import Cause, Concern
from app.service.console.console import COUNT_LIMIT, Console
from app.service.console.formatting import duration
from app.service.console.names import mentions_of_runs, read_names
from app.service.console.recap import since_yesterday
from app.service.console.runs import shown_status
from app.service.console.urls import query
from app.service.console.views import VIEWS
from app.sync.ledger.failure_lists import FailureCount, SameFailures, count_failures, failure_groups
from app.sync.ledger.failures import PARKED_AFTER
from app.sync.ledger.ledger import last_verify, ledger_in_use
from app.sync.runs.history import recent_runs
from app.sync.runs.run import Run, RunStatus
from app.sync.runs.status import HeldRun, held_runs, is_applying, last_ended

_UNREADABLE = "unreadable"
"""The cause of a source that fails. Others of ``Cause.SOURCE`` are less urgent."""
_WORST_FIRST = (
    Cause.WORKER,
    Cause.FAILED,
    # Before held deletes, because records that have moved to this source look deleted.
    _UNREADABLE,
    Cause.HELD,
    Cause.MISSED,
    Cause.SHRUNK,
    Cause.PARKED,
    Cause.FAILING,
    Cause.SOURCE,
    Cause.AMBIGUOUS,
    Cause.DISABLING,
)
_NO_WORKER = "no worker"
"""The cause of the notice that no worker has been seen yet."""
_BARS = 96
_MIN_BARS = 2
"""Runs with items from which on the chart *Items per run* is drawn."""
_RECENT = 10
_CHARTED = (RunStatus.DONE, RunStatus.PARTIAL, RunStatus.HELD, RunStatus.FAILED, RunStatus.CANCELLED)
"""The statuses of runs in the chart *Items per run*."""
_ORGANIZATIONS = 6
_CAUSES = 2
"""The causes that the notice of failing items names."""
_DRIFT = frozenset({"missing", "changed"})
_ACTIVITY = timedelta(hours=24)


@VIEWS.get("overview")
def overview(console: Console) -> Response:
    query()
    parts, now = console.parts, console.parts.clock()
    with console.reading() as connection:
        runs = recent_runs(connection, _RECENT)
        charted = recent_runs(connection, _BARS, statuses=_CHARTED, previews=False)
        held = held_runs(connection, epoch_ms(now))
        last = last_ended(connection)
        concerns = parts.find_concerns(connection, now)
        sources = source_states(connection)
        alive = nodes(connection, now=epoch_ms(now))
        ledger_id = ledger_in_use(connection)
        failures = [] if ledger_id is None else count_failures(connection, ledger_id, limit=COUNT_LIMIT + 1)
        organizations = [str(hold.get("organizationId") or "") for run in held for hold in run.holds]
        mentions = [(Organization.kind, "", each) for each in organizations]
        context: dict[str, Any] = {
            **_verified(connection),
            "backend": _backend_state(connection, last, held, failures),
            "recent": since_yesterday(connection, now, held, failures),
            "activity": _activity(connection, now),
            "alive": alive,
            "names": read_names(connection, [*mentions_of_runs(runs), *mentions]),
            "causes": {} if ledger_id is None else _failure_causes(connection, ledger_id),
            "organizations": organization_sizes(connection, limit=_ORGANIZATIONS + 1),
            "sources": sources,
            "source_of": {state.name: state for state in sources},
            "held": held,
            "held_until": min((run.held_until for run in held if run.held_until), default=None),
        }
    held_ids = {run.run_id for run in held}
    index = None if parts.index_state is None else parts.index_state()
    due = parts.due_after(now)
    is_queued = any(run.status is RunStatus.QUEUED for run in runs)
    has_worker = any(node.role == "worker" for node in alive)
    # Before the first run ends, the first steps include the worker. Without a schedule and without queued runs no
    # worker is needed.
    lacks_worker = not has_worker and (is_queued or (due is not None and last is not None))
    return console.show(
        "overview.html",
        runs=[(run, shown_status(run, held_ids, now)) for run in runs],
        last=last,
        notices=_notices(concerns, context["source_of"], lacks_worker=lacks_worker),
        count_limit=COUNT_LIMIT,
        parked_after=PARKED_AFTER,
        has_worker=has_worker,
        is_queued=is_queued,
        due=due,
        interval=_interval(parts.due_after, due),
        next_is_verify=due is not None and due == parts.verify_due_after(now),
        only_verifies=due is not None and parts.due_after(due) == parts.verify_due_after(due),
        index=index,
        index_age=duration(index.staleness) if index is not None and index.is_used else "",
        organizations_shown=_ORGANIZATIONS,
        charted=charted[::-1] if sum(run.total("planned") > 0 for run in charted) >= _MIN_BARS else [],
        steps=None
        if last
        else _steps(console, has_read=any(state.last_good_at for state in sources), has_worker=has_worker),
        alive_for=ALIVE_FOR.total_seconds(),
        **context,
    )


def _notices(
    concerns: Sequence[Concern], sources: Mapping[str, SourceState], *, lacks_worker: bool
) -> list[tuple[str, Concern | None]]:
    """Cause and concern of each notice, the worst first. That a worker has never been seen is no concern."""
    ranked = sorted(concerns, key=lambda concern: _rank(concern, sources))
    has_died = any(concern.cause is Cause.WORKER for concern in concerns)
    missing: list[tuple[str, Concern | None]] = [(_NO_WORKER, None)] if lacks_worker and not has_died else []
    return [*missing, *((concern.cause, concern) for concern in ranked)]


def _failure_causes(connection: Connection, ledger_id: int) -> dict[str, Sequence[SameFailures]]:
    return {
        cause: failure_groups(connection, ledger_id, parked=cause is Cause.PARKED, limit=_CAUSES, most=COUNT_LIMIT)
        for cause in (Cause.PARKED, Cause.FAILING)
    }


def _rank(concern: Concern, sources: Mapping[str, SourceState]) -> int:
    """The rank of a concern. Those with the worst consequence and the nearest deadline come first."""
    source = sources.get(concern.about)
    fails = source is not None and source.is_configured and source.last_verdict == "failed"
    return _WORST_FIRST.index(_UNREADABLE if concern.cause is Cause.SOURCE and fails else concern.cause)


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


def _backend_state(
    connection: Connection, last: Run | None, held: Sequence[HeldRun], failures: Sequence[FailureCount]
) -> tuple[str, list[str]]:
    """A key of the template's words for the last full run, and with ``step`` the items that are not in step."""
    if is_applying(connection):
        return "changing", []
    if last is None:
        return "never", []
    if last.status is RunStatus.FAILED:
        return "interrupted" if last.continued_by else "failed", []
    if last.status is RunStatus.CANCELLED and last.held_until is None:
        return "cancelled", []
    deletes, failing = sum(run.deletes for run in held), sum(row.items for row in failures)
    waiting = [f"{counted(deletes, 'delete')} held"] if deletes else []
    return "step", [*waiting, f"{counted(failing, 'item')} failing"] if failing else waiting


def _interval(due_after: Callable[[datetime], datetime | None], due: datetime | None) -> str:
    """The interval of the schedule, if the next runs have the same interval."""
    second = None if due is None else due_after(due)
    third = None if second is None else due_after(second)
    if due is None or second is None or third is None or second - due != third - second:
        return ""
    return f"every {duration((second - due).total_seconds())}"


def _activity(connection: Connection, now: datetime) -> dict[str, Any] | None:
    """The figures of the last day's charts. None: there were no requests in two intervals or more."""
    intervals = activity_since(connection, since=epoch_ms(now - _ACTIVITY), now=epoch_ms(now))
    if sum(interval.p99 is not None for interval in intervals) < 2:
        return None
    return {
        "since": intervals[0].begins_at,
        "rates": [interval.requests_per_minute for interval in intervals],
        "denied_rates": [interval.denied_per_minute for interval in intervals],
        "total": sum(interval.allowed + interval.denied + interval.errors for interval in intervals),
        "denied": sum(interval.denied for interval in intervals),
        "latencies": [interval.p99 for interval in intervals],
        "known": [interval.p99 for interval in intervals if interval.p99 is not None],
        "silent": 60.0 * sum(interval.minutes for interval in intervals if interval.p99 is None),
    }
