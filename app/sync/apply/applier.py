"""Applies a plan to the backend.

The rules: ``app/sync/apply/README.md``, "Calls".

The caller's thread reads the plan by page and writes to the database. Up to ``max_in_flight`` threads send calls. Each
iteration is one transaction: it settles the answers that have arrived, and records the next calls in the journal before
they are sent. A phase begins when the one before is settled.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
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
from app.sync.apply.batch import Batch, BatchOutcome, in_parts
from app.sync.apply.gate import BROKEN, CANCELLED, LOCK_LOST, Ending, Gate
from app.sync.apply.progress import Progress
from app.sync.apply.requests import batch_limit
from app.sync.apply.sender import BatchSender
from app.sync.ledger.items import ItemStatus
from app.sync.ledger.journal import JournalledCall, journal_calls, last_call_id, note_exchanges, settle_calls
from app.sync.ledger.settlement import Settlement, is_still, settle, store_counts
from app.sync.plan.counts import Counts, add_counts, phase_totals, read_run_counts
from app.sync.plan.dependencies import any_unsent_adds, find_dependents, find_unsafe_deletes
from app.sync.plan.rules import Action, Phase
from app.sync.plan.stored import PlanItem, read_planned

_log = structlog.stdlib.get_logger(__name__)

AHEAD = 3
"""Recorded calls that wait for a free thread, as a multiple of the threads: their work during a transaction."""

TOGETHER = 2
"""The maximum of answers that one transaction settles, as a multiple of the threads."""

_CLOSE_BEHIND = 0.005
"""Seconds to wait for further answers after one has arrived."""

_PAGE = 2000
"""Items of the plan that are read together."""

_DATABASE_PATIENCE = (1.0, 2.0, 4.0, 8.0)
"""Pauses between attempts to reach a database that is unavailable, in seconds. Then the run fails."""


@dataclass(slots=True)
class _PhaseQueue:
    """The batches of one phase. Of an ordered operation, one batch of a scope is sent at a time."""

    batches: Iterator[Batch]
    ready: deque[Batch] = field(default_factory=deque)
    """Batches that come before ``batches``, because the call that they waited for is settled."""
    waiting: dict[str, deque[Batch]] = field(default_factory=dict)
    """A scope with a call in flight → the batches that have to wait until it is settled."""
    is_exhausted: bool = False

    @property
    def is_empty(self) -> bool:
        return self.is_exhausted and not self.ready

    def next_batch(self, most_waiting: int) -> Batch | None:
        """The next batch that can be sent. None if there is none, or if ``most_waiting`` batches have to wait."""
        while not self.ready:
            if self.is_exhausted or sum(map(len, self.waiting.values())) >= most_waiting:
                return None
            batch = next(self.batches, None)
            if batch is None:
                self.is_exhausted = True
                return None
            if not contract.by_name(batch.operation).is_ordered:
                return batch
            scope = batch.items[0].scope
            if scope not in self.waiting:
                self.waiting[scope] = deque()
                return batch
            self.waiting[scope].append(batch)
        return self.ready.popleft()

    def release_next(self, batch: Batch) -> None:
        """Makes the next batch of the scope ready after one was settled."""
        scope = batch.items[0].scope
        if not contract.by_name(batch.operation).is_ordered or scope not in self.waiting:
            return
        if self.waiting[scope]:
            self.ready.append(self.waiting[scope].popleft())
        else:
            del self.waiting[scope]


@dataclass(kw_only=True)
class Applier:
    """Applies one plan, once."""

    engine: Engine
    run_id: str
    plan_id: str
    ledger_id: int
    sender: BatchSender
    gate: Gate
    threads: int
    progress: Progress
    clock: Clock
    sleep: Sleep
    random: Random
    counts_before: Counts
    """The counts of the run's earlier plan."""
    calls_before: int
    """The number of its calls."""
    _state: ApplyState = field(init=False)
    _answers: SimpleQueue[tuple[int, BatchOutcome]] = field(default_factory=SimpleQueue, init=False)
    """Outcomes with the ids of their calls."""

    def apply(self) -> None:
        """Sends what is planned until nothing is left or the gate closes, which then has the reason."""
        with reading(self.engine) as connection:
            self._state = ApplyState(
                counts=add_counts(self.counts_before, read_run_counts(connection, self.plan_id)),
                calls=self.calls_before,
                last_call_id=last_call_id(connection),
                broken=any_unsent_adds(connection, self.plan_id),
            )
        with ThreadPoolExecutor(self.threads, thread_name_prefix="apply") as pool:
            try:
                self._apply_planned(pool)
                while self._state.uncovered and self.gate.ending is None:
                    # Items that a delete no longer covers are sent by themselves.
                    self._state.uncovered = False
                    self._apply_planned(pool)
            except BaseException:
                self.gate.end(BROKEN)
                raise

    def _apply_planned(self, pool: ThreadPoolExecutor) -> None:
        totals = phase_totals(self.engine, self.plan_id)
        for phase, batches in groupby(self._batches(), key=lambda batch: batch.items[0].phase):
            if self.gate.ending is not None:
                return
            self.progress.phase(_phase_name(phase), totals.get(phase))
            self._apply_phase(pool, _PhaseQueue(batches))

    def _batches(self) -> Iterator[Batch]:
        """The plan as batches: neighbours that share phase, operation, kind and scope, up to the batch size."""
        for (_, operation, *_), together in groupby(self._items(), attrgetter("phase", "operation", "kind", "scope")):
            for items in in_parts(together, batch_limit(operation, self.sender.batch_size)):
                yield Batch(operation, tuple(items))

    def _items(self) -> Iterator[PlanItem]:
        after = 0
        while True:
            with reading(self.engine) as connection:
                page = read_planned(connection, self.plan_id, after=after, limit=_PAGE)
            if not page:
                return
            after = page[-1].ordinal
            yield from page

    def _apply_phase(self, pool: ThreadPoolExecutor, queue: _PhaseQueue) -> None:
        in_flight = 0
        answered: dict[int, BatchOutcome] = {}
        while True:
            for outcome in answered.values():
                queue.release_next(outcome.batch)
            fresh = self._next_batches(queue, in_flight)
            if answered or fresh:
                for call_id, batch in self._write(queue, answered, fresh).items():
                    pool.submit(self._send, call_id, batch)
                    in_flight += 1
            if in_flight == 0:
                if self.gate.ending is not None or queue.is_empty:
                    return
                answered = {}
                continue
            answered = self._wait_for_answers(in_flight)
            in_flight -= len(answered)

    def _send(self, call_id: int, batch: Batch) -> None:
        self._answers.put((call_id, self.sender.send(batch)))

    def _wait_for_answers(self, in_flight: int) -> dict[int, BatchOutcome]:
        """At least one answer, with those that arrive right after it, by call."""
        answered = dict([self._answers.get()])
        while len(answered) < min(in_flight, TOGETHER * self.threads):
            try:
                call_id, outcome = self._answers.get(timeout=_CLOSE_BEHIND)
            except Empty:
                break
            answered[call_id] = outcome
        for outcome in answered.values():
            if outcome.error is not None:
                raise outcome.error
        return answered

    def _next_batches(self, queue: _PhaseQueue, in_flight: int) -> list[Batch]:
        """The batches to send next, so that the threads have work during a transaction."""
        most = self.threads * (1 + AHEAD)
        batches: list[Batch] = []
        while len(batches) < most - in_flight and self.gate.ending is None and (batch := queue.next_batch(most)):
            batches.append(batch)
        return batches

    def _write(self, queue: _PhaseQueue, answered: dict[int, BatchOutcome], fresh: list[Batch]) -> dict[int, Batch]:
        """Settles answers and records the next calls in one transaction. Returns the batches to send, by call, after
        the commit."""
        for pause in (*_DATABASE_PATIENCE, None):
            try:
                with writing(self.engine) as connection:
                    state = self._state.next()
                    calls, left_out = self._settle_answers(connection, state, answered, fresh)
            except SQLAlchemyError as error:
                if pause is None or not is_outage(error):
                    raise
                _log.warning("database_away", run_id=self.run_id, reason=cause_of(error), wait=pause)
                self.sleep(pause)
                continue
            break
        self._state = state
        if state.taken_over:
            self.gate.end(Ending(LOCK_LOST))
        if state.cancel_requested:
            self.gate.end(CANCELLED)
        if state.settled:
            self.progress.advance(state.settled)
        for batch in left_out:
            queue.release_next(batch)
        return calls

    def _settle_answers(
        self, connection: Connection, state: ApplyState, answered: dict[int, BatchOutcome], fresh: list[Batch]
    ) -> tuple[dict[int, Batch], list[Batch]]:
        """Settles answers and records the next calls, as ``_journal``."""
        if not is_still(connection, self.run_id, "applying"):
            state.taken_over = True
            return {}, []
        now_ms = epoch_ms(self.clock())
        settlement = Settlement(ledger_id=self.ledger_id, plan_id=self.plan_id)
        processor = AnswerProcessor(
            connection=connection, state=state, settlement=settlement, omits_roles=self.sender.calls.omits_roles
        )
        # If this process lost the lock, another one may have recovered its calls. Their answers are outdated then.
        settled = settle_calls(connection, list(answered), now_ms=now_ms)
        ours = {call_id: outcome for call_id, outcome in answered.items() if call_id in settled}
        note_exchanges(connection, {call_id: outcome.exchange for call_id, outcome in ours.items() if outcome.exchange})
        for outcome in ours.values():
            processor.process(outcome)
        settle(connection, settlement, now_ms=now_ms, random=self.random)
        calls, left_out = self._journal(connection, state, fresh, now_ms)
        state.cancel_requested = store_counts(connection, self.run_id, state.counts, state.calls)
        return calls, left_out

    def _journal(
        self, connection: Connection, state: ApplyState, fresh: list[Batch], now_ms: int
    ) -> tuple[dict[int, Batch], list[Batch]]:
        """Records the next calls. Returns their batches by call, and the batches of which every item is skipped."""
        going: list[Batch] = []
        left_out: list[Batch] = []
        skipped = Settlement(ledger_id=self.ledger_id, plan_id=self.plan_id)
        for batch in fresh:
            reasons = self._find_skipped(connection, state, batch)
            for item in batch.items:
                if item.ordinal in reasons:
                    state.count(item.kind, item.action, ItemStatus.SKIPPED)
                    state.broken |= item.action == Action.ADD
            if batch.items[0].action == Action.DELETE:
                state.count_covered(connection, self.plan_id, list(reasons), ItemStatus.SKIPPED)
            skipped.skipped |= reasons
            rest = tuple(item for item in batch.items if item.ordinal not in reasons)
            if rest:
                going.append(Batch(batch.operation, rest))
            else:
                left_out.append(batch)
        if skipped.skipped:
            settle(connection, skipped, now_ms=now_ms, random=self.random)
        calls = {state.next_call_id(): batch for batch in going}
        journal_calls(
            connection,
            run_id=self.run_id,
            plan_id=self.plan_id,
            ledger_id=self.ledger_id,
            calls=[
                JournalledCall(call_id, batch.operation, [item.ordinal for item in batch.items])
                for call_id, batch in calls.items()
            ],
            now_ms=now_ms,
        )
        return calls, left_out

    def _find_skipped(self, connection: Connection, state: ApplyState, batch: Batch) -> dict[int, str]:
        """The items of the batch that must not be sent, by ordinal, with the reasons."""
        if batch.items[0].action == Action.DELETE:
            return find_unsafe_deletes(connection, self.ledger_id, batch.items)
        return find_dependents(connection, self.ledger_id, batch.items) if state.broken else {}


def _phase_name(phase: int) -> str:
    if phase == Phase.DISABLE_ORGANIZATIONS:
        return "enable or disable organizations"
    try:
        return Phase(phase).name.lower().replace("_", " ")
    except ValueError:
        return f"phase {phase}"
