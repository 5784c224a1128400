"""Applies a plan to the backend.

The rules: ``app/sync/apply/README.md``, "Calls".

The caller's thread reads the plan by page and writes to the database. Up to ``max_in_flight`` threads send calls. Each
iteration is one transaction: it settles the answers that have arrived, and records the next calls in the journal before
they are sent. A phase begins when the one before is settled.
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
from app.sync.apply.answers import AnswerProcessor, ApplyState
from app.sync.apply.batch import Batch, BatchOutcome, in_calls
from app.sync.apply.gate import BROKEN, LOCK_LOST, Ending, Gate
from app.sync.apply.progress import Progress
from app.sync.apply.sender import Sender
from app.sync.ledger.counts import Counts, add_counts, phase_totals, read_run_counts
from app.sync.ledger.journal import (
    AnsweredCall,
    JournalledCall,
    journal_calls,
    last_call_id,
    note_answers,
    settle_calls,
)
from app.sync.ledger.settlement import Settlement, is_still_applying, settle, store_counts
from app.sync.plan.dependencies import any_missing, find_dependents, find_unsafe_deletes
from app.sync.plan.rules import Phase
from app.sync.plan.stored import PlanItem, read_items

AHEAD = 3
"""Recorded calls that wait for a free thread, as a multiple of the threads: their work during a transaction."""

TOGETHER = 2
"""The maximum of answers that one transaction settles, as a multiple of the threads."""

_CLOSE_BEHIND = 0.005
"""Seconds to wait for further answers after one has arrived."""
_PAGE = 2000
_DATABASE_PATIENCE = (1.0, 2.0, 4.0, 8.0)
"""Pauses between attempts to reach a database that is unavailable, in seconds. Then the run fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyTarget:
    """The plan to apply, its run and its ledger."""

    run_id: str
    plan_id: str
    ledger_id: int


@dataclass(slots=True)
class _Call:
    """A batch in the journal."""

    batch: Batch
    call_id: int


@dataclass(slots=True)
class _Answered:
    call: _Call
    outcome: BatchOutcome


@dataclass(slots=True)
class _PhaseQueue:
    batches: Iterator[Batch]
    ready: deque[Batch] = field(default_factory=deque)
    """Batches that come before ``batches``, because the call that they waited for is settled."""
    waiting: dict[str, deque[Batch]] = field(default_factory=dict)
    """By scope with a call in flight: the batches that have to wait until it is settled."""
    exhausted: bool = False

    @property
    def held_back(self) -> int:
        return sum(len(batches) for batches in self.waiting.values())


