"""The overview: whether all is well, and what has happened lately."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from flask import Response
from markupsafe import Markup
from sqlalchemy import Connection

from app.access.browse.sizes import OrganizationSize, organization_sizes
from app.access.contents import SourceState, oldest_good_read, source_states
from app.access.revisions import current_revision
from app.foundation.clock import epoch_ms, from_epoch_ms
from app.monitoring.activity import LIVES_FOR, Stretch, nodes, stretches, worker_is_running
from app.service.console.charts import Bar, line_chart
from app.service.console.console import MOST_COUNTED, Console, query
from app.service.console.formatting import TONES, clock_time, counted, duration, percent
from app.service.console.pages.runs import held_now, shown_status
from app.service.console.views import Views
from app.sync.ledger.failures import count_failures
from app.sync.ledger.ledger import last_verify, ledger_in_use
from app.sync.runs.rows import recent_runs
from app.sync.runs.run import Run, RunStatus
from app.sync.runs.status import held_runs, is_applying, last_ended

_BARS = 96
_RECENT = 10
_COUNTED = (RunStatus.DONE, RunStatus.PARTIAL, RunStatus.HELD, RunStatus.FAILED)
"""The statuses of runs that *Items per run* counts."""
_ORGANIZATIONS = 12
_DRIFT = frozenset({"missing", "changed"})


VIEWS = Views()


@VIEWS.get("overview")
def overview(console: Console) -> Response:
    query()
    parts, now = console.parts, console.parts.clock()
    with console.reading() as connection:
        runs = recent_runs(connection, _RECENT)
        synced = recent_runs(connection, _BARS, statuses=_COUNTED, previews=False)
        waiting = held_now(connection, now)
        last = last_ended(connection)
        found = parts.concerns(connection, now)
        sources = source_states(connection)
        read_at = oldest_good_read([state for state in sources if state.is_configured])
        context: dict[str, Any] = {
            "concerns": found,
            "held": sum(concern.cause == "held" for concern in found),
            "read_at": None if read_at is None else from_epoch_ms(read_at),
            "revision": current_revision(connection),
            **_verified(connection),
            "in_step": _in_step(connection, last, now),
            "curves": curves(connection, now),
            "processes": processes(connection, now),
            "organizations": _organizations(connection),
            "sources": [_source_row(state) for state in sources],
        }
        has_worker = worker_is_running(connection, now)
    due = parts.due_after(now)
    is_waiting = any(run.status is RunStatus.QUEUED for run in runs)
    died = any(concern.cause == "worker" for concern in found)
    return console.show(
        "overview.html",
        current="overview",
        runs=[(run, shown_status(run, waiting, now)) for run in runs],
        last=last,
        # A worker that died is among the concerns already; without a schedule none has to run.
        waits_for_worker=not has_worker and not died and (is_waiting or due is not None),
        is_waiting=is_waiting,
        due=due,
        every=_every(parts.due_after, due),
        bars_shown=[_bar(run, now) for run in reversed(synced)],
        planned=sum(map(items_of, synced)),
        peak=max(map(items_of, synced), default=0),
        bars_say=_bars_say(synced),
        since=synced[-1].requested_at if synced else None,
        **context,
    )


def _verified(connection: Connection) -> dict[str, object]:
    ledger_id = ledger_in_use(connection)
    last = None if ledger_id is None else last_verify(connection, ledger_id)
    if last is None:
        return {"verified_at": None, "drifted": 0}
    drifted = sum(number for what, number in last.findings.items() if what in _DRIFT)
    return {"verified_at": from_epoch_ms(last.at), "drifted": drifted}


def _in_step(connection: Connection, last: Run | None, now: datetime) -> str:
    """The state of the backend in words: the last run of everything, and what is held, parked and failing now."""
    if is_applying(connection):
        return "a run is changing it"
    if last is None:
        return "never synced"
    if last.status is RunStatus.FAILED:
        return "the last run was interrupted; another continues it" if last.continued_by else "the last run failed"
    if last.status is RunStatus.CANCELLED and last.held_until is None:
        return "the last run was cancelled"
    held = sum(run.deletes for run in held_runs(connection, epoch_ms(now)))
    ledger_id = ledger_in_use(connection)
    failing = [] if ledger_id is None else count_failures(connection, ledger_id, limit=MOST_COUNTED + 1)
    numbers = {
        "held": held,
        "parked": sum(one.items for one in failing if one.parked),
        "failing": sum(one.items for one in failing if not one.parked),
    }
    rest = [f"{_up_to_most(number)} {what}" for what, number in numbers.items() if number]
    return f"in step but for {' and '.join(rest)}" if rest else "in step"


def _up_to_most(number: int) -> str:
    return f"more than {MOST_COUNTED:,}" if number > MOST_COUNTED else f"{number:,}"


def _every(due_after: Callable[[datetime], datetime | None], due: datetime | None) -> str:
    """How often runs are due, where that is as often every time."""
    second = None if due is None else due_after(due)
    third = None if second is None else due_after(second)
    if due is None or second is None or third is None or second - due != third - second:
        return ""
    return f"every {duration((second - due).total_seconds())}"


def _organizations(connection: Connection) -> Sequence[OrganizationSize]:
    return organization_sizes(connection, limit=_ORGANIZATIONS)


def _source_row(state: SourceState) -> dict[str, object]:
    verdict = state.last_verdict or "never read"
    return {
        "name": state.name,
        "verdict": verdict,
        "read_at": None if state.last_read_at is None else from_epoch_ms(state.last_read_at),
        "records": state.records,
        "is_configured": state.is_configured,
    }


def items_of(run: Run) -> int:
    """How many items its plan has."""
    return run.total("planned")


def _bar(run: Run, now: datetime) -> Bar:
    tone = TONES.get(run.status.value, "idle")
    says = f"{clock_time(run.requested_at, now)} UTC, {run.status.value}: {counted(items_of(run), 'item')}"
    return Bar(items_of(run), tone, says)


def _bars_say(runs: Sequence[Run]) -> str:
    if not runs:
        return "no runs yet"
    sizes = [items_of(run) for run in runs]
    return (
        f"items of the last {counted(len(runs), 'run')}: lowest {min(sizes):,}, highest {max(sizes):,},"
        f" last {sizes[0]:,}"
    )


_SPAN = timedelta(hours=24)
_FEWEST = 2
"""Points that make a curve."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve with what stands around it."""

    title: str
    figure: str
    beside: str
    drawn: Markup
    since: datetime
    peak: str


