"""Connections for single statements that run thousands of times a second (PostgreSQL).

A statement costs one round trip: there is no transaction and no ping before it, and each connection prepares it once.
(The driver drops its prepared statements at a ROLLBACK, which a normal pool issues for each returned connection.) Each
statement is its own snapshot.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from app.foundation.database.errors import wrap_driver_error

_RECYCLE_SECONDS = 1800


class DirectConnections:
    """A separate pool with the settings of an engine, which also closes it. It connects lazily."""

    def __init__(self, engine: Engine, settings: str) -> None:
        """``settings`` is SQL that each new connection runs."""
        self._dialect = engine.dialect
        _, arguments = engine.dialect.create_connect_args(engine.url)
        self._arguments: dict[str, Any] = {"connect_timeout": 5, "application_name": "usher", **arguments}
        self._settings = f"SET default_transaction_read_only = on; {settings}"
        # Unlimited: the number of threads bounds it.
        self._pool = QueuePool(
            self._connect, max_overflow=-1, reset_on_return=None, use_lifo=True, recycle=_RECYCLE_SECONDS
        )
        event.listen(engine, "engine_disposed", lambda _engine: self._pool.dispose())

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        """A cursor whose parameters are a list, written ``$1``, ``$2``, … in the statement.

        Errors are SQLAlchemy's. A broken connection is discarded, which the first statement on it discovers.
        """
        pooled: PoolProxiedConnection | None = None
        driver: Any = self._dialect.loaded_dbapi
        try:
            pooled = self._pool.connect()
            with driver.RawCursor(pooled.dbapi_connection) as cursor:
                yield cursor
        except driver.Error as error:
            broken = self._dialect.is_disconnect(error, pooled, None)
            if pooled is not None and broken:
                pooled.invalidate(error)
            raise wrap_driver_error(error, self._dialect, broken=broken) from error
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
