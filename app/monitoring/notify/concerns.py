"""Finds concerns: conditions that need an operator's attention, such as held deletes or a dead worker.

They are computed from the database each time, so every node reports the same ones, whether or not a worker is running.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import compress
from shlex import quote
from typing import Any

import orjson
from sqlalchemy import Connection

from app.access.browse.lookup import find_names
from app.access.kinds import KINDS
from app.access.problems import ProblemSort, UnclearDisabling
from app.access.records import Organization, User
from app.access.refresh.reads import FAILED, PARTIAL, Refusal
from app.access.source_states import SourceState, source_states
from app.access.stored_problems import first_problems, problem_counts, unclear_disabling
from app.foundation.clock import epoch_ms, from_epoch_ms
from app.foundation.logs import mask_secrets
from app.foundation.text import are, counted, printable, quoted
from app.sync.ledger.failure_lists import Failure, count_failures, worst_failure
from app.sync.ledger.failures import PARKED_AFTER
from app.sync.ledger.items import USER_KINDS, noun_of
from app.sync.ledger.ledger import ledger_in_use
from app.sync.runs.status import failed_run, held_runs, last_began
from app.sync.runs.workers import workers

DueAfter = Callable[[datetime], datetime | None]
"""Returns when the next run is due after a moment. None: never."""

_HOLDS_SHOWN = 5
_RECENTLY = timedelta(hours=1)
_MANY_DEATHS = 3
"""So many recently dead workers are a concern, even while another one is running."""
_TEXT_LIMIT = 500


class Cause(StrEnum):
    """The kind of a concern."""

    HELD = "held"
    """Deletes wait for approval."""
    FAILED = "failed"
    """The last full run failed, or every item of it failed."""
    FAILING = "failing"
    """The backend refuses items, which are retried."""
    PARKED = "parked"
    """Items are not retried until they change or an operator retries them."""
    WORKER = "worker"
    """No worker is running, or workers die repeatedly."""
    MISSED = "missed"
    """A run is long overdue."""
    SOURCE = "source"
    """A source was not read completely, or is no longer configured while its records are in force."""
    SHRUNK = "shrunk"
    """A read would remove too many records, and waits for an operator's confirmation."""
    AMBIGUOUS = "ambiguous"
    """Records of a source refer to users by an alias that several users have."""
    DISABLING = "disabling"
    """Records of a source that disable a user match no user, or several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """One condition that needs attention."""

    cause: Cause
    about: str = ""
    """The source's name, if the concern is about a source."""
    fingerprint: str
    """A different fingerprint means that the concern has changed and is reported again."""
    size: int = 0
    """The number of affected items or records. A concern that doubles is reported again."""
    summary: str
    """One sentence on one line, without secrets."""
    advice: str
    """The recommended action."""
    since: datetime
    run_id: str | None = None

    @property
    def key(self) -> str:
        """Identifies the concern while it changes."""
        return f"{self.cause} {self.about}" if self.about else self.cause.value


@dataclass(frozen=True, slots=True)
class Expectations:
    """The schedule and the limits whose violation is a concern."""

    due_after: DueAfter
    missed_after: timedelta
    """The delay after which a due run is missed. Zero: never."""
    worker_after: timedelta = timedelta(0)
    """The time without a heartbeat after which a worker is dead. Zero: workers are not checked."""


def concerns(
    connection: Connection, now: datetime, expectations: Expectations, *, limit: int | None = None
) -> list[Concern]:
    """All concerns, in a fixed order. ``connection`` reads from one snapshot. ``limit``: the number up to which failing
    and parked items are counted. None: all of them."""
    states = source_states(connection)
    return [
        *_held(connection, now),
        *_failed(connection, now),
        *_failing(connection, now, limit),
        *_worker(connection, now, expectations),
        *_missed(connection, now, expectations),
        *(concern for state in states for concern in _source(state)),
        *_ambiguous(connection, states),
        *_disabling(connection, states),
    ]


def _held(connection: Connection, now: datetime) -> Iterator[Concern]:
    runs = held_runs(connection, epoch_ms(now))
    if not runs:
        return
    last = runs[-1]
    holds = [hold for run in runs for hold in run.holds]
    first = "; ".join(_describe_hold(hold) for hold in holds[:_HOLDS_SHOWN])
    further = f" and {len(holds) - _HOLDS_SHOWN} more" if len(holds) > _HOLDS_SHOWN else ""
    deletes = sum(run.deletes for run in runs)
    until = f" until {_time_text(from_epoch_ms(last.held_until))}" if last.held_until is not None else ""
    yield Concern(
        cause=Cause.HELD,
        fingerprint=orjson.dumps(
            sorted({(str(hold.get("kind")), str(hold.get("organizationId"))) for hold in holds})
        ).decode(),
        size=deletes,
        summary=_one_line(
            f"{counted(deletes, 'delete')} {'waits' if deletes == 1 else 'wait'} for approval{until}: {first}{further}"
        ),
        advice=f"review them with usher runs {last.run_id}, then run usher approve {last.run_id}, or fix the directory",
        since=from_epoch_ms(last.finished_at),
        run_id=last.run_id,
    )


