"""The workers that deliver webhook messages.

Any number of workers on any number of nodes lease queues in turn. A target gets its messages one after the other, in
the order of the events until one fails. A failure ends the turn, so that a broken receiver does not delay others.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from app.backend.ids import new_id
from app.backend.security.vault import Vault
from app.backend.storage.locks import lock_for_writing
from app.backend.webhooks import queues
from app.backend.webhooks.endpoints import FAILING, GONE
from app.backend.webhooks.outbox import disable_endpoint
from app.backend.webhooks.payload import PublicKeyError
from app.backend.webhooks.queues import Delivery, DeliveryAttempt, Queue
from app.backend.webhooks.retries import backoff_ms, is_failing, next_attempt_at
from app.backend.webhooks.sender import Outcome, Send
from app.backend.webhooks.targets import Target, load_target
from app.foundation.clock import Clock, Sleep, epoch_ms, from_epoch_ms
from app.foundation.database.engine import reading, writing
from app.foundation.database.errors import cause_of
from app.foundation.outbound.http_dates import retry_after_seconds

_log = structlog.stdlib.get_logger(__name__)

TURN_MS = 10_000
"""After this time a worker leases another queue."""
RETENTION_MS = 30 * 24 * 3600 * 1000
"""How long messages and deliveries are kept."""
POLL_S = 0.5
_MAX_DATABASE_PAUSE_S = 30.0
"""The longest pause between polls of an unavailable database."""
_RECORD_PAUSES_S = (0.5, 2.0, 5.0)
"""Pauses between tries to store an attempt."""
_TIDY_INTERVAL_MS = 3600 * 1000
_RATE_WINDOW_MS = 1001
"""A second, and one millisecond for the rounding of times."""
_MIN_LEASE_MS = 60_000
"""The remaining lease that a send requires. It is much longer than a send may take."""


@dataclass(slots=True)
class _Turn:
    """The state of a worker's turn with one queue."""

    not_before: int
    failures: int
    delivered_at: int
    sent_at: list[int] = field(default_factory=list)
    """The end of each request."""


