"""Applies a plan to the backend.

The rules: ``app/sync/apply/README.md``, "Calls".

One thread, the caller's, reads the plan by page and writes to the database; up to ``max_in_flight`` others send calls.
Each turn of the loop is one transaction: it settles the answers that have arrived, and records the next calls in the
journal before they are sent. A phase begins when the one before is settled.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import groupby
from queue import Empty, SimpleQueue
from random import Random

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from app.contract import operations as contract
from app.foundation.clock import Clock, Sleep, epoch_ms
from app.foundation.database.engine import reading, writing
from app.foundation.database.errors import cause_of, is_outage
from app.sync.apply.answers import TakingIn, Turn
from app.sync.apply.batch import Batch, BatchOutcome, in_calls
from app.sync.apply.gate import BROKEN, LOCK_LOST, Ending, Gate
from app.sync.apply.progress import Progress
from app.sync.apply.sender import Sender
from app.sync.ledger.journal import (
    AnsweredCall,
    JournalledCall,
    journal_calls,
    last_call_id,
    note_answers,
    settle_calls,
)
from app.sync.ledger.settlement import (
    Counts,
    Outcomes,
    add_counts,
    is_still_applying,
    phase_totals,
    read_counts,
    settle,
    store_counts,
)
from app.sync.plan.dependencies import any_missing, find_dependents, find_unsafe_deletes
from app.sync.plan.rules import SETTLES, Phase
from app.sync.plan.stored import PlanItem, read_items

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
class ApplyTarget:
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
        target: ApplyTarget,
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
        self._state = Turn(before, calls, last_call_id=0, broken=False)
        self._answers: SimpleQueue[_Answered] = SimpleQueue()
        self._log = structlog.stdlib.get_logger(__name__).bind(run_id=target.run_id)

    def apply(self) -> None:
        """Sends what is planned, until there is nothing left or the gate closes; the gate then says why."""
        with reading(self._engine) as connection:
            self._state.counts = add_counts(self._state.counts, read_counts(connection, self._target.plan_id))
            self._state.broken = any_missing(connection, self._target.plan_id)
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
            yield from in_calls(together, self._batch_size)

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
                if pause is None or not is_outage(error):
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
        self, connection: Connection, turn: Turn, answered: list[_Answered], fresh: list[Batch]
    ) -> tuple[list[_Call], list[Batch]]:
        if not is_still_applying(connection, self._target.run_id):
            turn.taken_over = True
            return [], []
        now_ms = epoch_ms(self._clock())
        outcomes = Outcomes(ledger_id=self._target.ledger_id, plan_id=self._target.plan_id, tells=SETTLES)
        taking_in = TakingIn(
            connection=connection,
            turn=turn,
            outcomes=outcomes,
            tells_without_roles=self._sender.tells_without_roles,
        )
        for one in self._still_ours(connection, answered, now_ms):
            taking_in.take_in(one.outcome)
        settle(connection, outcomes, now_ms=now_ms, random=self._random)
        calls, left_out = self._write_down(connection, turn, fresh, now_ms)
        turn.cancel_requested = store_counts(connection, self._target.run_id, turn.counts, turn.calls)
        return calls, left_out

    def _still_ours(self, connection: Connection, answered: list[_Answered], now_ms: int) -> list[_Answered]:
        """The answers to calls that nobody else has settled.

        A process that lost its lock may find that another one took its calls for lost, and has gone on since: what it
        learned is then too old to be written down.
        """
        settled = settle_calls(connection, [one.call.call_id for one in answered], now_ms=now_ms)
        ours = [one for one in answered if one.call.call_id in settled]
        note_answers(
            connection,
            [AnsweredCall(one.call.call_id, **asdict(one.outcome.exchange)) for one in ours],
        )
        return ours

    def _write_down(
        self, connection: Connection, turn: Turn, fresh: list[Batch], now_ms: int
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

    def _reasons_against(self, connection: Connection, turn: Turn, batch: Batch) -> dict[int, str]:
        """Items of the batch that must not be sent, with the reasons."""
        if batch.items[0].action == "delete":
            return find_unsafe_deletes(connection, self._target.ledger_id, batch.items)
        return find_dependents(connection, self._target.ledger_id, batch.items) if turn.broken else {}


def _phase_name(phase: int) -> str:
    if phase == Phase.DISABLE_ORGANIZATIONS:
        # One operation does both.
        return "enable or disable organizations"
    try:
        return Phase(phase).name.lower().replace("_", " ")
    except ValueError:
        return f"phase {phase}"