def _describe_hold(hold: Mapping[str, object]) -> str:
    where = f"in {hold['organizationId']}, " if hold.get("organizationId") else ""
    return f"{where}{hold.get('reason')}"


def _failed(connection: Connection, now: datetime) -> Iterator[Concern]:
    run = failed_run(connection, epoch_ms(now))
    if run is None:
        return
    error = _one_line(run.error or "unknown error")
    summary = f"the last run failed: {error}"
    if run.items:
        error = "all items failed"
        summary = f"every item of the last run failed: {counted(run.items, 'item')}"
    yield Concern(
        cause=Cause.FAILED,
        fingerprint=_without_numbers(error),
        summary=summary,
        advice="run usher doctor to find the cause",
        since=from_epoch_ms(run.since),
        run_id=run.run_id,
    )


def _failing(connection: Connection, now: datetime, limit: int | None) -> Iterator[Concern]:
    ledger_id = ledger_in_use(connection)
    if ledger_id is None:
        return
    failing = count_failures(connection, ledger_id, limit=None if limit is None else limit + 1)
    for parked in (False, True):
        kinds = [row for row in failing if row.parked == parked]
        if not kinds:
            continue
        items = sum(row.items for row in kinds)
        first = min((row.since for row in kinds if row.since is not None), default=None)
        worst = worst_failure(connection, ledger_id, parked=parked, limit=limit)
        example = f", such as {_describe_failure(connection, worst)}" if worst is not None else ""
        number = f"more than {limit:,} items" if limit is not None and items > limit else counted(items, "item")
        if parked:
            summary = f"{number} {'was' if items == 1 else 'were'} parked after {PARKED_AFTER} tries{example}"
            advice = "fix the cause in the directory or the backend, then run usher sync --retry"
        else:
            summary = f"{number} failed and {are(items)} retrying{example}"
            advice = "fix the cause in the directory or the backend; usher plan lists the items"
        yield Concern(
            cause=Cause.PARKED if parked else Cause.FAILING,
            fingerprint=" ".join(row.kind for row in kinds),
            size=items,
            summary=summary,
            advice=advice,
            since=now if first is None else from_epoch_ms(first),
        )


def _describe_failure(connection: Connection, failure: Failure) -> str:
    record = User if failure.kind in USER_KINDS else KINDS[failure.kind].record
    within = "" if record in {Organization, User} else failure.organization_id
    name = find_names(connection, record, [(within, failure.item_id)]).get((within, failure.item_id))
    organization = find_names(connection, Organization, [("", failure.organization_id)])
    of = organization.get(("", failure.organization_id)) or failure.organization_id
    what = f"{'delete ' if failure.deleting else ''}{noun_of(failure.kind, 1)} {name or failure.item_id}"
    return _one_line(f"{what}{'' if record is Organization else f' of {of}'}: {failure.message}")


def _worker(connection: Connection, now: datetime, expectations: Expectations) -> Iterator[Concern]:
    if not expectations.worker_after:
        return
    states = workers(connection)
    dead = [worker for worker in states if now - from_epoch_ms(worker.seen_at) >= expectations.worker_after]
    recently = [worker for worker in dead if now - from_epoch_ms(worker.seen_at) < _RECENTLY]
    if not dead or (len(dead) < len(states) and len(recently) < _MANY_DEATHS):
        return
    last = dead[0]
    if len(dead) == len(states):
        since = from_epoch_ms(last.seen_at)
        summary = f"no worker is running: the last heartbeat, of {_one_line(last.name)}, was at {_time_text(since)}"
    else:
        summary = f"workers die repeatedly: {len(recently)} within an hour, the last one {_one_line(last.name)}"
        since = from_epoch_ms(recently[-1].seen_at)
    yield Concern(
        cause=Cause.WORKER,
        fingerprint="none running" if len(dead) == len(states) else "repeated deaths",
        summary=summary,
        advice="find the cause in its log and in the system's log (such as a lack of memory), and start usher worker",
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
        summary=f"no run has begun since {_time_text(began)}; one was due at {_time_text(due)}",
        advice="check whether usher worker is running, and its log",
        since=due.astimezone(UTC),
    )


