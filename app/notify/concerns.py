"""What needs somebody's attention now?

It is worked out from the database each time, so that every node tells the same, whether or not a worker lives:

==============  ===============================================================
``held``        deletes wait for approval
``failed``      the last run of everything failed
``missed``      a run was due so long ago, and none has begun since
``source``      a source of the directory could not be read, or not completely
==============  ===============================================================
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import orjson
from sqlalchemy import Connection

from app.logs import mask_secrets
from app.store.access_model import SourceState, source_states
from app.store.standing import failed_run, held_runs, last_began
from app.text import printable

DueAfter = Callable[[datetime], datetime | None]
"""When the next run is due after a moment; None: never."""

_HOLDS_SHOWN = 5
_TEXT_LIMIT = 500


class Cause(StrEnum):
    """What sort of thing needs attention."""

    HELD = "held"
    FAILED = "failed"
    MISSED = "missed"
    SOURCE = "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """One thing that needs attention."""

    cause: Cause
    about: str = ""
    """Which of several, where there can be several: the name of a source."""
    fingerprint: str
    """Another one means that the matter has changed, and not only gone on."""
    size: int = 0
    """How much it is about; twice as much is a change, too."""
    says: str
    """One sentence, without secrets and on one line."""
    advice: str
    """What to do about it."""
    since: datetime
    run_id: str | None = None

    @property
    def key(self) -> str:
        """The same for the same matter, however it changes."""
        return f"{self.cause} {self.about}" if self.about else self.cause.value


@dataclass(frozen=True, slots=True)
class Expectations:
    """What ought to happen by itself."""

    due_after: DueAfter
    missed_after: timedelta
    """Zero: nobody asks whether runs begin."""


def concerns(connection: Connection, now: datetime, expectations: Expectations) -> list[Concern]:
    """Everything that needs attention, in a fixed order. ``connection`` reads from one snapshot."""
    return [
        *_held(connection, now),
        *_failed(connection),
        *_missed(connection, now, expectations),
        *(concern for state in source_states(connection) for concern in _of_source(state)),
    ]


def _held(connection: Connection, now: datetime) -> Iterator[Concern]:
    runs = held_runs(connection, round(now.timestamp() * 1000))
    if not runs:
        return
    last = runs[-1]
    holds = [hold for run in runs for hold in run.holds]
    shown = [f"{hold.get('kind')} of {hold.get('organizationId') or 'all'}: {hold.get('reason')}" for hold in holds]
    further = f" and {len(shown) - _HOLDS_SHOWN} more" if len(shown) > _HOLDS_SHOWN else ""
    deletes = sum(run.deletes for run in runs)
    until = f" until {_shown(_moment(last.held_until))}" if last.held_until is not None else ""
    yield Concern(
        cause=Cause.HELD,
        fingerprint=orjson.dumps(sorted({(str(h.get("kind")), str(h.get("organizationId"))) for h in holds})).decode(),
        size=deletes,
        says=_plain(f"{_number(deletes, 'delete')} held back{until}: {'; '.join(shown[:_HOLDS_SHOWN])}{further}"),
        advice=f"look at them with usher runs {last.run_id}, then usher approve {last.run_id}, or mend the directory",
        since=_moment(last.finished_at),
        run_id=last.run_id,
    )


def _failed(connection: Connection) -> Iterator[Concern]:
    run = failed_run(connection)
    if run is None:
        return
    error = _plain(run.error or "for no reason that is known")
    yield Concern(
        cause=Cause.FAILED,
        # Times, ids and counts in the text differ each time without meaning anything else.
        fingerprint=re.sub(r"[0-9]+", "0", error),
        says=f"the last run failed: {error}",
        advice="usher doctor looks for the cause",
        since=_moment(run.since),
        run_id=run.run_id,
    )


def _missed(connection: Connection, now: datetime, expectations: Expectations) -> Iterator[Concern]:
    began_ms = last_began(connection)
    if not expectations.missed_after or began_ms is None:
        return
    began = _moment(began_ms)
    due = expectations.due_after(began)
    if due is None or now - due < expectations.missed_after:
        return
    yield Concern(
        cause=Cause.MISSED,
        fingerprint="missed",
        says=f"no run has begun since {_shown(began)}; one was due at {_shown(due)}",
        advice="see whether a worker runs (usher worker), and what its log says",
        since=due.astimezone(UTC),
    )


def _of_source(state: SourceState) -> Iterator[Concern]:
    if not state.is_configured or state.last_verdict not in {"failed", "partial"}:
        return
    since = state.last_good_at if state.last_verdict == "failed" else state.last_complete_at
    reason = _plain(state.last_reason)
    if state.last_verdict == "failed":
        says = f"source {_plain(state.name)} cannot be read: {reason}"
        advice = "its last good records stay in force; usher directory check shows what is wrong"
    else:
        says = f"source {_plain(state.name)} is read in part only: {reason}"
        advice = "what is gone from it is not taken as gone until it is whole; usher directory check shows the places"
    yield Concern(
        cause=Cause.SOURCE,
        about=state.name,
        fingerprint=f"{state.last_verdict} {re.sub(r'[0-9]+', '0', reason)}",
        says=says,
        advice=advice,
        since=_moment(since if since is not None else state.last_read_at or 0),
    )


def _plain(text: str) -> str:
    masked: Any = mask_secrets(None, "", {"text": text})["text"]
    return printable(masked, limit=_TEXT_LIMIT)


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun} is" if count == 1 else f"{count:,} {noun}s are"


def _shown(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