@dataclass(kw_only=True)
class DeliveryWorker:
    """A worker for one thread. ``send`` must return within a minute."""

    engine: Engine
    vault: Vault
    clock: Clock
    sleep: Sleep
    entropy: random.Random
    send: Send
    polling: Lock = field(default_factory=Lock)
    """Shared by the workers of a process. One polls the database, and the others wait for it."""
    _tidied_at: int = field(default=0, init=False)

    def run(self, stop: Event) -> None:
        """Works until ``stop`` is set, and finishes the current request."""
        while not stop.is_set():
            with self.polling:
                queue = self._next_queue(stop)
            if queue is not None:
                try:
                    self._work(queue, stop)
                except Exception as error:  # noqa: BLE001 - the lease ends, then a worker tries again
                    _log_error(error)

    def _next_queue(self, stop: Event) -> Queue | None:
        """Waits for a due queue. None if ``stop`` was set."""
        pause = POLL_S
        while not stop.is_set():
            try:
                queue = queues.claim(self.engine, new_id(self.entropy), self._now())
                if queue is not None:
                    return queue
                if not self.tidy():
                    stop.wait(POLL_S)
                pause = POLL_S
            except Exception as error:  # noqa: BLE001 - polling must go on
                pause = min(2 * pause, _MAX_DATABASE_PAUSE_S)
                _log_error(error)
                stop.wait(pause)
        return None

    def _work(self, queue: Queue, stop: Event) -> None:
        now = self._now()
        turn = _Turn(now, queue.failures, queue.delivered_at)
        while not stop.is_set() and self._deliver_next(queue, turn):
            if self._now() - now > TURN_MS:
                break
        self._release(queue, turn)

    def tidy(self) -> bool:
        """Deletes a batch of old messages once per hour. Returns whether there may be more."""
        now = self._now()
        if now - self._tidied_at < _TIDY_INTERVAL_MS:
            return False
        if queues.delete_old_messages(self.engine, now - RETENTION_MS) > 0:
            return True
        self._tidied_at = now
        return False

    def _deliver_next(self, queue: Queue, turn: _Turn) -> bool:
        """Delivers one message. Returns whether the turn goes on."""
        now = self._now()
        if queue.leased_until - now < _MIN_LEASE_MS:
            return False
        with reading(self.engine) as connection:
            target = load_target(connection, self.vault, queue)
            delivery = queues.next_delivery(connection, queue, now)
        if target is None or delivery is None:
            return False
        self._wait_for_rate_limit(turn, target)
        attempt = DeliveryAttempt(delivery, self._now(), self._send(target, delivery))
        ended_at = self._now()
        turn.sent_at.append(ended_at)
        if target.rate_limit is not None:
            # The next turn starts without the times of these requests.
            turn.not_before = ended_at + _RATE_WINDOW_MS
        if attempt.outcome.problem:
            turn.failures += 1
            turn.not_before = max(turn.not_before, ended_at + backoff_ms(turn.failures))
            self._record_failure(queue, turn, target, attempt)
            return False
        turn.failures, turn.delivered_at = 0, ended_at
        self._write(lambda connection: queues.record_attempt(connection, queue, attempt))
        return True

    def _wait_for_rate_limit(self, turn: _Turn, target: Target) -> None:
        """Waits until the rate limit permits a request. Measured from the end of one request to the start of another,
        it also holds by the receiver's clock."""
        if target.rate_limit is not None and len(turn.sent_at) >= target.rate_limit:
            wait = turn.sent_at[-target.rate_limit] + _RATE_WINDOW_MS - self._now()
            if wait > 0:
                self.sleep(wait / 1000)

    def _send(self, target: Target, delivery: Delivery) -> Outcome:
        try:
            headers, body = target.request(delivery, self.clock(), self.entropy)
        except PublicKeyError:
            # The body must not be sent as plain text.
            return Outcome("publicKey is not usable")
        return self.send(target.url, headers, body)

    def _record_failure(self, queue: Queue, turn: _Turn, target: Target, attempt: DeliveryAttempt) -> None:
        """Stores a failure, and disables an endpoint that is gone or failing."""
        delivery, started_at, outcome = attempt
        now, attempts = self._now(), delivery.attempts + 1
        first_failed_at = started_at if delivery.first_failed_at is None else delivery.first_failed_at
        retry_after_s = retry_after_seconds(outcome.retry_after, from_epoch_ms(now)) or 0.0
        next_at = next_attempt_at(attempts, now, first_failed_at, retry_after_s, self.entropy)
        reason = ""
        if target.is_endpoint and outcome.status_code == 410:
            reason = GONE
        elif target.is_endpoint and next_at is None and is_failing(now, first_failed_at, turn.delivered_at):
            reason = FAILING
        _log.warning(
            "webhook_failed" if next_at is None else "webhook_will_be_retried",
            target=queue.target,
            message=delivery.message_id,
            attempt=attempts,
            problem=outcome.problem,
        )

        def write(connection: Connection) -> None:
            if reason:
                lock_for_writing(connection, queue.api_key_id)
                disable_endpoint(
                    connection, queue.api_key_id, queue.target, reason=reason, now=now, entropy=self.entropy
                )
            queues.record_attempt(connection, queue, attempt, next_at=next_at, first_failed_at=first_failed_at)

        self._write(write)

    def _write(self, write: Callable[[Connection], None]) -> None:
        """Calls ``write`` in a transaction, and retries it. An attempt that is not stored is sent again."""
        for pause in _RECORD_PAUSES_S:
            try:
                with writing(self.engine) as connection:
                    write(connection)
            except DBAPIError:
                self.sleep(pause)
            else:
                return
        with writing(self.engine) as connection:
            write(connection)

    def _release(self, queue: Queue, turn: _Turn) -> None:
        with writing(self.engine) as connection:
            if queues.lock(connection, queue):
                queues.release(
                    connection,
                    queue,
                    # At least now, so that the other queues go first.
                    not_before=max(turn.not_before, self._now()),
                    failures=turn.failures,
                    delivered_at=turn.delivered_at,
                    parked=load_target(connection, self.vault, queue) is None,
                )

    def _now(self) -> int:
        return epoch_ms(self.clock())


def _log_error(error: Exception) -> None:
    if isinstance(error, DBAPIError):
        _log.warning("webhook_delivery_waits_for_database", problem=type(error.orig).__name__, reason=cause_of(error))
    else:
        _log.error("webhook_delivery_failed", exc_info=error)


def start_workers(make: Callable[[], DeliveryWorker], count: int) -> Callable[[], None]:
    """Starts workers in threads. Returns a function that stops them and waits for their current requests."""
    polling, stop = Lock(), Event()
    threads: list[Thread] = []
    for index in range(count):
        worker = make()
        worker.polling = polling
        # A daemon thread does not keep alive a process that ends without stopping it.
        threads.append(Thread(target=worker.run, args=(stop,), name=f"webhooks-{index}", daemon=True))
        threads[-1].start()

    def end() -> None:
        stop.set()
        for thread in threads:
            with suppress(KeyboardInterrupt):
                thread.join()

    return end
