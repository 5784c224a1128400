"""Concerns: what needs an operator's attention now.

They are computed from the database each time, so that every node reports the same, whether or not a worker is running.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from shlex import quote
from typing import Any

import orjson
from sqlalchemy import Connection

from app.access.contents import SourceState, source_states
from app.access.problems import ProblemSort
from app.access.stored_problems import first_problems, problem_counts, unclear_disabling
from app.foundation.clock import epoch_ms, from_epoch_ms
from app.foundation.logs import mask_secrets
from app.foundation.text import are, counted, printable, quoted
from app.sync.ledger.failures import PARKED_AFTER, Failure, count_failures, worst_failure
from app.sync.ledger.ledger import ledger_in_use
from app.sync.runs.status import failed_run, held_runs, last_began
from app.sync.runs.workers import workers

DueAfter = Callable[[datetime], datetime | None]
"""When the next run is due after a moment; None: never."""

_HOLDS_SHOWN = 5
_LATELY = timedelta(hours=1)
_MANY_DEATHS = 3
"""So many workers that died lately are not an accident, even while another one lives."""
_TEXT_LIMIT = 500


class Cause(StrEnum):
    """What sort of thing needs attention."""

    HELD = "held"
    """Deletes wait for approval."""
    FAILED = "failed"
    """The last run of everything failed, or every item of it did."""
    FAILING = "failing"
    """The backend refuses items, which are retried."""
    PARKED = "parked"
    """Items are no longer retried, until they change or an operator retries them."""
    WORKER = "worker"
    """No worker gives signs of life, or one after the other dies."""
    MISSED = "missed"
    """A run is long overdue."""
    SOURCE = "source"
    """A source could not be read completely, or is no longer configured while its records are in force."""
    SHRUNK = "shrunk"
    """A read would take away too many records, and waits for an operator's confirmation."""
    AMBIGUOUS = "ambiguous"
    """Records of a source name users by an alias that several users have."""
    DISABLING = "disabling"
    """Records of a source that disable a user match nobody, or several users."""


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
    worker_after: timedelta = timedelta(0)
    """After so long without a sign of life a worker is dead; zero: nobody asks."""


def concerns(
    connection: Connection, now: datetime, expectations: Expectations, *, most: int | None = None
) -> list[Concern]:
    """Everything that needs attention, in a fixed order. ``connection`` reads from one snapshot.

    ``most``: of items that fail, or are parked, so many are looked at; None: all of them."""
    states = source_states(connection)
    return [
        *_held(connection, now),
        *_failed(connection, now),
        *_refused(connection, now, most),
        *_worker(connection, now, expectations),
        *_missed(connection, now, expectations),
        *(concern for state in states for concern in _of_source(state)),
        *_ambiguous(connection, states),
        *_disabling(connection, states),
    ]


def _held(connection: Connection, now: datetime) -> Iterator[Concern]:
    runs = held_runs(connection, epoch_ms(now))
    if not runs:
        return
    last = runs[-1]
    holds = [hold for run in runs for hold in run.holds]
    shown = [_hold_in_words(hold) for hold in holds]
    further = f" and {len(shown) - _HOLDS_SHOWN} more" if len(shown) > _HOLDS_SHOWN else ""
    deletes = sum(run.deletes for run in runs)
    until = f" until {_shown(from_epoch_ms(last.held_until))}" if last.held_until is not None else ""
    yield Concern(
        cause=Cause.HELD,
        fingerprint=orjson.dumps(sorted({(str(h.get("kind")), str(h.get("organizationId"))) for h in holds})).decode(),
        size=deletes,
        says=_plain(f"{_number(deletes, 'delete')} held back{until}: {'; '.join(shown[:_HOLDS_SHOWN])}{further}"),
        advice=f"look at them with usher runs {last.run_id}, then usher approve {last.run_id}, or mend the directory",
        since=from_epoch_ms(last.finished_at),
        run_id=last.run_id,
    )


def _hold_in_words(hold: Mapping[str, object]) -> str:
    where = f"in {hold['organizationId']}, " if hold.get("organizationId") else ""
    return f"{where}{hold.get('reason')}"


