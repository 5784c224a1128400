"""Connections for single statements that are asked thousands of times a second (PostgreSQL).

A statement costs one round trip here, and nothing else: there is no transaction around it, no question beforehand
whether the connection still lives, and its plan is made once for each connection. (A driver forgets what it prepared
with every ROLLBACK, which is how a pool takes back an ordinary connection.) Each statement is a snapshot of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

_RECYCLE_SECONDS = 1800


class DirectConnections:
    """A pool of its own beside an engine's, closed with it; connections are made when they are needed first."""

    def __init__(self, engine: Engine, settings: str) -> None:
        """``settings``: what a connection is told when it is new, as SQL."""
        self._dialect = engine.dialect
        _, arguments = engine.dialect.create_connect_args(engine.url)
        self._arguments: dict[str, Any] = {"connect_timeout": 5, "application_name": "usher", **arguments}
        self._settings = f"SET default_transaction_read_only = on; {settings}"
        # As many as ask at once: whoever asks has a thread of a number that is bounded.
        self._pool = QueuePool(
            self._connect, max_overflow=-1, reset_on_return=None, use_lifo=True, recycle=_RECYCLE_SECONDS
        )
        event.listen(engine, "engine_disposed", lambda _engine: self._pool.dispose())

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        """A cursor whose parameters are written ``$1``, ``$2``, … and given as a list.

        Errors are SQLAlchemy's, and a connection that broke is not used again. One that broke while nobody used it is
        found out by whoever gets it.
        """
        pooled: PoolProxiedConnection | None = None
        driver: Any = self._dialect.loaded_dbapi
        try:
            pooled = self._pool.connect()
            with driver.RawCursor(pooled.dbapi_connection) as cursor:
                yield cursor
        except driver.Error as error:
            is_broken = self._dialect.is_disconnect(error, pooled, None)
            if pooled is not None and is_broken:
                pooled.invalidate(error)
            instance = DBAPIError.instance(
                None, None, error, driver.Error, hide_parameters=True, connection_invalidated=is_broken,
                dialect=self._dialect,
            )  # fmt: skip
            raise instance from error
        finally:
            if pooled is not None:
                pooled.close()

    def _connect(self) -> Any:
        connection = self._dialect.loaded_dbapi.connect(**self._arguments, autocommit=True)
        try:
            connection.execute(self._settings)
        except BaseException:
            connection.close()
            raise
        return connection
