"""The signs of life of a worker.

A thread of its own writes a sign of life into the database, whatever the worker does meanwhile. A database that is
away, or on SQLite busy with a large plan, makes a sign late and does no harm besides.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.clock import Clock, epoch_ms
from app.database.engine import writing
from app.database.trouble import database_problem, is_away
from app.runs.workers import WorkerState, beat, forget_dead, say_goodbye

EVERY = 15.0
"""Seconds between two signs of life."""
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
    _started_at: int | None = field(default=None, init=False)

    def run(self) -> None:
        """Gives signs of life until told to stop. Whatever happens ends in the log and not in an exception."""
        log = structlog.stdlib.get_logger(__name__)
        late = False
        while not self.stop.is_set():
            try:
                self.beat()
            except Exception as error:
                if not is_away(error):
                    log.warning("heartbeat_failed", problem=type(error).__name__, exc_info=error)
                elif not late:
                    late = True
                    log.warning("heartbeat_late", problem=database_problem(error))
            else:
                late = False
            self.stop.wait(self.every)

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
        """Says goodbye: who was told to stop is not dead."""
        try:
            with writing(self.engine) as connection:
                say_goodbye(connection, self.worker_id)
        except SQLAlchemyError as error:
            structlog.stdlib.get_logger(__name__).warning("goodbye_unsaid", problem=database_problem(error))
