"""Limits the requests of a process that wait for the database at the same time. Each of them holds a *turn*.

So a database that does not respond leaves a thread to the permission calls that the index answers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore

from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.foundation.database.errors import NoTurnError

WAIT = 1.0
"""Seconds for which a request waits for its turn, if the database responds. Health checks and metrics do not wait."""


class DatabaseTurns:
    """The turns of one process."""

    def __init__(self, limit: int, responds: Callable[[], bool]) -> None:
        """``limit``: requests that may use the database at the same time. ``responds``: whether it does."""
        self._turns = BoundedSemaphore(limit)
        self.responds = responds

    @contextmanager
    def take(self, wait: float = WAIT) -> Iterator[None]:
        """Holds a turn. If there is none within ``wait`` seconds, raises ``NoTurnError``, or at once SQLAlchemy's
        ``TimeoutError`` if the database does not respond."""
        responds = self.responds()
        if not self._turns.acquire(timeout=wait if responds else 0):
            raise (NoTurnError if responds else PoolTimeout)("too many requests wait for the database")
        try:
            yield
        finally:
            self._turns.release()
