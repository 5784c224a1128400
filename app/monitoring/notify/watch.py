"""The watch: finds what needs attention, and notifies the channels.

A worker runs it in a thread of its own, so that no sync waits for a mail server. It compares the current concerns with
those that were reported: one that is new, has changed or is over becomes a line in the log and a message for each
channel. A concern that only continues is not reported again.
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

from app.foundation.clock import Clock, epoch_ms, from_epoch_ms
from app.foundation.database.engine import reading, writing
from app.foundation.database.errors import database_problem, is_outage
from app.monitoring.notify.concerns import Cause, Concern
from app.monitoring.notify.message import Channel, ConcernEvent, Message, NotDeliveredError, body_of, iso
from app.monitoring.notify.outbox import (
    OpenConcern,
    WaitingMessage,
    clear_up,
    due,
    forget,
    one_watch_at_a_time,
    open_concerns,
    put,
    remember,
    settle,
    take,
)

Look = Callable[[Connection, datetime], Sequence[Concern]]
"""What needs attention at that moment."""

EVERY = 10.0
"""Seconds between two looks."""
_LONGEST_PAUSE = 120.0
"""Seconds between two looks while the database is away."""
_FIRST_PAUSE = timedelta(seconds=30)
"""After the first failed try of a message; four times as long after each further one."""
_LEASE = timedelta(minutes=10)
"""Longer than any try takes: a message whose try nobody ended is due again after it."""
_KEPT = timedelta(days=30)
_BY_THE_CLOCK = frozenset({Cause.WORKER, Cause.MISSED})
_LASTS = 20.0
"""What the clock alone says is reported when it was found for so many seconds: a clock that jumps forward makes every
sign of life old until the next one."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a look found that people do not know."""

    event: ConcernEvent
    concern: Concern


@dataclass(kw_only=True)
class Watch:
    """Looks, tells, and delivers, until ``stop`` is set. Any number may do so on one database."""

    engine: Engine
    look: Look
    channels: Sequence[Channel]
    clock: Clock
    random: Random
    stop: Event
    tries: int = 5
    every: float = EVERY
    monotonic: Callable[[], float] = time.monotonic
    _names: tuple[str, ...] = field(init=False)
    _found: dict[str, float] = field(default_factory=dict, init=False)
    """The key of what the clock alone says → the monotonic time at which it was found first."""

    def __post_init__(self) -> None:
        self._names = tuple(channel.name for channel in self.channels)

    def run(self) -> None:
        """Works until told to stop. Whatever happens ends in the log and not in an exception.

        A database that is away is waited for, and is one line in the log however long it takes.
        """
        log = structlog.stdlib.get_logger(__name__)
        pause = self.every
        away = False
        while True:
            try:
                self.tick()
            except Exception as error:
                pause = min(pause * 2, _LONGEST_PAUSE)
                if not is_outage(error):
                    log.warning("watch_failed", problem=type(error).__name__, again_in=pause, exc_info=error)
                elif not away:
                    away = True
                    log.warning("watch_waits", problem=database_problem(error), longest_pause=_LONGEST_PAUSE)
            else:
                pause = self.every
                if away:
                    away = False
                    log.info("watch_goes_on")
            if self.stop.wait(pause):
                return

    def tick(self) -> list[Change]:
        """One look, and one try of each message that is due; what was new."""
        changes = self._tell()
        for change in changes:
            _log(change)
        self._deliver()
        return changes

    def _tell(self) -> list[Change]:
        with reading(self.engine) as connection:
            if not self._changes(connection):
                return []
        # Only now a transaction that writes, in which all is looked at again: most looks find nothing new.
        with writing(self.engine) as connection:
            one_watch_at_a_time(connection)
            now = self.clock()
            now_ms = epoch_ms(now)
            changes = self._changes(connection)
            for change in changes:
                key = change.concern.key
                if change.event is ConcernEvent.OVER:
                    forget(connection, key)
                else:
                    remember(connection, _opened(change.concern, now_ms))
                body = body_of(change.event, change.concern, now)
                put(connection, f"msg_{self.random.getrandbits(96):024x}", body, self._names, now_ms)
            clear_up(connection, self._names, epoch_ms(now - _KEPT))
        return changes

    def _changes(self, connection: Connection) -> list[Change]:
        told = open_concerns(connection)
        changes = []
        found = self.look(connection, self.clock())
        now = self.monotonic()
        self._found = {one.key: self._found.get(one.key, now) for one in found if one.cause in _BY_THE_CLOCK}
        for concern in found:
            before = told.pop(concern.key, None)
            if before is None and now - self._found.get(concern.key, -inf) < _LASTS:
                continue
            if before is None:
                changes.append(Change(ConcernEvent.BEGAN, concern))
            elif before.fingerprint != concern.fingerprint or concern.size >= 2 * max(before.size, 1):
                changes.append(Change(ConcernEvent.CHANGED, concern))
        return changes + [Change(ConcernEvent.OVER, _closed(concern)) for concern in told.values()]

    def _deliver(self) -> None:
        if not self.channels:
            return
        with reading(self.engine) as connection:
            waiting = due(connection, self._names, epoch_ms(self.clock()))
        for one in waiting:
            if self.stop.is_set():
                return
            with writing(self.engine) as connection:
                if not take(connection, one, epoch_ms(self.clock() + _LEASE)):
                    continue
            self._try(one)

    def _try(self, one: WaitingMessage) -> None:
        log = structlog.stdlib.get_logger(__name__).bind(message_id=one.message_id, channel=one.channel)
        channel = next(channel for channel in self.channels if channel.name == one.channel)
        delivered_at = next_try_at = None
        problem = ""
        try:
            channel.send(Message(one.message_id, one.body))
        except NotDeliveredError as error:
            problem = str(error)
            if one.tries + 1 < self.tries and not error.hopeless:
                next_try_at = epoch_ms(self.clock() + _FIRST_PAUSE * 4**one.tries)
                log.warning("notification_failed", problem=problem, tries=one.tries + 1)
            else:
                log.error("notification_given_up", problem=problem, tries=one.tries + 1)  # noqa: TRY400 - no traceback
        except Exception as error:
            problem = f"an error of the program, {type(error).__name__}"
            log.exception("notification_broke")
        else:
            delivered_at = epoch_ms(self.clock())
            log.info("notification_sent")
        with writing(self.engine) as connection:
            settle(connection, one, delivered_at=delivered_at, next_try_at=next_try_at, problem=problem)


def _log(change: Change) -> None:
    concern = change.concern
    log = structlog.stdlib.get_logger(__name__).bind(
        cause=concern.cause.value, says=concern.says, since=iso(concern.since), run_id=concern.run_id
    )
    if change.event is ConcernEvent.OVER:
        log.info("attention_over")
    elif concern.cause in {Cause.FAILED, Cause.MISSED, Cause.WORKER}:
        log.error("attention_needed", advice=concern.advice)
    else:
        log.warning("attention_needed", advice=concern.advice)


def _opened(concern: Concern, now_ms: int) -> OpenConcern:
    return OpenConcern(
        concern_key=concern.key,
        cause=concern.cause.value,
        about=concern.about,
        fingerprint=concern.fingerprint,
        size=concern.size,
        says=concern.says,
        run_id=concern.run_id,
        since_at=epoch_ms(concern.since),
        told_at=now_ms,
    )


def _closed(told: OpenConcern) -> Concern:
    return Concern(
        cause=Cause(told.cause),
        about=told.about,
        fingerprint=told.fingerprint,
        size=told.size,
        says=told.says,
        advice="",
        since=from_epoch_ms(told.since_at),
        run_id=told.run_id,
    )