def _failed(connection: Connection, now: datetime) -> Iterator[Concern]:
    run = failed_run(connection, epoch_ms(now))
    if run is None:
        return
    error = _plain(run.error or "for no known reason")
    says = f"the last run failed: {error}"
    if run.items:
        error = "nothing but failures"
        says = f"every item of the last run failed: {counted(run.items, 'item')}"
    yield Concern(
        cause=Cause.FAILED,
        # Times, ids and counts in the text differ each time without meaning anything else.
        fingerprint=re.sub(r"[0-9]+", "0", error),
        says=says,
        advice="usher doctor looks for the cause",
        since=from_epoch_ms(run.since),
        run_id=run.run_id,
    )


def _refused(connection: Connection, now: datetime, most: int | None) -> Iterator[Concern]:
    ledger_id = ledger_in_use(connection)
    if ledger_id is None:
        return
    found = count_failures(connection, ledger_id, limit=None if most is None else most + 1)
    for parked in (False, True):
        kinds = [one for one in found if one.parked == parked]
        if not kinds:
            continue
        items = sum(one.items for one in kinds)
        first = min((one.since for one in kinds if one.since is not None), default=None)
        worst = worst_failure(connection, ledger_id, parked=parked, limit=most)
        named = f", as {_named(worst)}" if worst is not None else ""
        if most is not None and items > most:
            items_in_words, verb = f"more than {most:,} items", "are"
        else:
            items_in_words, verb = counted(items, "item"), are(items)
        if parked:
            says = f"{items_in_words} {verb} parked after {PARKED_AFTER} failures{named}"
            advice = "mend what they name in the directory or the backend, then usher sync --retry"
        else:
            says = f"{items_in_words} {'fails' if items == 1 else 'fail'} and {verb} tried again{named}"
            advice = "mend what they name in the directory or the backend; usher plan lists them"
        yield Concern(
            cause=Cause.PARKED if parked else Cause.FAILING,
            fingerprint=" ".join(one.kind for one in kinds),
            size=items,
            says=says,
            advice=advice,
            since=now if first is None else from_epoch_ms(first),
        )


def _named(failure: Failure) -> str:
    parts = [failure.organization_id, failure.container_id, failure.item_id]
    where = failure.item_id if failure.kind == "organization" else " / ".join(part for part in parts if part)
    return _plain(f"{'delete ' if failure.deleting else ''}{failure.kind} {where}: {failure.message}")


def _worker(connection: Connection, now: datetime, expectations: Expectations) -> Iterator[Concern]:
    if not expectations.worker_after:
        return
    known = workers(connection)
    dead = [one for one in known if now - from_epoch_ms(one.seen_at) >= expectations.worker_after]
    lately = [one for one in dead if now - from_epoch_ms(one.seen_at) < _LATELY]
    if not dead or (len(dead) < len(known) and len(lately) < _MANY_DEATHS):
        return
    last = dead[0]
    if len(dead) == len(known):
        since = from_epoch_ms(last.seen_at)
        says = f"no worker lives: the last one, {_plain(last.name)}, has given no sign of life since {_shown(since)}"
    else:
        says = f"workers die one after the other: {len(lately)} within an hour, {_plain(last.name)} the last"
        since = from_epoch_ms(lately[-1].seen_at)
    yield Concern(
        cause=Cause.WORKER,
        fingerprint="none lives" if len(dead) == len(known) else "they die",
        says=says,
        advice="see why in its log and the system's (memory?), and start usher worker",
        since=since,
    )


