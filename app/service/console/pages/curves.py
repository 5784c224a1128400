"""The curves of the overview: questions a minute, the slowest answers, and the processes that live."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup
from sqlalchemy import Connection

from app.foundation.clock import epoch_ms, from_epoch_ms
from app.monitoring.activity import LIVES_FOR, Stretch, nodes, stretches
from app.service.console.frame.charts import curve
from app.service.console.frame.words import counted, duration, percent

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
        curve(values, says, denied=[one.denied_questions for one in found]),
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
        curve([one.p99 for one in found], says),
        from_epoch_ms(found[0].begins),
        _time(max(known, default=None)),
    )


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
