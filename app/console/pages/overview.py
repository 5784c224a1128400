"""The overview: whether all is well, and what has happened lately."""

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from flask import Blueprint, Response
from sqlalchemy import Connection

from app.clock import from_epoch_ms
from app.console.console import Console, query, route_of
from app.console.frame.charts import Bar
from app.console.frame.words import TONES, clock_time, counted, duration
from app.console.pages.curves import curves, processes
from app.console.settings import Role
from app.ledger.ledger import last_verify, ledger_in_use
from app.model.contents import SourceState, current_revision, oldest_good_read, source_states
from app.model.outline import OrganizationSize, organization_sizes
from app.runs.queue import CHANGES
from app.runs.run import Run, RunStatus

_BARS = 96
_RECENT = 10
_ORGANIZATIONS = 12
_DRIFT = frozenset({"missing", "changed"})


def install(blueprint: Blueprint, console: Console) -> None:
    """``/console/``."""

    @blueprint.get(route_of("overview"))
    @console.gate.page(Role.VIEWER)
    def overview() -> Response:
        query()
        parts, now = console.parts, console.parts.clock()
        runs = parts.runs.recent(_BARS)
        with console.reading() as connection:
            found = parts.concerns(connection, now)
            sources = source_states(connection)
            read_at = oldest_good_read([state for state in sources if state.is_configured])
            context: dict[str, Any] = {
                "concerns": found,
                "held": sum(concern.cause == "held" for concern in found),
                "read_at": None if read_at is None else from_epoch_ms(read_at),
                "revision": current_revision(connection),
                **_verified(connection),
                "curves": curves(connection, now),
                "processes": processes(connection, now),
                "organizations": _organizations(connection),
                "sources": [_source_row(state) for state in sources],
            }
        due = parts.due_after(now)
        last = next((run for run in runs if run.trigger != CHANGES and run.finished_at is not None), None)
        return console.show(
            "overview.html",
            current="overview",
            runs=list(islice(runs, _RECENT)),
            last=last,
            in_step=_in_step(last),
            due=due,
            every=_every(parts.due_after, due),
            bars_shown=[_bar(run, now) for run in reversed(runs)],
            planned=sum(map(items_of, runs)),
            peak=max(map(items_of, runs), default=0),
            bars_say=_bars_say(runs),
            since=runs[-1].requested_at if runs else None,
            **context,
        )


def _verified(connection: Connection) -> dict[str, object]:
    ledger_id = ledger_in_use(connection)
    last = None if ledger_id is None else last_verify(connection, ledger_id)
    if last is None:
        return {"verified_at": None, "drifted": 0}
    drifted = sum(number for what, number in last.findings.items() if what in _DRIFT)
    return {"verified_at": from_epoch_ms(last.at), "drifted": drifted}


def _in_step(last: Run | None) -> str:
    """What the last run left the backend as, in words."""
    if last is None:
        return "never synced"
    if last.status is RunStatus.FAILED:
        return "the last run failed"
    rest = [f"{last.total(what):,} {what}" for what in ("held", "parked", "failed", "waiting") if last.total(what)]
    return f"in step but for {' and '.join(rest)}" if rest else "in step"


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
        "verdict": "failed" if state.refused else verdict,
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
