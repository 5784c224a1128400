"""The applier, which brings a plan into the backend.

The rules: ``app/apply/README.md``, "Calls".

Applying reads nothing but the plan, a page at a time and in its order. One thread (the caller's) reads the plan and
writes to our database; up to ``max_in_flight`` others send calls. Each turn of the loop is one transaction: it takes in
the answers that have come meanwhile, and writes down in the journal the calls that go out next. So each answered batch
changes plan, ledger, failures and the run's counts together, and no call is sent that is not written down.

A phase begins when the one before is settled. Within a phase, calls go side by side, except those that put folders into
their places, which go one after the other within an organization: a later one may hold children of an earlier one.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import groupby, islice
from queue import Empty, SimpleQueue
from random import Random

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from app.apply.contents import take_out_contents
from app.apply.outcome import Fate, ItemOutcome
from app.apply.progress import Progress
from app.apply.requests import batch_limit
from app.apply.sender import BROKEN, LOCK_LOST, Batch, BatchOutcome, Ending, Gate, Sender
from app.clock import Clock, Sleep, epoch_ms
from app.contract import operations as contract
from app.database.engine import reading, writing
from app.database.statements import json_list, run
from app.database.trouble import cause_of, is_away
from app.ledger.journal import JournalledCall, journal_calls, last_call_id, settle_calls
from app.ledger.outcomes import (
    Counts,
    Outcomes,
    add_counts,
    is_still_applying,
    phase_totals,
    read_counts,
    settle,
    store_counts,
)
from app.plan.covered import covered_items
from app.plan.preconditions import any_broken, uncover, without_what_they_need, would_take_others
from app.plan.rules import SETTLES, Kind, Phase
from app.plan.stored import PlanItem, read_items

AHEAD = 3
"""Calls that are written down and wait for a free thread, as a multiple of the threads: work while we write."""

TOGETHER = 2
"""Answers that one transaction takes in at most, as a multiple of the threads. They leave work for all of them."""

_CLOSE_BEHIND = 0.005
"""Seconds."""
_PAGE = 2000
_DATABASE_PATIENCE = (1.0, 2.0, 4.0, 8.0)
"""Seconds to wait for a database that is away, before the run is given up; nothing is lost in either case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is applied, for which run, to which backend."""

    run_id: str
    plan_id: str
    ledger_id: int


@dataclass(slots=True)
class _Call:
    """A batch on its way: written down under ``call_id``, then answered."""

    batch: Batch
    call_id: int


@dataclass(slots=True)
class _Answered:
    call: _Call
    outcome: BatchOutcome


@dataclass(slots=True)
class _Stretch:
    """One phase while it is worked on."""

    batches: Iterator[Batch]
    ready: deque[Batch] = field(default_factory=deque)
    """Whose turn has come, before ``batches``."""
    waiting: dict[str, deque[Batch]] = field(default_factory=dict)
    """Behind a call of the same scope that has to be settled first; the scopes that are under way are the keys."""
    exhausted: bool = False

    @property
    def held_back(self) -> int:
        return sum(len(batches) for batches in self.waiting.values())


class Applier:
    """Applies one plan once."""

    def __init__(
        self,
        engine: Engine,
        target: Target,
        *,
        sender: Sender,
        gate: Gate,
        max_in_flight: int,
        batch_size: int,
        progress: Progress,
        clock: Clock,
        sleep: Sleep,
        random: Random,
        before: Counts,
        calls: int,
    ) -> None:
        """``before`` and ``calls``: what the run has settled and sent already, with an earlier plan."""
        self._engine = engine
        self._target = target
        self._sender = sender
        self._gate = gate
        self._threads = max_in_flight
        self._batch_size = batch_size
        self._progress = progress
        self._clock = clock
        self._sleep = sleep
        self._random = random
        self._state = _Turn(before, calls, last_call_id=0, broken=False)
        self._answers: SimpleQueue[_Answered] = SimpleQueue()
        self._log = structlog.stdlib.get_logger(__name__).bind(run_id=target.run_id)

    def apply(self) -> None:
        """Sends what is planned, until there is nothing left or the gate closes; the gate then says why."""
        with reading(self._engine) as connection:
            self._state.counts = add_counts(self._state.counts, read_counts(connection, self._target.plan_id))
            self._state.broken = any_broken(connection, self._target.plan_id)
            self._state.last_call_id = last_call_id(connection)
        with ThreadPoolExecutor(self._threads, thread_name_prefix="apply") as pool:
            try:
                self._go_through(pool)
                while self._state.uncovered and self._gate.ending is None:
                    # What a delete that cannot be sent would have taken with it is sent by itself.
                    self._state.uncovered = False
                    self._go_through(pool)
            except BaseException:
                self._gate.end(BROKEN)
                raise

    def _go_through(self, pool: ThreadPoolExecutor) -> None:
        totals = phase_totals(self._engine, self._target.plan_id)
        for phase, batches in groupby(self._batches(), key=lambda batch: batch.items[0].phase):
            if self._gate.ending is not None:
                return
            self._progress.phase(_phase_name(phase), totals.get(phase))
            self._work_through(pool, _Stretch(batches))

    def _batches(self) -> Iterator[Batch]:
        """The plan in calls: neighbours that share phase, operation, kind and scope, as many as fit."""
        items = self._items()
        for _, together in groupby(items, key=lambda item: (item.phase, item.operation, item.kind, item.scope)):
            yield from _in_calls(together, self._batch_size)

    def _items(self) -> Iterator[PlanItem]:
        after = 0
        while True:
            with reading(self._engine) as connection:
                page = read_items(connection, self._target.plan_id, after_ordinal=after, limit=_PAGE)
            if not page:
                return
            after = page[-1].ordinal
            yield from page

    def _work_through(self, pool: ThreadPoolExecutor, stretch: _Stretch) -> None:
        in_flight = 0
        answered: list[_Answered] = []
        while True:
            for one in answered:
                self._let_next_through(stretch, one.call.batch)
            fresh = self._take(stretch, self._threads * (1 + AHEAD) - in_flight)
            if answered or fresh:
                for call in self._write(stretch, answered, fresh):
                    pool.submit(self._send, call)
                    in_flight += 1
            if in_flight == 0:
                if self._gate.ending is not None or (stretch.exhausted and not stretch.ready):
                    return
                answered = []
                continue
            answered = self._wait_for_answers(in_flight)
            in_flight -= len(answered)

    def _send(self, call: _Call) -> None:
        self._answers.put(_Answered(call, self._sender.send(call.batch)))

    def _wait_for_answers(self, in_flight: int) -> list[_Answered]:
        """At least one answer; those that come close behind are taken in together with it."""
        answered = [self._answers.get()]
        while len(answered) < min(in_flight, TOGETHER * self._threads):
            try:
                answered.append(self._answers.get(timeout=_CLOSE_BEHIND))
            except Empty:
                break
        for one in answered:
            if one.outcome.error is not None:
                raise one.outcome.error
        return answered

    def _take(self, stretch: _Stretch, number: int) -> list[Batch]:
        """Up to so many batches whose turn it is."""
        taken: list[Batch] = []
        while len(taken) < number and self._gate.ending is None:
            if stretch.ready:
                taken.append(stretch.ready.popleft())
                continue
            if stretch.exhausted or stretch.held_back >= self._threads * (1 + AHEAD):
                break
            batch = next(stretch.batches, None)
            if batch is None:
                stretch.exhausted = True
                break
            if contract.by_name(batch.operation).is_ordered:
                scope = batch.items[0].scope
                if scope in stretch.waiting:
                    stretch.waiting[scope].append(batch)
                    continue
                stretch.waiting[scope] = deque()
            taken.append(batch)
        return taken

    def _let_next_through(self, stretch: _Stretch, batch: Batch) -> None:
        """The batch is settled: the next of its scope has its turn."""
        scope = batch.items[0].scope
        if not contract.by_name(batch.operation).is_ordered or scope not in stretch.waiting:
            return
        if stretch.waiting[scope]:
            stretch.ready.append(stretch.waiting[scope].popleft())
        else:
            del stretch.waiting[scope]

    def _write(self, stretch: _Stretch, answered: list[_Answered], fresh: list[Batch]) -> list[_Call]:
        """One transaction: takes answers in and writes the next calls down; what is to be sent now."""
        for pause in (*_DATABASE_PATIENCE, None):
            try:
                with writing(self._engine) as connection:
                    turn = self._state.next()
                    calls, left_out = self._turn(connection, turn, answered, fresh)
            except SQLAlchemyError as error:
                if pause is None or not is_away(error):
                    raise
                self._log.warning("database_away", reason=cause_of(error), wait=pause)
                self._sleep(pause)
                continue
            break
        self._state = turn
        if turn.taken_over:
            self._gate.end(Ending(cancelled=False, message=LOCK_LOST))
        if turn.cancel_requested:
            self._gate.end(Ending(cancelled=True, message="cancelled on request"))
        if turn.settled:
            self._progress.advance(turn.settled)
        for batch in left_out:
            self._let_next_through(stretch, batch)
        return calls

    def _turn(
        self, connection: Connection, turn: "_Turn", answered: list[_Answered], fresh: list[Batch]
    ) -> tuple[list[_Call], list[Batch]]:
        if not is_still_applying(connection, self._target.run_id):
            turn.taken_over = True
            return [], []
        now_ms = epoch_ms(self._clock())
        outcomes = Outcomes(ledger_id=self._target.ledger_id, plan_id=self._target.plan_id, tells=SETTLES)
        for one in self._still_ours(connection, answered, now_ms):
            self._take_in(connection, turn, outcomes, one.outcome)
        settle(connection, outcomes, now_ms=now_ms, random=self._random)
        calls, left_out = self._write_down(connection, turn, fresh, now_ms)
        turn.cancel_requested = store_counts(connection, self._target.run_id, turn.counts, turn.calls)
        return calls, left_out

    def _still_ours(self, connection: Connection, answered: list[_Answered], now_ms: int) -> list[_Answered]:
        """The answers to calls that nobody else has settled.

        A process that lost its lock may find that another one took its calls for lost, and has gone on since: what it
        learned is then too old to be written down.
        """
        ours = settle_calls(connection, [one.call.call_id for one in answered], now_ms=now_ms)
        return [one for one in answered if one.call.call_id in ours]

    def _take_in(self, connection: Connection, turn: "_Turn", outcomes: Outcomes, outcome: BatchOutcome) -> None:
        by_ordinal = {item.ordinal: item for item in outcome.batch.items}
        deletes = outcome.batch.items[0].action == "delete"
        if deletes:
            self._take_contents_in(connection, turn, outcomes, outcome)
        done: list[int] = []
        for operation, ordinals in outcome.done.items():
            done.extend(ordinals)
            if deletes:
                outcomes.deleted.extend(ordinals)
            else:
                outcomes.done[operation].extend(ordinals)
        if deletes and outcome.batch.items[0].kind == Kind.ORGANIZATION_USER:
            outcomes.removed_members.extend(done)
        outcomes.added_again.extend(outcome.added_again)
        self._note_unsupported(outcomes, outcome)
        for ordinal, fate in outcome.others.items():
            _sort_in(outcomes, by_ordinal[ordinal], ordinal, fate)
        left_behind = [ordinal for ordinal, fate in outcome.others.items() if fate.fate is Fate.LEFT_BEHIND]
        if left_behind:
            uncover(connection, plan_id=self._target.plan_id, ordinals=left_behind)
            turn.uncovered = True
        turn.calls += outcome.calls
        turn.broken |= any(
            by_ordinal[ordinal].action == "add" for ordinal, fate in outcome.others.items() if fate.fate in _BREAKS
        )
        statuses = dict.fromkeys(done, "done")
        statuses |= {ordinal: _STATUS[fate.fate] for ordinal, fate in outcome.others.items() if fate.fate in _STATUS}
        for ordinal, status in statuses.items():
            turn.count(by_ordinal[ordinal], status)
        if deletes:
            for status in ("done", "failed", "skipped"):
                of_status = [ordinal for ordinal, given in statuses.items() if given == status]
                turn.count_covered(connection, self._target.plan_id, of_status, status)

    def _take_contents_in(
        self, connection: Connection, turn: "_Turn", outcomes: Outcomes, outcome: BatchOutcome
    ) -> None:
        """What was to go along and is told apart has a fate of its own; before the deletes themselves are settled."""
        ordinals = [ordinal for some in outcome.done.values() for ordinal in some]
        contents = take_out_contents(connection, self._target.plan_id, outcome, ordinals)
        for ordinal, fate in contents.fates.items():
            item = contents.items[ordinal]
            if fate.fate is Fate.DONE:
                outcomes.deleted.append(ordinal)
            elif fate.fate is Fate.UNKNOWN:
                outcomes.unknown[ordinal] = fate.message
            else:
                outcomes.failed[ordinal] = fate.message
            turn.count_one(item.kind, "delete", "done" if fate.fate is Fate.DONE else "failed")
        self._look_into_absent(connection, turn, outcomes, outcome)
        if contents.unmentioned:
            outcomes.unconfirmed.extend(contents.unmentioned)
            turn.uncovered = True
        if contents.unknown_names:
            # Somebody who is not ours could not be removed: the group is not empty, and is emptied again next time.
            told = "; ".join(f"{name}: {message}" for name, message in list(contents.unknown_names.items())[:3])
            outcome.done.clear()
            outcome.others |= {ordinal: ItemOutcome(Fate.FAILED, told) for ordinal in ordinals}

    def _look_into_absent(
        self, connection: Connection, turn: "_Turn", outcomes: Outcomes, outcome: BatchOutcome
    ) -> None:
        """A folder that is not there any more may have gone without all that was in it: that is deleted by name."""
        if not outcome.absent:
            return
        covered = covered_items(connection, plan_id=self._target.plan_id, ordinals=outcome.absent)
        unconfirmed = [item.ordinal for item in covered if item.kind != Kind.FOLDER]
        if unconfirmed:
            uncover(connection, plan_id=self._target.plan_id, ordinals=list(outcome.absent))
            outcomes.unconfirmed.extend(unconfirmed)
            turn.uncovered = True

    def _note_unsupported(self, outcomes: Outcomes, outcome: BatchOutcome) -> None:
        """Keeps in mind what is to be told when the backend turns out to have the operation after all, also where the
        settings say that it has none of them: settings change."""
        for operation, ordinals in outcome.done.items():
            if self._sender.tells_without_roles(operation):
                outcomes.without_roles[operation].extend(ordinals)
        for operation, ordinals in outcome.unsupported.items():
            outcomes.owed[operation].extend(ordinals)

    def _write_down(
        self, connection: Connection, turn: "_Turn", fresh: list[Batch], now_ms: int
    ) -> tuple[list[_Call], list[Batch]]:
        """The calls that go out now, and the batches of which nothing is left to send."""
        going: list[Batch] = []
        left_out: list[Batch] = []
        skipped = Outcomes(ledger_id=self._target.ledger_id, plan_id=self._target.plan_id, tells=SETTLES)
        for batch in fresh:
            reasons = self._reasons_against(connection, turn, batch)
            for item in batch.items:
                if item.ordinal in reasons:
                    turn.count(item, "skipped")
                    turn.broken |= item.action == "add"
            if batch.items[0].action == "delete":
                turn.count_covered(connection, self._target.plan_id, list(reasons), "skipped")
            skipped.skipped |= reasons
            rest = tuple(item for item in batch.items if item.ordinal not in reasons)
            if rest:
                going.append(Batch(batch.operation, rest))
            else:
                left_out.append(batch)
        if skipped.skipped:
            settle(connection, skipped, now_ms=now_ms, random=self._random)
        calls = [_Call(batch, turn.next_call_id()) for batch in going]
        journal_calls(
            connection,
            run_id=self._target.run_id,
            plan_id=self._target.plan_id,
            ledger_id=self._target.ledger_id,
            calls=[
                JournalledCall(call.call_id, call.batch.operation, [item.ordinal for item in call.batch.items])
                for call in calls
            ],
            now_ms=now_ms,
        )
        return calls, left_out

    def _reasons_against(self, connection: Connection, turn: "_Turn", batch: Batch) -> dict[int, str]:
        """Items of the batch that must not be sent, with the reasons."""
        if batch.items[0].action == "delete":
            return would_take_others(connection, ledger_id=self._target.ledger_id, items=batch.items)
        if not turn.broken:
            return {}
        return without_what_they_need(
            connection,
            ledger_id=self._target.ledger_id,
            plan_id=self._target.plan_id,
            ordinals=[item.ordinal for item in batch.items],
        )


_STATUS = {
    Fate.FAILED: "failed",
    Fate.UNKNOWN: "failed",
    Fate.LOST: "failed",
    Fate.UNSUPPORTED: "skipped",
    Fate.LEFT_BEHIND: "skipped",
    Fate.SKIPPED: "skipped",
}
_BREAKS = frozenset({Fate.FAILED, Fate.UNKNOWN, Fate.SKIPPED})
"""After an add with one of these fates, what needs the thing must not be tried."""


@dataclass(slots=True)
class _Turn:
    """What we know of the run in memory. A transaction works on a copy, which counts once it is committed."""

    counts: Counts
    calls: int
    """Write calls sent."""
    last_call_id: int
    broken: bool
    """Whether there are adds that came to nothing, so that what needs them has to be looked for."""
    uncovered: bool = False
    """Whether items came up that have to be sent by themselves after all."""
    settled: int = 0
    """Items that this transaction settled."""
    cancel_requested: bool = False
    taken_over: bool = False
    """Whether another process has ended this run: the lock was lost."""

    def next(self) -> "_Turn":
        return _Turn(deepcopy(self.counts), self.calls, self.last_call_id, self.broken, self.uncovered)

    def next_call_id(self) -> int:
        self.last_call_id += 1
        return self.last_call_id

    def count(self, item: PlanItem, status: str) -> None:
        self.count_one(item.kind, item.action, status)

    def count_one(self, kind: str, action: str, status: str) -> None:
        self._count(kind, action, status, 1)

    def count_covered(self, connection: Connection, plan_id: str, ordinals: list[int], status: str) -> None:
        """What these deletes cover shares their fate; to be asked before they are settled."""
        if not ordinals:
            return
        rows = run(
            connection,
            """
            SELECT kind, action, count(*) AS number FROM plan_item
            WHERE plan_id = :plan_id AND status = 'planned' AND covered_by IN (@numbers(ordinals))
            GROUP BY kind, action
            """,
            {"plan_id": plan_id, "ordinals": json_list(ordinals)},
        ).all()
        for row in rows:
            self._count(row.kind, row.action, "done" if status == "done" else "skipped", row.number)

    def _count(self, kind: str, action: str, status: str, number: int) -> None:
        numbers = self.counts.setdefault(kind, {}).setdefault(action, {"planned": 0})
        numbers[status] = numbers.get(status, 0) + number
        self.settled += number


def _sort_in(outcomes: Outcomes, item: PlanItem, ordinal: int, fate: ItemOutcome) -> None:
    match fate.fate:
        case Fate.FAILED:
            outcomes.failed[ordinal] = fate.message
        case Fate.UNKNOWN:
            outcomes.unknown[ordinal] = fate.message
        case Fate.LOST:
            outcomes.lost[ordinal] = fate.message
        case Fate.SKIPPED:
            outcomes.skipped[ordinal] = fate.message
        case Fate.UNSUPPORTED:
            outcomes.unsupported[item.operation].append(ordinal)
        case Fate.LEFT_BEHIND:
            outcomes.left_behind.append(ordinal)
        case _:
            # Not sent: it stays planned, and is cancelled with the rest when the run ends.
            pass


def _in_calls(items: Iterable[PlanItem], batch_size: int) -> Iterator[Batch]:
    """Items of one scope, as many to a call as it may carry."""
    rest = iter(items)
    while first := next(rest, None):
        limit = batch_limit(first.operation, batch_size)
        yield Batch(first.operation, (first, *islice(rest, limit - 1)))


def _phase_name(phase: int) -> str:
    if phase == Phase.DISABLE_ORGANIZATIONS:
        # One operation does both.
        return "enable or disable organizations"
    try:
        return Phase(phase).name.lower().replace("_", " ")
    except ValueError:
        return f"phase {phase}"