def curves(connection: Connection, now: datetime) -> list[Curve]:
    """Those of the last day, or as far back as is known; none before the second minute is over."""
    found = stretches(connection, since=epoch_ms(now - _SPAN), now=epoch_ms(now))
    if len(found) < _FEWEST:
        return []
    return [_questions(found), _slowest(found)]


def processes(connection: Connection, now: datetime) -> tuple[str, str]:
    """How many services and workers live, and how that is known."""
    found = nodes(connection, now=epoch_ms(now))
    services = sum(one.role == "service" for one in found)
    workers = len(found) - services
    shown = f"{counted(services, 'service')}, {counted(workers, 'worker')}" if found else "none seen"
    versions = sorted({one.version for one in found})
    if len(versions) > 1:
        return shown, f"of versions {' and '.join(versions)}"
    if found and not workers:
        return shown, "no worker is running"
    return shown, f"{'all seen' if found else 'no sign of life'} within {LIVES_FOR.total_seconds():.0f} s"


def _questions(found: Sequence[Stretch]) -> Curve:
    values = [one.questions for one in found]
    asked = sum(one.allowed + one.denied + one.errors for one in found)
    denied = sum(one.denied for one in found)
    says = (
        f"permission questions a minute: lowest {_rate(min(values))}, highest {_rate(max(values))}, last"
        f" {_rate(values[-1])}; {percent(denied, asked)} of all were denied"
    )
    return Curve(
        "Permission questions a minute",
        _rate(values[-1]),
        f"{percent(denied, asked)} of all denied" if asked else "nobody asked",
        line_chart(values, says, denied=[one.denied_questions for one in found]),
        from_epoch_ms(found[0].begins),
        _rate(max(values)),
    )


def _slowest(found: Sequence[Stretch]) -> Curve:
    known = [one.p99 for one in found if one.p99 is not None]
    last = known[-1] if known else None
    silent = 60.0 * sum(one.minutes for one in found if one.p99 is None)
    says = (
        f"slowest answers, of which 99 of 100 took no longer: lowest {_time(min(known))}, highest {_time(max(known))},"
        f" last {_time(last)}"
        if known
        else "no answers yet: nobody asked"
    )
    if known and silent:
        says += f"; gaps where nobody asked, {duration(silent)} in all"
    beside = "99 of 100 took no longer"
    if found[-1].p99 is None:
        beside = "when somebody asked last" if known else "nobody asked"
    return Curve(
        "Slowest answers (p99)",
        _time(last),
        beside,
        line_chart([one.p99 for one in found], says),
        from_epoch_ms(found[0].begins),
        _time(max(known, default=None)),
    )


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