def _source(state: SourceState) -> Iterator[Concern]:
    if not state.is_configured:
        yield from _retained(state)
        return
    if state.refusal is not None:
        yield _refused_source(state, state.refusal)
        return
    if state.last_verdict not in {FAILED, PARTIAL}:
        return
    since = state.last_good_at if state.last_verdict == FAILED else state.last_complete_at
    reason = _one_line(state.last_reason)
    if state.last_verdict == FAILED:
        summary = f"source {_one_line(state.name)} cannot be read: {reason}"
        advice = "run usher directory check to see the errors; until then, its last good records stay in force"
    else:
        summary = f"source {_one_line(state.name)} can only be read partially: {reason}"
        advice = "run usher directory check to see the errors; records that cannot be read are not deleted"
    yield Concern(
        cause=Cause.SOURCE,
        about=state.name,
        fingerprint=f"{state.last_verdict} {_without_numbers(reason)}",
        summary=summary,
        advice=advice,
        since=_first_of(since, state.last_read_at),
    )


def _refused_source(state: SourceState, refusal: Refusal) -> Concern:
    """The concern about a complete read that was refused because it is empty or too small."""
    stays = "; its last good records stay in force" if state.last_verdict == FAILED else ""
    return Concern(
        cause=Cause.SHRUNK,
        about=state.name,
        fingerprint=_without_numbers(refusal.reason),
        summary=_one_line(f"source {state.name} {refusal.reason}{stays}"),
        advice=_one_line(f"check whether its reader lost access rights; {refusal.advice}"),
        since=_first_of(state.last_good_at, state.last_read_at),
    )


def _ambiguous(connection: Connection, states: Sequence[SourceState]) -> Iterator[Concern]:
    counts = problem_counts(connection)
    for state in states:
        for count in counts.get(state.name, ()):
            if count.sort != ProblemSort.AMBIGUOUS or not state.is_configured:
                continue
            first = first_problems(connection, state.name, count.sort)
            example = f", such as: {first[0].reason}" if first else ""
            records = f"{counted(count.problems, 'record')} of source {state.name}"
            refer = "refers" if count.problems == 1 else "refer"
            yield Concern(
                cause=Cause.AMBIGUOUS,
                about=state.name,
                fingerprint="ambiguous",
                size=count.problems,
                summary=_one_line(f"{records} {refer} to a user by an alias that several users have{example}"),
                advice="remove the alias from all but one user, or use user ids; usher directory check lists them",
                since=from_epoch_ms(count.since),
            )


def _disabling(connection: Connection, states: Sequence[SourceState]) -> Iterator[Concern]:
    read_at = {state.name: state.last_good_at for state in states}
    for source, fills in unclear_disabling(connection).items():
        parts = []
        if nobody := fills.get(UnclearDisabling.NOBODY):
            (name,) = nobody.first[0].key
            parts.append(f"{nobody.count:,} match no user, such as {quoted(name)}")
        if several := fills.get(UnclearDisabling.SEVERAL):
            (alias,), users = several.first[0].key, several.first[0].detail
            example = f"{quoted(alias)}: {', '.join(map(quoted, users))}"
            parts.append(f"{several.count:,} match several users and disable them all, such as {example}")
        yield Concern(
            cause=Cause.DISABLING,
            about=source,
            fingerprint=" ".join(compress(("nobody", "several"), (nobody, several))),
            size=sum(sample.count for sample in fills.values()),
            summary=_one_line(f"of the records of source {source} that disable a user, {'; '.join(parts)}"),
            advice="match users by a permanent id instead of an address, and remove fills for users who left",
            since=_first_of(read_at.get(source)),
        )


def _retained(state: SourceState) -> Iterator[Concern]:
    if not state.records:
        return
    yield Concern(
        cause=Cause.SOURCE,
        about=state.name,
        fingerprint="retained",
        summary=_one_line(
            f"source {state.name} is no longer among directory.sources; {state.records:,} of its records"
            f" {are(state.records)} still in force"
        ),
        advice=f"remove them with usher directory forget {quote(state.name)}, or configure it again under this name",
        since=_first_of(state.last_read_at),
    )


def _first_of(*times: int | None) -> datetime:
    """The first of these times, in epoch milliseconds, that is known. Otherwise the epoch."""
    return from_epoch_ms(next((time for time in times if time is not None), 0))


def _without_numbers(text: str) -> str:
    """For fingerprints: times, ids and counts differ from run to run."""
    return re.sub(r"[0-9]+", "0", text)


def _one_line(text: str) -> str:
    """The text on one line, shortened and without secrets."""
    masked: Any = mask_secrets(None, "", {"text": text})["text"]
    return printable(masked, limit=_TEXT_LIMIT)


def _time_text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