def _missed(connection: Connection, now: datetime, expectations: Expectations) -> Iterator[Concern]:
    began_ms = last_began(connection)
    if not expectations.missed_after or began_ms is None:
        return
    began = from_epoch_ms(began_ms)
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
    if not state.is_configured:
        yield from _retained(state)
        return
    if state.refused:
        yield _refused_source(state)
        return
    if state.last_verdict not in {"failed", "partial"}:
        return
    since = state.last_good_at if state.last_verdict == "failed" else state.last_complete_at
    reason = _plain(state.last_reason)
    if state.last_verdict == "failed":
        says = f"source {_plain(state.name)} cannot be read: {reason}"
        advice = "its last good records stay in force; usher directory check shows what is wrong"
    else:
        says = f"source {_plain(state.name)} is read in part only: {reason}"
        advice = "what cannot be read is not taken as gone; usher directory check shows the places"
    yield Concern(
        cause=Cause.SOURCE,
        about=state.name,
        fingerprint=f"{state.last_verdict} {re.sub(r'[0-9]+', '0', reason)}",
        says=says,
        advice=advice,
        since=from_epoch_ms(since if since is not None else state.last_read_at or 0),
    )


def _refused_source(state: SourceState) -> Concern:
    """It was read completely and is refused: there is too little of it, or nothing."""
    reason, _, advice = state.refused.partition("; if that is meant")
    stays = "; its last good records stay in force" if state.last_verdict == "failed" else ""
    return Concern(
        cause=Cause.SHRUNK,
        about=state.name,
        fingerprint=re.sub(r"[0-9]+", "0", reason),
        says=_plain(f"source {state.name} {reason}{stays}"),
        advice=_plain(f"see whether its reader lost rights; if that is meant{advice}"),
        since=from_epoch_ms(state.last_good_at if state.last_good_at is not None else state.last_read_at or 0),
    )


def _ambiguous(connection: Connection, states: Sequence[SourceState]) -> Iterator[Concern]:
    counts = problem_counts(connection)
    for state in states:
        for kept in counts.get(state.name, ()):
            if kept.sort != ProblemSort.AMBIGUOUS or not state.is_configured:
                continue
            first = first_problems(connection, state.name, kept.sort)
            example = f", as {first[0].reason}" if first else ""
            records = f"{counted(kept.problems, 'record')} of source {state.name}"
            yield Concern(
                cause=Cause.AMBIGUOUS,
                about=state.name,
                fingerprint="ambiguous",
                size=kept.problems,
                says=_plain(f"users that {records} name by an alias cannot be told apart{example}"),
                advice="take the alias from all but one user, or name users by id; usher directory check has the list",
                since=from_epoch_ms(kept.since),
            )


def _disabling(connection: Connection, states: Sequence[SourceState]) -> Iterator[Concern]:
    read_at = {state.name: state.last_good_at for state in states}
    for found in unclear_disabling(connection):
        says = []
        if found.nobody:
            says.append(f"{found.nobody:,} match nobody, as {quoted(found.example_of_nobody)}")
        if found.several:
            example = f"{quoted(found.example_of_several)}: {', '.join(map(quoted, found.users))}"
            says.append(f"{found.several:,} match several users and disable them all, as {example}")
        yield Concern(
            cause=Cause.DISABLING,
            about=found.source,
            fingerprint=" ".join(["nobody"] * bool(found.nobody) + ["several"] * bool(found.several)),
            size=found.nobody + found.several,
            says=_plain(f"of the records of source {found.source} that disable a user, {'; '.join(says)}"),
            advice="join by a lasting id instead of an address, and leave out people who left long ago",
            since=from_epoch_ms(read_at.get(found.source) or 0),
        )


def _retained(state: SourceState) -> Iterator[Concern]:
    if not state.records:
        return
    yield Concern(
        cause=Cause.SOURCE,
        about=state.name,
        fingerprint="retained",
        says=_plain(
            f"source {state.name} is no longer among directory.sources; of its records {state.records:,}"
            f" {are(state.records)} still in force"
        ),
        advice=f"usher directory forget {quote(state.name)} takes them away; or configure it again under this name",
        since=from_epoch_ms(state.last_read_at or 0),
    )


def _plain(text: str) -> str:
    masked: Any = mask_secrets(None, "", {"text": text})["text"]
    return printable(masked, limit=_TEXT_LIMIT)


def _number(count: int, noun: str) -> str:
    return f"{counted(count, noun)} {are(count)}"


def _shown(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
