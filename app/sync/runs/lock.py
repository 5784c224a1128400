"""The lock that lets one process synchronize at a time, across nodes.

The rules: ``app/sync/runs/README.md``, "The lock".

PostgreSQL: an advisory lock in a session of its own, which ends with the process or its node. The session must not use
a transaction pooler. SQLite: a lock on a file beside the database, which the operating system releases with the
process.
"""

import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Protocol

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from app.foundation.clock import Sleep
from app.foundation.database.engine import CLIENT_KEEPALIVES, is_sqlite
from app.sync.apply.gate import LOCK_LOST

CONNECTION_LOST = "the connection to the database was cut, and with it the lock under which one process synchronizes"

_PAUSE = 0.5
"""Seconds between two attempts to acquire the lock."""

_NUMBER = int.from_bytes(sha256(b"usher:sync").digest()[:8], "big", signed=True)
"""The PostgreSQL advisory lock. Advisory locks are per database."""

_SERVER_KEEPALIVES = text(
    """
    SELECT set_config('tcp_keepalives_idle', '3', FALSE), set_config('tcp_keepalives_interval', '2', FALSE),
        set_config('tcp_keepalives_count', '3', FALSE), set_config('tcp_user_timeout', '9000', FALSE)
    """
)
"""The server detects a dead client within ten seconds. Otherwise a node without power would keep the lock for hours."""


class SyncLock(Protocol):
    """The lock of the synchronization."""

    def acquire(self, timeout: float = 0) -> bool:
        """Whether the lock was acquired within ``timeout`` seconds. False if the database is unavailable."""

    def held(self) -> bool:
        """Whether it is still held. Thread-safe. On PostgreSQL it sends a statement."""

    def why_lost(self) -> str:
        """Why it is no longer held."""

    def release(self) -> None:
        """Releases the lock if it is held."""


def sync_lock(engine: Engine, *, sleep: Sleep = time.sleep) -> SyncLock:
    """The lock for the database of the engine, not acquired yet."""
    if is_sqlite(engine):
        return _FileSyncLock(Path(f"{engine.url.database}.sync.lock"))
    return _SessionSyncLock(engine, sleep)


class _FileSyncLock:
    def __init__(self, path: Path) -> None:
        # Not thread-local, because the threads that send calls check it.
        self._lock = FileLock(path, thread_local=False)

    def acquire(self, timeout: float = 0) -> bool:
        if self._lock.is_locked:
            return False
        try:
            self._lock.acquire(timeout=timeout, poll_interval=0.05)
        except (Timeout, OSError):
            return False
        return True

    def held(self) -> bool:
        return self._lock.is_locked

    def why_lost(self) -> str:
        return LOCK_LOST

    def release(self) -> None:
        self._lock.release()


class _SessionSyncLock:
    def __init__(self, engine: Engine, sleep: Sleep) -> None:
        # Not from the pool: nothing else may use the session, and it must end with the lock.
        self._engine = create_engine(
            engine.url,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args={"connect_timeout": 5, "application_name": "usher sync lock", **CLIENT_KEEPALIVES},
        )
        self._sleep = sleep
        self._guard = Lock()
        self._session: Connection | None = None
        self._cut = False

    def acquire(self, timeout: float = 0) -> bool:
        deadline = time.monotonic() + timeout
        while not self._try():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._sleep(min(_PAUSE, left))
        return True

    def held(self) -> bool:
        with self._guard:
            if self._session is None:
                return False
            try:
                # The lock lives as long as the session.
                self._session.execute(text("SELECT 1"))
            except SQLAlchemyError:
                self._cut = True
                self._close()
                return False
            return True

    def why_lost(self) -> str:
        return CONNECTION_LOST if self._cut else LOCK_LOST

    def release(self) -> None:
        with self._guard:
            if self._session is not None:
                with suppress(SQLAlchemyError):
                    self._session.execute(text("SELECT pg_advisory_unlock(:number)"), {"number": _NUMBER})
            self._close()

    def _try(self) -> bool:
        with self._guard:
            if self._session is not None:
                return False
            self._cut = False
            try:
                self._session = self._engine.connect()
                self._session.execute(_SERVER_KEEPALIVES)
                query = text("SELECT pg_try_advisory_lock(:number)")
                got = bool(self._session.execute(query, {"number": _NUMBER}).scalar_one())
            except SQLAlchemyError:
                got = False
            if not got:
                self._close()
            return got

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(SQLAlchemyError):
                session.close()
