"""Bounds the time for which a statement waits for PostgreSQL.

A server that hangs keeps its connections open, and the operating system confirms what is sent to it. So neither
keepalives nor ``tcp_user_timeout`` end a statement that waits for its response.
"""

from collections.abc import Callable, Generator
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import ConnectionPoolEntry

CHECK_TIMEOUT = 5.0
"""Seconds for the statements before a connection is used: they set it up, or check that it is open."""
LONG_TIMEOUT = 120.0
"""Seconds for statements after ``allow_long_statements``."""
_CANCEL_TIMEOUT = 1.0
"""Seconds for the cancel of a statement that has taken too long."""

R = TypeVar("R")


def bound_responses(engine: Engine, timeout: float) -> None:
    """Makes statements of the engine raise ``OperationalError`` after ``timeout`` seconds without a complete response.
    The server cancels them, which may take another second, and their connection is closed."""
    driver: Any = engine.dialect.loaded_dbapi
    connection_class = _connection_class(driver)

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _entry: ConnectionPoolEntry, arguments: Any, options: Any) -> Any:
        return connection_class.connect(*arguments, **options)

    @event.listens_for(engine, "checkout")
    def _use(connection: Any, *_: object) -> None:
        connection.response_timeout = timeout

    @event.listens_for(engine, "checkin")
    def _rest(connection: Any, _entry: ConnectionPoolEntry) -> None:
        if connection is not None:
            connection.response_timeout = CHECK_TIMEOUT


def allow_long_statements(connection: Connection, timeout: float | None = LONG_TIMEOUT) -> None:
    """Sets another timeout until the connection returns to its pool. None: no timeout. It has no effect on an
    engine without a timeout."""
    driver_connection: Any = connection.connection.driver_connection
    if hasattr(driver_connection, "response_timeout"):
        driver_connection.response_timeout = timeout


def _connection_class(driver: Any) -> Any:
    """The driver's class of connections, with a timeout."""

    class BoundedConnection(driver.Connection):  # type: ignore[misc] # the driver is optional
        response_timeout: float | None = CHECK_TIMEOUT

        def wait(self, gen: Generator[Any, Any, R], *arguments: Any, **options: Any) -> R:
            timeout = self.response_timeout
            if timeout is None:
                return super().wait(gen, *arguments, **options)  # type: ignore[no-any-return]

            def close() -> Exception:
                # The server would compute on. Older libraries of PostgreSQL cannot bound the time of a cancel.
                if timeout > CHECK_TIMEOUT and driver.capabilities.has_cancel_safe():
                    with suppress(driver.Error):
                        self.cancel_safe(timeout=_CANCEL_TIMEOUT)
                # It is in the middle of a response, so that it cannot be used again.
                self.pgconn.finish()
                return driver.OperationalError(f"the server did not respond within {timeout:g} seconds")  # type: ignore[no-any-return]

            return super().wait(_until(gen, monotonic() + timeout, close), *arguments, **options)  # type: ignore[no-any-return]

    return BoundedConnection


def _until(gen: Generator[Any, Any, R], deadline: float, fail: Callable[[], Exception]) -> Generator[Any, Any, R]:
    """The same steps. Raises what ``fail`` returns if they are not done at the deadline.

    The driver resumes it several times a second, with a false value if nothing has arrived.
    """
    try:
        awaited = next(gen)
        while True:
            ready = yield awaited
            if not ready and monotonic() >= deadline:
                raise fail()
            awaited = gen.send(ready)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
