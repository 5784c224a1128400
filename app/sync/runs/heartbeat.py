"""The heartbeat of a worker: a thread that updates the worker's row.

A database that is away, or on SQLite busy with a large plan, only makes a heartbeat late.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import writing
from app.foundation.database.errors import database_problem, is_outage
from app.sync.runs.workers import WorkerState, beat, forget_dead, say_goodbye

EVERY = 15.0
"""Seconds between two signs of life."""
_LOOK = 1.0
"""Seconds between two looks whether the clock jumped."""
_JUMP = 5.0
"""The clock jumped if it moved by so many seconds more or less than the monotonic one."""
_DEAD_KEPT = timedelta(days=1)
"""How long a worker that died is remembered while others live."""


@dataclass(kw_only=True)
class Heartbeat:
    """The signs of life of one worker, until ``stop`` is set."""

    engine: Engine
    worker_id: str
    name: str
    leads: Callable[[], bool]
    clock: Clock
    stop: Event
    every: float = EVERY
    monotonic: Callable[[], float] = time.monotonic
    after_jump: Callable[[], None] = lambda: None
    """Called after the clock jumped: whatever waits for a moment has to compute it again."""
    _started_at: int | None = field(default=None, init=False)

    def run(self) -> None:
        """Gives signs of life until told to stop. Whatever happens ends in the log and not in an exception."""
        log = structlog.stdlib.get_logger(__name__)
        late = False
        while not self.stop.is_set():
            try:
                self.beat()
            except Exception as error:
                if not is_outage(error):
                    log.warning("heartbeat_failed", problem=type(error).__name__, exc_info=error)
                elif not late:
                    late = True
                    log.warning("heartbeat_late", problem=database_problem(error))
            else:
                late = False
            self._wait()

    def _wait(self) -> None:
        """Returns after ``every`` seconds, or when the clock has jumped: the last sign of life then looks old."""
        began, now = self.monotonic(), self.clock()
        while not self.stop.wait(min(_LOOK, self.every)):
            passed = self.monotonic() - began
            if abs((self.clock() - now).total_seconds() - passed) > _JUMP:
                structlog.stdlib.get_logger(__name__).warning("clock_jumped")
                self.after_jump()
                return
            if passed >= self.every:
                return

    def beat(self) -> None:
        """One sign of life; the first one also forgets who has been dead for long."""
        now = self.clock()
        first = self._started_at is None
        if self._started_at is None:
            self._started_at = epoch_ms(now)
        state = WorkerState(
            worker_id=self.worker_id,
            name=self.name,
            started_at=self._started_at,
            seen_at=epoch_ms(now),
            leads=self.leads(),
        )
        with writing(self.engine) as connection:
            beat(connection, state)
            if first:
                forget_dead(connection, epoch_ms(now - _DEAD_KEPT))

    def end(self) -> None:
        """Removes this worker's row, because a stopped worker is not dead, and the rows of those that it replaced."""
        try:
            with writing(self.engine) as connection:
                say_goodbye(connection, self.worker_id)
                if self._started_at is not None:
                    forget_dead(connection, self._started_at)
        except SQLAlchemyError as error:
            structlog.stdlib.get_logger(__name__).warning("goodbye_unsaid", problem=database_problem(error))
