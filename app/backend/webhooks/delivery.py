"""The delivery of messages to their receivers.

Any number of workers, on any number of nodes, take queues in turn. To one target messages go one after the other, in
the order of the events as long as none fails; a failure ends the turn, so that a receiver that is down does not hold up
the others. An attempt is recorded as soon as it is over; what a crash leaves unrecorded is sent again under its id.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Thread

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from app.backend.http.dispatch import lock_for_writing
from app.backend.ids import new_id
from app.backend.security.vault import Vault
from app.backend.webhooks import queues
from app.backend.webhooks.encryption import PublicKeyError
from app.backend.webhooks.endpoints import FAILING, GONE
from app.backend.webhooks.outbox import disable_endpoint
from app.backend.webhooks.queues import Due, Queue, Tried
from app.backend.webhooks.schedule import fails_for_days, next_attempt, pause
from app.backend.webhooks.sender import Outcome, Send
from app.backend.webhooks.targets import Target, load_target
from app.backend.webhooks.turns import Turns
from app.foundation.clock import Clock, Sleep, epoch_ms
from app.foundation.database.engine import reading, writing
from app.foundation.database.trouble import cause_of

TURN_MS = 10_000
"""After so long the next queue has its turn."""
KEPT_MS = 30 * 24 * 3600 * 1000
"""How long messages, deliveries and attempts are kept."""
POLL_S = 0.5
_LONGEST_WAIT_S = 30.0
"""Between two looks at a database that does not answer."""
_NAPS_S = (0.5, 2.0, 5.0)
"""Between attempts to record what happened."""
_TIDY_EVERY_MS = 3600 * 1000
_WINDOW_MS = 1001
"""A second, and what is lost when times are cut to milliseconds."""
_SPARE_MS = 60_000
"""What has to be left of a lease before a message is sent: far more than a call may take."""


@dataclass(slots=True)
class _Turn:
    """How a turn has gone so far."""

    not_before: int
    failures: int
    delivered_at: int
    ends: list[int] = field(default_factory=list)
    """When its calls were over."""


@dataclass(kw_only=True)
class DeliveryWorker:
    """One worker, for one thread. ``send`` must be over well within a minute."""

    engine: Engine
    vault: Vault
    clock: Clock
    sleep: Sleep
    entropy: random.Random
    send: Send
    turns: Turns = field(default_factory=Turns)
    """Shared by the workers of a process."""
    _tidied_at: int = field(default=0, init=False)

    def run(self, stop: Event) -> None:
        """Works until ``stop`` is set; what is being sent then is finished first."""
        while not stop.is_set():
            with self.turns.looking:
                queue = self._next_queue(stop)
            if queue is not None:
                try:
                    self._work(queue, stop)
                except Exception as error:  # noqa: BLE001 - the queue's lease runs out, then it is tried again
                    self._tell(error)

    def _next_queue(self, stop: Event) -> Queue | None:
        """Waits until something is due; None when it is told to stop."""
        wait = POLL_S
        while not stop.is_set():
            try:
                self.turns.over.clear()
                queue = self._claim()
                if queue is not None:
                    return queue
                if self.tidy():
                    continue
                wait = POLL_S
                # What is due may be of an API key that has all the turns it may have.
                self.turns.over.wait(wait)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next look must come
                wait = min(2 * wait, _LONGEST_WAIT_S)
                self._tell(error)
                stop.wait(wait)
        return None

    def _tell(self, error: Exception) -> None:
        log = structlog.stdlib.get_logger(__name__)
        if isinstance(error, DBAPIError):
            log.warning(
                "webhook_delivery_waits_for_database", problem=type(error.orig).__name__, reason=cause_of(error)
            )
        else:
            log.error("webhook_delivery_failed", exc_info=error)

    def _claim(self) -> Queue | None:
        queue = queues.claim(self.engine, new_id(self.entropy), self._now(), self.turns.choose)
        if queue is not None:
            self.turns.begin(queue.api_key_id)
        return queue

    def _work(self, queue: Queue, stop: Event) -> None:
        with self.turns.of(queue.api_key_id):
            now = self._now()
            turn = _Turn(now, queue.failures, queue.delivered_at)
            while not stop.is_set() and self._step(queue, turn):
                if self._now() - now > TURN_MS:
                    break
            self._release(queue, turn)

    def tidy(self) -> bool:
        """Now and then deletes old messages. Whether there may be more to delete."""
        now = self._now()
        if now - self._tidied_at < _TIDY_EVERY_MS:
            return False
        if queues.forget(self.engine, now - KEPT_MS) > 0:
            return True
        self._tidied_at = now
        return False

    def _step(self, queue: Queue, turn: _Turn) -> bool:
        """One delivery. Whether to go on."""
        now = self._now()
        if queue.leased_until - now < _SPARE_MS:
            return False
        with reading(self.engine) as connection:
            target = load_target(connection, self.vault, queue)
            due = queues.next_due(connection, queue, now)
        if target is None or due is None:
            return False
        self._keep_pace(turn, target)
        tried = Tried(self._now(), self._try(target, due))
        ended = self._now()
        turn.ends.append(ended)
        if target.rate_limit is not None:
            # The next turn begins as if there had been no calls before it.
            turn.not_before = ended + _WINDOW_MS
        if not tried.outcome.problem:
            turn.failures, turn.delivered_at = 0, ended
            self._record(lambda connection: queues.record_success(connection, queue, due, tried))
            return True
        turn.failures += 1
        turn.not_before = max(turn.not_before, ended + pause(turn.failures))
        self._fail(queue, turn, due, target, tried)
        return False

    def _keep_pace(self, turn: _Turn, target: Target) -> None:
        """Waits until a call is one of at most ``rate_limit`` within a second, also by the receiver's clock: from the
        end of one call to the beginning of the one so many after it.
        """
        if target.rate_limit is not None and len(turn.ends) >= target.rate_limit:
            wait = turn.ends[-target.rate_limit] + _WINDOW_MS - self._now()
            if wait > 0:
                self.sleep(wait / 1000)

    def _try(self, target: Target, due: Due) -> Outcome:
        try:
            headers, body = target.request(due, self.clock(), self.entropy)
        except PublicKeyError:
            # It must not go out as plain text.
            return Outcome("publicKey is not usable")
        return self.send(target.url, headers, body)

    def _fail(self, queue: Queue, turn: _Turn, due: Due, target: Target, tried: Tried) -> None:
        """Records a failure, and disables an endpoint for the last one."""
        now = self._now()
        first = tried.at if due.first_failed_at is None else due.first_failed_at
        next_at = next_attempt(due.attempts + 1, now, first, tried.outcome.asked_s, self.entropy)
        reason = ""
        if target.is_endpoint and tried.outcome.is_gone:
            reason = GONE
        elif target.is_endpoint and next_at is None and fails_for_days(now, first, turn.delivered_at):
            reason = FAILING
        log = structlog.stdlib.get_logger(__name__)
        log.warning(
            "webhook_failed" if next_at is None else "webhook_will_be_retried",
            target=queue.target,
            message=due.message_id,
            attempt=due.attempts + 1,
            problem=tried.outcome.problem,
        )

        def record(connection: Connection) -> None:
            if reason:
                self._disable(connection, queue, reason, now)
            queues.record_failure(connection, queue, due, tried, next_at=next_at, first_failed_at=first)

        self._record(record)

    def _record(self, record: Callable[[Connection], None]) -> None:
        """Runs ``record`` in a transaction, patiently: what is not recorded is sent again."""
        for nap in _NAPS_S:
            try:
                with writing(self.engine) as connection:
                    record(connection)
            except DBAPIError:
                self.sleep(nap)
            else:
                return
        with writing(self.engine) as connection:
            record(connection)

    def _disable(self, connection: Connection, queue: Queue, reason: str, now: int) -> None:
        lock_for_writing(connection, queue.api_key_id)
        disable_endpoint(connection, queue.api_key_id, queue.target, reason=reason, now=now, entropy=self.entropy)

    def _release(self, queue: Queue, turn: _Turn) -> None:
        with writing(self.engine) as connection:
            if queues.hold(connection, queue):
                queues.release(
                    connection,
                    queue,
                    # It goes to the end of the queue of queues.
                    not_before=max(turn.not_before, self._now()),
                    failures=turn.failures,
                    delivered_at=turn.delivered_at,
                    parked=load_target(connection, self.vault, queue) is None,
                )

    def _now(self) -> int:
        return epoch_ms(self.clock())


def run_workers(make: Callable[[], DeliveryWorker], number: int, stop: Event) -> None:
    """Runs so many workers, each in a thread, until ``stop`` is set and they are done."""
    threads = start_workers(make, number, stop)
    # In pieces, so that the signals that set `stop` are heard.
    while not stop.wait(0.5):
        pass
    join(threads)


def start_workers(make: Callable[[], DeliveryWorker], number: int, stop: Event) -> list[Thread]:
    """The same, without waiting."""
    workers = [make() for _ in range(number)]
    turns = Turns(number)
    for worker in workers:
        worker.turns = turns
    threads = [
        # A daemon: whoever ends the process without setting `stop` is not held up.
        Thread(target=worker.run, args=(stop,), name=f"webhooks-{index}", daemon=True)
        for index, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    return threads


def join(threads: Sequence[Thread]) -> None:
    """Waits for workers that were told to stop."""
    for thread in threads:
        with suppress(KeyboardInterrupt):
            thread.join()
