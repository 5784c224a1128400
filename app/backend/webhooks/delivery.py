"""How do messages reach their receivers?

Any number of workers, on any number of nodes, take lanes in turn. To one target messages go one after the other, in the
order of the events as long as none fails; a failure ends the turn, so that a receiver that is down does not hold up the
others. An attempt is recorded as soon as it is over; what a crash leaves unrecorded is sent again under its id.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Thread

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from app.backend.call import Clock, Sleep, new_id
from app.backend.dispatch import one_writer
from app.backend.vault import Vault
from app.backend.webhooks import lanes
from app.backend.webhooks.disabling import disable_endpoint
from app.backend.webhooks.encryption import PublicKeyError
from app.backend.webhooks.endpoints import FAILING, GONE
from app.backend.webhooks.lanes import Due, Lane, Tried
from app.backend.webhooks.schedule import fails_for_days, next_attempt, pause
from app.backend.webhooks.sender import Outcome, Send
from app.backend.webhooks.targets import Target, load_target
from app.database.engine import reading, writing

TURN_MS = 10_000
"""After so long the next lane has its turn."""
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
class Worker:
    """One worker, for one thread. `send` must be over well within a minute."""

    engine: Engine
    vault: Vault
    clock: Clock
    sleep: Sleep
    entropy: random.Random
    send: Send
    _tidied_at: int = field(default=0, init=False)

    def run(self, stop: Event) -> None:
        """Works until `stop` is set; what is being sent then is finished first."""
        log = structlog.stdlib.get_logger(__name__)
        wait = POLL_S
        while not stop.is_set():
            try:
                if self.take_turn(stop) or self.tidy():
                    continue
                wait = POLL_S
            except DBAPIError as error:
                wait = min(2 * wait, _LONGEST_WAIT_S)
                log.warning("webhook_delivery_waits_for_database", problem=type(error.orig).__name__)
            except Exception:
                # The lane's lease runs out, then it is tried again; all the others must not wait for that.
                log.exception("webhook_delivery_failed")
            stop.wait(wait)

    def take_turn(self, stop: Event) -> bool:
        """Sends what is due in one lane. False when none is."""
        now = self._now()
        lane = lanes.claim(self.engine, new_id(self.entropy), now)
        if lane is None:
            return False
        turn = _Turn(now, lane.failures, lane.delivered_at)
        while not stop.is_set() and self._step(lane, turn):
            if self._now() - now > TURN_MS:
                break
        self._release(lane, turn)
        return True

    def tidy(self) -> bool:
        """Now and then deletes old messages. Whether there may be more to delete."""
        now = self._now()
        if now - self._tidied_at < _TIDY_EVERY_MS:
            return False
        if lanes.forget(self.engine, now - KEPT_MS) > 0:
            return True
        self._tidied_at = now
        return False

    def _step(self, lane: Lane, turn: _Turn) -> bool:
        """One delivery. Whether to go on."""
        now = self._now()
        if lane.leased_until - now < _SPARE_MS:
            return False
        with reading(self.engine) as connection:
            target = load_target(connection, self.vault, lane)
            due = lanes.next_due(connection, lane, now)
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
            self._record(lambda connection: lanes.record_success(connection, lane, due, tried))
            return True
        turn.failures += 1
        turn.not_before = max(turn.not_before, ended + pause(turn.failures))
        self._fail(lane, turn, due, target, tried)
        return False

    def _keep_pace(self, turn: _Turn, target: Target) -> None:
        """Waits until a call is one of at most `rate_limit` within a second, also by the receiver's clock: from the end
        of one call to the beginning of the one so many after it.
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

    def _fail(self, lane: Lane, turn: _Turn, due: Due, target: Target, tried: Tried) -> None:
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
            target=lane.target,
            message=due.message_id,
            attempt=due.attempts + 1,
            problem=tried.outcome.problem,
        )

        def record(connection: Connection) -> None:
            if reason:
                self._disable(connection, lane, reason, now)
            lanes.record_failure(connection, lane, due, tried, next_at=next_at, first_failed_at=first)

        self._record(record)

    def _record(self, record: Callable[[Connection], None]) -> None:
        """Runs `record` in a transaction, patiently: what is not recorded is sent again."""
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

    def _disable(self, connection: Connection, lane: Lane, reason: str, now: int) -> None:
        one_writer(connection, lane.api_key_id)
        disable_endpoint(connection, lane.api_key_id, lane.target, reason=reason, now=now, entropy=self.entropy)

    def _release(self, lane: Lane, turn: _Turn) -> None:
        with writing(self.engine) as connection:
            if lanes.hold(connection, lane):
                lanes.release(
                    connection,
                    lane,
                    # It goes to the end of the queue of lanes.
                    not_before=max(turn.not_before, self._now()),
                    failures=turn.failures,
                    delivered_at=turn.delivered_at,
                    parked=load_target(connection, self.vault, lane) is None,
                )

    def _now(self) -> int:
        return int(self.clock().timestamp() * 1000)


def run_workers(make: Callable[[], Worker], number: int, stop: Event) -> None:
    """Runs so many workers, each in a thread, until `stop` is set and they are done."""
    threads = start_workers(make, number, stop)
    # In pieces, so that the signals that set `stop` are heard.
    while not stop.wait(0.5):
        pass
    join(threads)


def start_workers(make: Callable[[], Worker], number: int, stop: Event) -> list[Thread]:
    """The same, without waiting."""
    threads = [
        # A daemon: whoever ends the process without setting `stop` is not held up.
        Thread(target=make().run, args=(stop,), name=f"webhooks-{index}", daemon=True)
        for index in range(number)
    ]
    for thread in threads:
        thread.start()
    return threads


def join(threads: Sequence[Thread]) -> None:
    """Waits for workers that were told to stop."""
    for thread in threads:
        with suppress(KeyboardInterrupt):
            thread.join()
