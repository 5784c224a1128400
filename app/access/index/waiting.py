"""Waits until the database may have a new revision.

On PostgreSQL, the transaction that creates a revision notifies the nodes. On SQLite, the processes of the node write to
a pipe in the index's folder after a push. Other changes are found by the next check.
"""

import os
import select
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from app.access.revisions import REVISION_CHANNEL
from app.foundation.database.engine import is_sqlite

_log = structlog.stdlib.get_logger(__name__)

CHECK = 0.5
"""Seconds between two checks for a new revision."""
PAUSE = 0.5
"""Seconds until the next check of a process that does not maintain the index, and after the first failure."""
MAX_PAUSE = 2.0
"""The most seconds between two checks while they fail or the database cannot be reached. The pauses double."""
LISTEN_AGAIN = 10
"""Checks until the next attempt to listen to notifications."""


def pause_after(failures: int) -> float:
    """Seconds until the next check after this number of failed ones in a row."""
    return min(PAUSE * 2.0 ** max(0, failures - 1), MAX_PAUSE)


class RevisionWaiter:
    """The wait of the process that maintains the index."""

    def __init__(self, engine: Engine, pipe: Path) -> None:
        self._engine = engine
        self._path = pipe
        self._pipe: int | None = None
        self._listening: Connection | None = None
        self._checks_until_listen = 0
        """The number of checks until the next attempt to listen."""
        self._can_wait = True
        """Whether the last wait was possible."""

    def wait(self, stop: Event) -> bool:
        """Waits for a new revision, at most ``CHECK`` seconds. Returns False if it cannot wait."""
        try:
            if is_sqlite(self._engine):
                self._wait_for_pipe()
            elif self._checks_until_listen:
                self._checks_until_listen -= 1
                stop.wait(CHECK)
            else:
                self._wait_for_notification()
        except Exception as error:  # noqa: BLE001 - such as on a file system without pipes; the thread must not end
            if self._can_wait:
                _log.warning("index_polls", reason=str(error), seconds=PAUSE)
            self._can_wait = False
            return False
        self._can_wait = True
        return True

    def _wait_for_pipe(self) -> None:
        if self._pipe is None:
            self._path.unlink(missing_ok=True)
            os.mkfifo(self._path, 0o600)
            # A pipe that is open for writing as well never ends.
            self._pipe = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        select.select([self._pipe], [], [], CHECK)
        with suppress(BlockingIOError):
            os.read(self._pipe, 4096)

    def _wait_for_notification(self) -> None:
        try:
            if self._listening is None:
                self._listening = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                self._listening.exec_driver_sql(f"LISTEN {REVISION_CHANNEL}")
                return
            driver: Any = self._listening.connection.driver_connection
            list(driver.notifies(timeout=CHECK, stop_after=1))
        except (SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error):
            # The check that follows reports a database that cannot be reached.
            self._stop_listening()
            self._checks_until_listen = LISTEN_AGAIN

    def wake(self) -> None:
        """Ends the wait of the process that maintains the index. PostgreSQL does so itself."""
        if is_sqlite(self._engine):
            # No process may be reading the pipe, or it may be full.
            with suppress(OSError):
                pipe = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    os.write(pipe, b".")
                finally:
                    os.close(pipe)

    def close(self) -> None:
        """Releases the connection and the pipe."""
        self._stop_listening()
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.invalidate()
            self._listening.close()
            self._listening = None
