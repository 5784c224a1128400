"""The watch: finds concerns that are new, have changed or are over, and notifies the channels.

Workers and services run it in a thread of their own, so that nothing waits for a mail server. It compares the current
concerns with the reported ones and writes a log line and a message for each difference. A concern that only continues
is not reported again.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from random import Random
from threading import Event

import structlog
from sqlalchemy import Connection, Engine

from app.foundation.clock import Clock, epoch_ms, utc_text
from app.foundation.database.engine import reading, writing
from app.foundation.database.errors import database_problem, is_outage
from app.monitoring.notify.concerns import Cause, Concern
from app.monitoring.notify.message import Channel, ConcernEvent, Message, NotDeliveredError, message_body
from app.monitoring.notify.outbox import (
    WaitingMessage,
    add_message,
    clean_up,
    delete_concern,
    due_messages,
    lock_watch,
    open_concerns,
    settle,
    store_concern,
    take_lease,
)

_log = structlog.stdlib.get_logger(__name__)

FindConcerns = Callable[[Connection, datetime], Sequence[Concern]]
"""Returns the concerns at a moment."""

_MAX_INTERVAL = 120.0
"""Seconds between two ticks while they fail."""
_FIRST_PAUSE = timedelta(seconds=30)
"""The pause after the first failed try of a message. Each further pause is four times as long."""
_LEASE = timedelta(minutes=10)
"""The lease on a message. It is longer than any try takes."""
_RETENTION = timedelta(days=30)
"""How long delivered and abandoned messages are kept."""
_TIME_BASED = frozenset({Cause.WORKER, Cause.MISSED})
"""The causes that are found by comparing times with the clock."""
_TIME_BASED_DELAY = 20.0
"""Seconds until a time-based concern is reported. If the clock jumps forward, every heartbeat looks old until the next
one."""


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between the current concerns and the reported ones."""

    event: ConcernEvent
    concern: Concern


@dataclass(kw_only=True)
class Watch:
    """Reports changes and delivers messages until ``stop`` is set. Several may run on one database."""

    engine: Engine
    find_concerns: FindConcerns
    channels: Sequence[Channel]
    clock: Clock
    random: Random
    stop: Event
    interval: float
    """Seconds between two ticks."""
    tries: int = 5
    monotonic: Callable[[], float] = time.monotonic
    _names: tuple[str, ...] = field(init=False)
    _found_at: dict[str, float] = field(default_factory=dict, init=False)
    """Time-based concerns: key → the monotonic time at which it was found first."""

    def __post_init__(self) -> None:
        self._names = tuple(channel.name for channel in self.channels)

    def run(self) -> None:
        """Runs until ``stop`` is set. Errors are only logged, those of an unavailable database once."""
        log = _log.bind()
        pause = self.interval
        away = False
        while True:
            try:
                self.tick()
            except Exception as error:
                pause = min(pause * 2, _MAX_INTERVAL)
                if not is_outage(error):
                    log.warning("watch_failed", problem=type(error).__name__, again_in=pause, exc_info=error)
                elif not away:
                    away = True
                    log.warning("watch_waits", problem=database_problem(error), longest_pause=_MAX_INTERVAL)
            else:
                pause = self.interval
                if away:
                    away = False
                    log.info("watch_goes_on")
            if self.stop.wait(pause):
                return

    def tick(self) -> list[Change]:
        """Reports all changes, tries each due message once, and returns the changes."""
        changes = self._report()
        for change in changes:
            _log_change(change)
        self._deliver()
        return changes

    def _report(self) -> list[Change]:
        with reading(self.engine) as connection:
            if not self._changes(connection):
                return []
        # Most ticks find no change, so the writing transaction, which compares again, begins only now.
        with writing(self.engine) as connection:
            lock_watch(connection)
            now = self.clock()
            now_ms = epoch_ms(now)
            changes = self._changes(connection)
            for change in changes:
                key = change.concern.key
                if change.event is ConcernEvent.OVER:
                    delete_concern(connection, key)
                else:
                    store_concern(connection, change.concern, now_ms)
                body = message_body(change.event, change.concern, now)
                add_message(connection, f"msg_{self.random.getrandbits(96):024x}", body, self._names, now_ms)
            clean_up(connection, self._names, epoch_ms(now - _RETENTION))
        return changes

    def _changes(self, connection: Connection) -> list[Change]:
        """The changes to report. Records in ``_found_at`` when each time-based concern was found first."""
        reported = open_concerns(connection)
        current = self.find_concerns(connection, self.clock())
        now = self.monotonic()
        self._found_at = {
            concern.key: self._found_at.get(concern.key, now) for concern in current if concern.cause in _TIME_BASED
        }
        changes = []
        for concern in current:
            before = reported.pop(concern.key, None)
            if before is None:
                if now - self._found_at.get(concern.key, -inf) >= _TIME_BASED_DELAY:
                    changes.append(Change(ConcernEvent.BEGAN, concern))
            elif before.fingerprint != concern.fingerprint or concern.size >= 2 * max(before.size, 1):
                changes.append(Change(ConcernEvent.CHANGED, concern))
        return changes + [Change(ConcernEvent.OVER, concern) for concern in reported.values()]

    def _deliver(self) -> None:
        if not self.channels:
            return
        with reading(self.engine) as connection:
            messages = due_messages(connection, self._names, epoch_ms(self.clock()))
        for message in messages:
            if self.stop.is_set():
                return
            with writing(self.engine) as connection:
                has_lease = take_lease(connection, message, epoch_ms(self.clock() + _LEASE))
            if has_lease:
                self._try_to_deliver(message)

    def _try_to_deliver(self, message: WaitingMessage) -> None:
        log = _log.bind(message_id=message.message_id, channel=message.channel)
        channel = next(channel for channel in self.channels if channel.name == message.channel)
        delivered_at = next_try_at = None
        problem = ""
        tries = message.tries + 1
        try:
            channel.send(Message(message.message_id, message.body))
        except NotDeliveredError as error:
            problem = str(error)
            if tries < self.tries and not error.is_permanent:
                next_try_at = epoch_ms(self.clock() + _FIRST_PAUSE * 4**message.tries)
                log.warning("notification_failed", problem=problem, tries=tries)
            else:
                log.error("notification_given_up", problem=problem, tries=tries)  # noqa: TRY400 - no traceback
        except Exception as error:
            # It is not retried: a fault of the program would occur again.
            problem = f"internal error: {type(error).__name__}"
            log.exception("notification_broke")
        else:
            delivered_at = epoch_ms(self.clock())
            log.info("notification_sent")
        with writing(self.engine) as connection:
            settle(connection, message, delivered_at=delivered_at, next_try_at=next_try_at, problem=problem)


def _log_change(change: Change) -> None:
    concern = change.concern
    log = _log.bind(
        cause=concern.cause.value,
        summary=concern.summary,
        since=utc_text(concern.since, timespec="seconds"),
        run_id=concern.run_id,
    )
    if change.event is ConcernEvent.OVER:
        log.info("attention_over")
    elif concern.cause in {Cause.FAILED, Cause.MISSED, Cause.WORKER}:
        log.error("attention_needed", advice=concern.advice)
    else:
        log.warning("attention_needed", advice=concern.advice)
