"""A read-only snapshot of a database, in which all queries of a read run.

| database | snapshot | protection from writes |
|---|---|---|
| PostgreSQL | ``REPEATABLE READ`` | ``READ ONLY`` |
| MySQL, MariaDB | ``WITH CONSISTENT SNAPSHOT``, under ``REPEATABLE READ`` | ``READ ONLY`` |
| SQLite | an explicit ``BEGIN``: the driver begins none for a SELECT | ``mode=ro`` and ``query_only`` |
| others | the first of ``SNAPSHOT``, ``REPEATABLE READ``, ``SERIALIZABLE`` that they support | the rights of the user |

Everywhere, a query first runs as a table in parentheses, where only a SELECT is valid. Rows are streamed.
"""

import json
import os
import socket
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    NullPool,
    Row,
    Select,
    bindparam,
    column,
    create_engine,
    event,
    false,
    literal_column,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.sql.elements import quoted_name
from sqlalchemy.types import NullType

from app.directory.columns import UnreadableJson
from app.directory.connector import ReadError
from app.directory.connectors.sql.errors import missing_driver, read_error
from app.directory.connectors.sql.settings import single_statement

ROWS_AT_A_TIME = 1000

_GRACE = 2.0
"""Seconds after ``answer_timeout`` in which the server may report the timeout itself."""

_ISOLATION_LEVELS = ("SNAPSHOT", "REPEATABLE READ", "SERIALIZABLE")
"""Levels with one snapshot for all statements, the cheapest first."""


class SqlSnapshot:
    """An open snapshot. Its methods raise ``ReadError`` for errors of the database and the network."""

    def __init__(self, connection: Connection, url: URL, answer_timeout: float) -> None:
        self.database = connection.dialect.name
        """``postgresql``, ``mysql``, ``sqlite`` or another name of SQLAlchemy."""
        self._connection = connection
        self._url = url
        self._answer_timeout = answer_timeout

    def columns(self, name: str, query: str) -> list[str]:
        """The names of a query's columns, without reading a row. ``name`` is the name of the query."""
        with self._watched(name):
            return list(self._connection.execute(_as_table(name, query).where(false())).keys())

    def first(self, name: str, query: str, where: ColumnElement[bool]) -> Row[Any] | None:
        """A row for which ``where`` holds."""
        with self._watched(name):
            return self._connection.execute(_as_table(name, query).where(where).limit(1)).first()

    def last(self, name: str, query: str, column: str, maximum: Any, count: int) -> Sequence[Row[Any]]:
        """The ``count`` rows with the greatest values of a column that do not exceed ``maximum``."""
        value = named_column(column)
        statement = _as_table(name, query).where(value <= maximum).order_by(value.desc()).limit(count)
        with self._watched(name):
            return self._connection.execute(statement).all()

    def stream(self, name: str, query: str, where: ColumnElement[bool] | None = None) -> Iterator[Sequence[Row[Any]]]:
        """The rows of a query, in batches. Closing the iterator before its end may close the connection."""
        statement: Any = text(_escaped(_checked(name, query))) if where is None else _as_table(name, query).where(where)
        with self._watched(name):
            result = self._connection.execution_options(stream_results=True).execute(statement)
        partitions = result.partitions(ROWS_AT_A_TIME)
        rows: Sequence[Row[Any]] | None = ()
        try:
            while rows is not None:
                with self._watched(name):
                    rows = next(partitions, None)
                if rows is not None:
                    yield rows
        finally:
            if rows is not None and self._connection.dialect.driver == "pymysql":
                _discard_unread(result.cursor)
                _abort(self._connection)

    @contextmanager
    def _watched(self, name: str) -> Iterator[None]:
        """Aborts the connection if the database does not answer in time, and translates errors."""
        timed_out = threading.Event()

        def abort() -> None:
            timed_out.set()
            _abort(self._connection)

        # Not every driver notices a server that hangs, or a network that drops packets.
        timer = threading.Timer(self._answer_timeout + _GRACE, abort)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (SQLAlchemyError, OSError, sqlite3.Error) as error:
            if timed_out.is_set():
                raise ReadError(
                    f"queries.{name}: no answer for {self._answer_timeout:g} s; check the server, make the query"
                    " faster, or raise answer_timeout"
                ) from error
            raise read_error(error, self._url, name) from error
        except (ValueError, OverflowError, RecursionError) as error:
            # The driver could not make a Python value of the data.
            raise ReadError(
                f"queries.{name}: a value cannot be read ({type(error).__name__}); leave out its column, or cast it to"
                " text in the query"
            ) from error
        finally:
            timer.cancel()


def named_column(name: str) -> ColumnElement[Any]:
    """A column of the query, with its exact name."""
    return column(quoted_name(name, quote=True))


def parameter(value: object) -> Any:
    """A bound parameter that the driver gets unchanged."""
    return bindparam(None, value, type_=NullType(), unique=True)


def _as_table(name: str, query: str) -> Select[Any]:
    # The line break ends a comment at the end of the query.
    return select(literal_column("*")).select_from(text(f"(\n{_escaped(_checked(name, query))}\n) q"))


def _checked(name: str, query: str) -> str:
    try:
        return single_statement(query)
    except ValueError as error:
        raise ReadError(f"queries.{name}: {error}") from None


def _escaped(query: str) -> str:
    """The query for ``text``, in which a colon would begin a parameter."""
    return query.replace(":", "\\:")


