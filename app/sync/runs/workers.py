"""Reads the rows of workers, and updates that of a worker in a thread.

Each worker updates its row regularly and deletes it when it stops. An old row belongs to a worker that was killed or
has lost the database. If the database is unavailable, or on SQLite busy with a large plan, a heartbeat is late.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event

import structlog
from sqlalchemy import Connection, Engine, delete, select
from sqlalchemy.exc import SQLAlchemyError

from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import writing
from app.foundation.database.errors import database_problem, is_outage
from app.foundation.database.statements import run
from app.sync.runs.tables import WorkerRow

_log = structlog.stdlib.get_logger(__name__)

_WORKER = WorkerRow.__table__

_EVERY = 15.0
"""Seconds between two heartbeats."""
_LOOK = 1.0
"""Seconds between two checks of the clock."""
_JUMP = 5.0
"""The clock jumped if it and the monotonic clock differ by more than this many seconds."""
_DEAD_KEPT = timedelta(days=1)
"""How long the rows of dead workers are kept."""

_BEAT = """
INSERT INTO worker (worker_id, name, started_at, seen_at, leads)
VALUES (:worker_id, :name, :started_at, :seen_at, :leads)
ON CONFLICT (worker_id) DO UPDATE SET seen_at = excluded.seen_at, leads = excluded.leads
"""


def workers(connection: Connection) -> list[WorkerRow]:
    """All rows, the latest heartbeat first."""
    rows = connection.execute(select(_WORKER).order_by(_WORKER.c.seen_at.desc(), _WORKER.c.worker_id))
    return [WorkerRow(**row._asdict()) for row in rows]


@dataclass(kw_only=True)
class Heartbeat:
    """The heartbeats of one worker, until ``stop`` is set."""

    engine: Engine
    worker_id: str
    name: str
    leads: Callable[[], bool]
    clock: Clock
    stop: Event
    monotonic: Callable[[], float] = time.monotonic
    after_jump: Callable[[], None] = lambda: None
    """Called after the clock jumped, to compute due times again."""
    _started_at: int | None = field(default=None, init=False)

    def run(self) -> None:
        """Beats until ``stop`` is set. Logs all errors."""
        log = _log.bind()
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
        """Returns when the next heartbeat is due, or when the clock has jumped: the last one then looks old."""
        began, now = self.monotonic(), self.clock()
        while not self.stop.wait(_LOOK):
            passed = self.monotonic() - began
            if abs((self.clock() - now).total_seconds() - passed) > _JUMP:
                _log.warning("clock_jumped")
                self.after_jump()
                return
            if passed >= _EVERY:
                return

    def beat(self) -> None:
        """Updates the row. The first heartbeat also removes old rows of dead workers."""
        now = epoch_ms(self.clock())
        is_first = self._started_at is None
        started_at = self._started_at = now if self._started_at is None else self._started_at
        row = {"worker_id": self.worker_id, "name": self.name, "started_at": started_at, "seen_at": now}
        with writing(self.engine) as connection:
            run(connection, _BEAT, row | {"leads": self.leads()})
            if is_first:
                _remove_dead(connection, now - _DEAD_KEPT // timedelta(milliseconds=1))

    def end(self) -> None:
        """Removes the rows of this worker, which is stopped and not dead, and of those that it replaced."""
        try:
            with writing(self.engine) as connection:
                connection.execute(delete(_WORKER).where(_WORKER.c.worker_id == self.worker_id))
                if self._started_at is not None:
                    _remove_dead(connection, self._started_at)
        except SQLAlchemyError as error:
            _log.warning("goodbye_unsaid", problem=database_problem(error))


def _remove_dead(connection: Connection, seen_before: int) -> None:
    connection.execute(delete(_WORKER).where(_WORKER.c.seen_at < seen_before))
