"""The overview: concerns, the state of directory and backend, charts, and recent runs."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from flask import Response
from sqlalchemy import Connection

from app.access.browse.sizes import organization_sizes
from app.access.records import Organization
from app.access.source_states import SourceState, source_states
from app.directory.source import Verdict
from app.foundation.clock import epoch_ms
from app.foundation.text import counted
from app.monitoring.activity import ALIVE_FOR, activity_since, nodes
from app.monitoring.notify.concerns import Cause, Concern
from app.service.console.console import COUNT_LIMIT, Console, ConsoleParts
from app.service.console.formatting import duration
from app.service.console.names import mentions_of_runs, read_names
from app.service.console.recap import since_yesterday
from app.service.console.runs import with_status
from app.service.console.urls import query
from app.service.console.views import VIEWS
from app.sync.ledger.failure_lists import FailureCount, SameFailures, count_failures, failure_groups
from app.sync.ledger.failures import PARKED_AFTER
from app.sync.ledger.ledger import last_verify, ledger_in_use
from app.sync.runs.history import recent_runs
from app.sync.runs.run import Run, RunStatus
from app.sync.runs.status import HeldRun, held_runs, is_applying, last_ended


class _PageCause(StrEnum):
    """Causes of notices that only this page distinguishes."""

    NO_WORKER = "no worker"
    """No worker has been seen yet. It is no concern, because an installation may begin without one."""
    UNREADABLE = "unreadable"
    """A source fails. Others of ``Cause.SOURCE`` are less urgent."""


_WORST_FIRST: tuple[Cause | _PageCause, ...] = (
    Cause.WORKER,
    Cause.FAILED,
    # Before held deletes, because records that have moved to this source look deleted.
    _PageCause.UNREADABLE,
    Cause.HELD,
    Cause.MISSED,
    Cause.SHRUNK,
    Cause.PARKED,
    Cause.FAILING,
    Cause.SOURCE,
    Cause.AMBIGUOUS,
    Cause.DISABLING,
)
"""Those with the worst consequence and the nearest deadline come first."""
_RANKS = {cause: rank for rank, cause in enumerate(_WORST_FIRST)}
_RECENT = 10
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
        concerns = parts.find_concerns(connection, now)
        alive = nodes(connection, now=epoch_ms(now))
        runs, sources = _runs(connection, now), _sources(connection)
        activity = _activity(connection, now)
    schedule = _schedule(parts, now)
    has_worker = any(node.role == "worker" for node in alive)
    # Before the first run ends, the first steps include the worker. Without a schedule and without queued runs no
    # worker is needed.
    is_expected = runs["is_queued"] or (schedule["due"] is not None and runs["last"] is not None)
    # Parked items and those that are retried are one notice.
    retrying = next((one for one in concerns if one.cause is Cause.FAILING), None)
    if retrying is not None and any(one.cause is Cause.PARKED for one in concerns):
        concerns = [one for one in concerns if one is not retrying]
    return console.show(
        "overview.html",
        retrying=retrying,
        notices=_notices(concerns, sources["source_of"], lacks_worker=is_expected and not has_worker),
        count_limit=COUNT_LIMIT,
        parked_after=PARKED_AFTER,
        activity=activity,
        alive=alive,
        alive_for=ALIVE_FOR.total_seconds(),
        has_worker=has_worker,
        steps=None if runs["last"] else _steps(parts, sources["sources"], has_worker=has_worker),
        **runs,
        **sources,
        **schedule,
        **_index(parts),
    )


def _runs(connection: Connection, now: datetime) -> dict[str, Any]:
    """The recent runs, and what they left behind: held deletes, failing items, the state of the backend."""
    runs = recent_runs(connection, _RECENT)
    held, last = held_runs(connection, epoch_ms(now)), last_ended(connection)
    organizations = [str(hold.get("organizationId") or "") for run in held for hold in run.holds]
    mentions = [(Organization.kind, "", each) for each in organizations]
    ledger_id = ledger_in_use(connection)
    failures = [] if ledger_id is None else count_failures(connection, ledger_id, limit=COUNT_LIMIT + 1)
    return {
        "runs": with_status(connection, runs, now),
        "is_queued": any(run.status is RunStatus.QUEUED for run in runs),
        "last": last,
        "held": held,
        "held_until": min((run.held_until for run in held if run.held_until), default=None),
        "names": read_names(connection, [*mentions_of_runs(runs), *mentions]),
        "recent": since_yesterday(connection, now, held),
        "backend": _backend_state(connection, last, held, failures),
        "causes": {} if ledger_id is None else _failure_causes(connection, ledger_id),
        **_verified(connection, ledger_id),
    }


def _sources(connection: Connection) -> dict[str, Any]:
    """The sources, and the organizations that they contain."""
    sources = source_states(connection)
    return {
        "sources": sources,
        "source_of": {state.name: state for state in sources},
        "organizations": organization_sizes(connection, limit=_ORGANIZATIONS + 1),
        "organizations_shown": _ORGANIZATIONS,
    }


def _schedule(parts: ConsoleParts, now: datetime) -> dict[str, Any]:
    """When the next run is due, and which runs are scheduled."""
    due = parts.due_after(now)
    return {
        "due": due,
        "interval": _interval(parts.due_after, due),
        "next_is_verify": due is not None and due == parts.verify_due_after(now),
        "only_verifies": due is not None and parts.due_after(due) == parts.verify_due_after(due),
    }


def _index(parts: ConsoleParts) -> dict[str, Any]:
    """The index of this process, and how old its answers are if it is used."""
    index = None if parts.index_state is None else parts.index_state()
    is_used = index is not None and index.is_used
    return {"index": index, "index_age": duration(index.staleness) if index is not None and is_used else ""}


def _notices(
    concerns: Sequence[Concern], sources: Mapping[str, SourceState], *, lacks_worker: bool
) -> list[tuple[Cause | _PageCause, Concern | None]]:
    """Cause and concern of each notice, the worst first."""
    ranked = sorted(concerns, key=lambda concern: _rank(concern, sources))
    has_died = any(concern.cause is Cause.WORKER for concern in concerns)
    notices: list[tuple[Cause | _PageCause, Concern | None]] = [(concern.cause, concern) for concern in ranked]
    return [(_PageCause.NO_WORKER, None), *notices] if lacks_worker and not has_died else notices


def _failure_causes(connection: Connection, ledger_id: int) -> dict[str, Sequence[SameFailures]]:
    return {
        cause: failure_groups(connection, ledger_id, parked=parked, limit=_CAUSES, most=COUNT_LIMIT)
        for cause, parked in ((Cause.PARKED, True), (Cause.FAILING, False), ("all", None))
    }


def _rank(concern: Concern, sources: Mapping[str, SourceState]) -> int:
    source = sources.get(concern.about)
    fails = source is not None and source.is_configured and source.last_verdict == Verdict.FAILED
    cause = _PageCause.UNREADABLE if concern.cause is Cause.SOURCE and fails else concern.cause
    return _RANKS.get(cause, len(_RANKS))


def _steps(parts: ConsoleParts, sources: Sequence[SourceState], *, has_worker: bool) -> dict[str, bool]:
    """The steps of a new installation, and whether each is done."""
    has_read = any(state.last_good_at for state in sources)
    keys = [key for key, value, _ in parts.settings_rows() if value not in {"", "[]"}]
    return {
        "source": has_read or any(key.startswith("directory.sources") for key in keys),
        "read": has_read,
        "worker": has_worker,
        "backend": parts.ask_backend is not None,
    }


def _verified(connection: Connection, ledger_id: int | None) -> dict[str, object]:
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