@contextmanager
def open_snapshot(
    url: URL, *, connect_timeout: float, answer_timeout: float, zone: str = "UTC"
) -> Iterator[SqlSnapshot]:
    """Connects, begins the transaction, and closes the connection at the end, with unread rows.

    ``zone``: the time zone of times without a zone. Raises ``ReadError``.
    """
    engine = _engine(url, connect_timeout=connect_timeout, answer_timeout=answer_timeout)
    with ExitStack() as at_end:
        at_end.callback(engine.dispose)
        try:
            connection = engine.connect()
            at_end.callback(_close, connection)
            connection = _begin(connection, answer_timeout=answer_timeout, zone=zone)
        except (SQLAlchemyError, OSError, ValueError) as error:
            raise read_error(error, url) from error
        yield SqlSnapshot(connection, url, answer_timeout)


def _close(connection: Connection) -> None:
    for close in (connection.invalidate, connection.close):
        with suppress(SQLAlchemyError, OSError, sqlite3.Error):
            close()


def _discard_unread(cursor: Any) -> None:
    """Keeps PyMySQL from reading an unfinished stream to its end when it is closed."""
    result = cursor._result  # noqa: SLF001 - PyMySQL has no other way
    if result is not None:
        result.unbuffered_active = False
    cursor.connection = None


def _abort(connection: Connection) -> None:
    """Interrupts the connection. Any thread may call it."""
    with suppress(Exception):  # the connection is unusable anyway
        driver: Any = connection.connection.dbapi_connection
        if isinstance(driver, sqlite3.Connection):
            driver.interrupt()
        elif connection.dialect.driver == "psycopg":
            with socket.socket(fileno=os.dup(driver.fileno())) as wire:
                wire.shutdown(socket.SHUT_RDWR)
        elif connection.dialect.driver == "pymysql":
            driver._force_close()  # noqa: SLF001 - it closes the socket and stops all cursors
        elif hasattr(driver, "cancel"):
            driver.cancel()


def _engine(url: URL, *, connect_timeout: float, answer_timeout: float) -> Engine:
    arguments: dict[str, Any] = {"poolclass": NullPool, "hide_parameters": True}
    driver = url.get_driver_name() if "+" in url.drivername else ""
    if url.get_backend_name() == "sqlite":
        arguments["creator"] = partial(_open_sqlite, str(url.database), connect_timeout)
        url = URL.create("sqlite")
    elif driver == "psycopg":
        arguments["connect_args"] = {"connect_timeout": max(2, round(connect_timeout)), "application_name": "usher"}
        arguments["json_deserializer"] = _json
    elif driver == "pymysql":
        arguments["connect_args"] = {"connect_timeout": connect_timeout, "read_timeout": answer_timeout}
    try:
        engine = create_engine(url, **arguments)
    except (NoSuchModuleError, ImportError, ArgumentError) as error:
        raise missing_driver(url, error) from error
    if driver == "psycopg":
        event.listen(engine, "connect", lambda driver_connection, _: _accept_any_time(driver_connection))
    return engine


def _open_sqlite(file: str, timeout: float) -> sqlite3.Connection:
    path = file.removeprefix("file:").partition("?")[0]
    connection = sqlite3.connect(
        f"file:{quote(str(Path(path).absolute()))}?mode=ro",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
    )
    # Bytes that are not UTF-8 make their row malformed, and do not fail the read.
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    return connection


def _json(content: str | bytes) -> object:
    try:
        value: object = json.loads(content)
    except (ValueError, RecursionError):
        return UnreadableJson()
    return value


def _accept_any_time(driver_connection: Any) -> None:
    """Makes text of PostgreSQL times that Python cannot represent, such as ``infinity``."""
    import psycopg  # noqa: PLC0415 - of an extra, and imported by now
    from psycopg.adapt import Loader  # noqa: PLC0415 - as above
    from psycopg.types.string import TextLoader  # noqa: PLC0415 - as above

    class TimeOrTextLoader(Loader):
        """Psycopg's own loader, with text as the fallback."""

        def __init__(self, oid: int, context: Any = None) -> None:
            super().__init__(oid, context)
            own = psycopg.adapters.get_loader(oid, self.format)
            self._load = (own or TextLoader)(oid, context).load

        def load(self, data: Any) -> object:
            try:
                return self._load(data)
            except psycopg.DataError:
                return bytes(data).decode()

    for name in ("timestamptz", "timestamp", "date"):
        driver_connection.adapters.register_loader(name, TimeOrTextLoader)


def _begin(connection: Connection, *, answer_timeout: float, zone: str) -> Connection:
    """Begins the snapshot, and returns the connection to use."""
    name = connection.dialect.name
    if name == "postgresql":
        connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        # The consumer of the rows may pause for as long as the whole read may take.
        connection.exec_driver_sql(
            f"SELECT set_config('statement_timeout', '{round(answer_timeout * 1000)}', true),"
            " set_config('idle_in_transaction_session_timeout', '0', true), set_config('TimeZone', 'UTC', true)"
        )
    elif name in {"mysql", "mariadb"}:
        offset = "+00:00" if zone == "UTC" else zone
        connection.exec_driver_sql("SET SESSION time_zone = %s, SESSION net_write_timeout = 3600", (offset,))
        connection.exec_driver_sql("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.exec_driver_sql("SET SESSION TRANSACTION READ ONLY")
        connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    elif name == "sqlite":
        connection.exec_driver_sql("PRAGMA query_only = ON")
        connection.exec_driver_sql("BEGIN")
    else:
        driver: Any = connection.connection.dbapi_connection
        supported = connection.dialect.get_isolation_level_values(driver)
        level: Any = next((level for level in _ISOLATION_LEVELS if level in supported), None)
        connection = connection if level is None else connection.execution_options(isolation_level=level)
    return connection