class Applier:
    """Applies one plan, once."""

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
        """``before`` and ``calls``: the counts and calls of the run's earlier plan."""
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
        self._state = ApplyState(before, calls, last_call_id=0, broken=False)
        self._answers: SimpleQueue[_Answered] = SimpleQueue()
        self._log = structlog.stdlib.get_logger(__name__).bind(run_id=target.run_id)

    def apply(self) -> None:
        """Sends what is planned until nothing is left or the gate closes, which then has the reason."""
        with reading(self._engine) as connection:
            self._state.counts = add_counts(self._state.counts, read_run_counts(connection, self._target.plan_id))
            self._state.broken = any_missing(connection, self._target.plan_id)
            self._state.last_call_id = last_call_id(connection)
        with ThreadPoolExecutor(self._threads, thread_name_prefix="apply") as pool:
            try:
                self._apply_planned(pool)
                while self._state.uncovered and self._gate.ending is None:
                    # Items that a delete no longer covers are sent by themselves.
                    self._state.uncovered = False
                    self._apply_planned(pool)
            except BaseException:
                self._gate.end(BROKEN)
                raise

    def _apply_planned(self, pool: ThreadPoolExecutor) -> None:
        totals = phase_totals(self._engine, self._target.plan_id)
        for phase, batches in groupby(self._batches(), key=lambda batch: batch.items[0].phase):
            if self._gate.ending is not None:
                return
            self._progress.phase(_phase_name(phase), totals.get(phase))
            self._apply_phase(pool, _PhaseQueue(batches))

    def _batches(self) -> Iterator[Batch]:
        """The plan as batches: neighbours that share phase, operation, kind and scope, up to the batch size."""
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

    def _apply_phase(self, pool: ThreadPoolExecutor, queue: _PhaseQueue) -> None:
        in_flight = 0
        answered: list[_Answered] = []
        while True:
            for answer in answered:
                self._release_next(queue, answer.call.batch)
            fresh = self._take(queue, self._threads * (1 + AHEAD) - in_flight)
            if answered or fresh:
                for call in self._write(queue, answered, fresh):
                    pool.submit(self._send, call)
                    in_flight += 1
            if in_flight == 0:
                if self._gate.ending is not None or (queue.exhausted and not queue.ready):
                    return
                answered = []
                continue
            answered = self._wait_for_answers(in_flight)
            in_flight -= len(answered)

    def _send(self, call: _Call) -> None:
        self._answers.put(_Answered(call, self._sender.send(call.batch)))

    def _wait_for_answers(self, in_flight: int) -> list[_Answered]:
        """At least one answer, with those that arrive right after it."""
        answered = [self._answers.get()]
        while len(answered) < min(in_flight, TOGETHER * self._threads):
            try:
                answered.append(self._answers.get(timeout=_CLOSE_BEHIND))
            except Empty:
                break
        for answer in answered:
            if answer.outcome.error is not None:
                raise answer.outcome.error
        return answered

    def _take(self, queue: _PhaseQueue, number: int) -> list[Batch]:
        """Up to ``number`` batches that can be sent."""
        taken: list[Batch] = []
        while len(taken) < number and self._gate.ending is None:
            if queue.ready:
                taken.append(queue.ready.popleft())
                continue
            if queue.exhausted or queue.held_back >= self._threads * (1 + AHEAD):
                break
            batch = next(queue.batches, None)
            if batch is None:
                queue.exhausted = True
                break
            if contract.by_name(batch.operation).is_ordered:
                scope = batch.items[0].scope
                if scope in queue.waiting:
                    queue.waiting[scope].append(batch)
                    continue
                queue.waiting[scope] = deque()
            taken.append(batch)
        return taken

    def _release_next(self, queue: _PhaseQueue, batch: Batch) -> None:
        """Makes the next batch of the scope ready after one was settled."""
        scope = batch.items[0].scope
        if not contract.by_name(batch.operation).is_ordered or scope not in queue.waiting:
            return
        if queue.waiting[scope]:
            queue.ready.append(queue.waiting[scope].popleft())
        else:
            del queue.waiting[scope]

    def _write(self, queue: _PhaseQueue, answered: list[_Answered], fresh: list[Batch]) -> list[_Call]:
        """Settles answers and records the next calls in one transaction; returns the calls to send."""
        for pause in (*_DATABASE_PATIENCE, None):
            try:
                with writing(self._engine) as connection:
                    state = self._state.next()
                    calls, left_out = self._settle(connection, state, answered, fresh)
            except SQLAlchemyError as error:
                if pause is None or not is_outage(error):
                    raise
                self._log.warning("database_away", reason=cause_of(error), wait=pause)
                self._sleep(pause)
                continue
            break
        self._state = state
        if state.taken_over:
            self._gate.end(Ending(cancelled=False, message=LOCK_LOST))
        if state.cancel_requested:
            self._gate.end(Ending(cancelled=True, message="cancelled on request"))
        if state.settled:
            self._progress.advance(state.settled)
        for batch in left_out:
            self._release_next(queue, batch)
        return calls

    def _settle(
        self, connection: Connection, state: ApplyState, answered: list[_Answered], fresh: list[Batch]
    ) -> tuple[list[_Call], list[Batch]]:
        if not is_still_applying(connection, self._target.run_id):
            state.taken_over = True
            return [], []
        now_ms = epoch_ms(self._clock())
        settlement = Settlement(ledger_id=self._target.ledger_id, plan_id=self._target.plan_id)
        processor = AnswerProcessor(
            connection=connection, state=state, settlement=settlement, omits_roles=self._sender.omits_roles
        )
        for answer in self._settle_calls(connection, answered, now_ms):
            processor.process(answer.outcome)
        settle(connection, settlement, now_ms=now_ms, random=self._random)
        calls, left_out = self._record(connection, state, fresh, now_ms)
        state.cancel_requested = store_counts(connection, self._target.run_id, state.counts, state.calls)
        return calls, left_out

    def _settle_calls(self, connection: Connection, answered: list[_Answered], now_ms: int) -> list[_Answered]:
        """Marks the calls as settled, and returns those that another process has not settled before.

        After this process lost the lock, another one may have recovered its calls. Their answers are outdated then.
        """
        settled = settle_calls(connection, [answer.call.call_id for answer in answered], now_ms=now_ms)
        ours = [answer for answer in answered if answer.call.call_id in settled]
        note_answers(
            connection, [AnsweredCall(answer.call.call_id, **asdict(answer.outcome.exchange)) for answer in ours]
        )
        return ours

    def _record(
        self, connection: Connection, state: ApplyState, fresh: list[Batch], now_ms: int
    ) -> tuple[list[_Call], list[Batch]]:
        """Records the next calls. Returns them, and the batches of which every item is skipped."""
        going: list[Batch] = []
        left_out: list[Batch] = []
        skipped = Settlement(ledger_id=self._target.ledger_id, plan_id=self._target.plan_id)
        for batch in fresh:
            reasons = self._find_skipped(connection, state, batch)
            for item in batch.items:
                if item.ordinal in reasons:
                    state.count(item.kind, item.action, "skipped")
                    state.broken |= item.action == "add"
            if batch.items[0].action == "delete":
                state.count_covered(connection, self._target.plan_id, list(reasons), "skipped")
            skipped.skipped |= reasons
            rest = tuple(item for item in batch.items if item.ordinal not in reasons)
            if rest:
                going.append(Batch(batch.operation, rest))
            else:
                left_out.append(batch)
        if skipped.skipped:
            settle(connection, skipped, now_ms=now_ms, random=self._random)
        calls = [_Call(batch, state.next_call_id()) for batch in going]
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

    def _find_skipped(self, connection: Connection, state: ApplyState, batch: Batch) -> dict[int, str]:
        """The items of the batch that must not be sent, by ordinal, with the reasons."""
        if batch.items[0].action == "delete":
            return find_unsafe_deletes(connection, self._target.ledger_id, batch.items)
        return find_dependents(connection, self._target.ledger_id, batch.items) if state.broken else {}


def _phase_name(phase: int) -> str:
    if phase == Phase.DISABLE_ORGANIZATIONS:
        return "enable or disable organizations"
    try:
        return Phase(phase).name.lower().replace("_", " ")
    except ValueError:
        return f"phase {phase}"
