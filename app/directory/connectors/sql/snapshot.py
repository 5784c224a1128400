"""One read-only snapshot of a database, in which all queries of a read are run.

| database | snapshot | what keeps it from being written to |
|---|---|---|
| PostgreSQL | ``REPEATABLE READ`` | ``READ ONLY`` |
| MySQL, MariaDB | ``WITH CONSISTENT SNAPSHOT``, under ``REPEATABLE READ`` | ``READ ONLY`` |
| SQLite | an explicit ``BEGIN``: the driver begins none for a SELECT | ``mode=ro`` and ``query_only`` |
| others | the first of ``SNAPSHOT``, ``REPEATABLE READ``, ``SERIALIZABLE`` that they know | the rights of the user |

Everywhere a query is tried first as a table in parentheses, where nothing but a SELECT may stand. Rows are streamed:
the server keeps the result, or the driver reads it as it arrives.
"""

import json
import os
import socket
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
    column,
    create_engine,
    event,
    false,
    literal_column,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.sql.elements import quoted_name

from app.directory.connectors.sql.statement import tidy, verbatim, wrapped
from app.directory.connectors.sql.trouble import SqlTroubleError, driver_missing, trouble_of

ROWS_AT_A_TIME = 1000
"""Rows that are fetched together."""

_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
"""The drivers that the extras bring, for URLs that name none."""

_ISOLATION = ("SNAPSHOT", "REPEATABLE READ", "SERIALIZABLE")
"""Levels that give one snapshot to all statements, the cheapest first."""


def parse_source_url(text_of_url: str) -> URL:
    """The URL of a database, with the driver that is used. Raises ``ValueError``, without the URL."""
    try:
        url = make_url(text_of_url)
    except (ArgumentError, ValueError):
        raise ValueError("not a database URL; write postgresql://USER:PASSWORD@HOST/NAME or the like") from None
    if url.get_backend_name() != "sqlite" and text_of_url.count("@") > 1:
        # A piece of the password would be taken for the host, which messages show.
        raise ValueError(
            "each @ but the one before the host is written as %40, as in a password (and a / there as %2F)"
        )
    if url.get_backend_name() == "sqlite" and (not url.database or url.database == ":memory:"):
        raise ValueError("a SQLite database needs a file, as in sqlite:////srv/app.db")
    return url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))


class NotReadableError(ValueError):
    """A value as the driver could not make it, in the place of the value; the text says why."""


class SqlSnapshot:
    """The open snapshot. Its methods raise ``SqlTroubleError`` for whatever the database or the network does."""

    def __init__(self, connection: Connection, url: URL, answer_timeout: float) -> None:
        self._connection = connection
        self._url = url
        self._answer_timeout = answer_timeout

    @property
    def database(self) -> str:
        """What sort of database it is, by SQLAlchemy's name: ``postgresql``, ``mysql``, ``sqlite``."""
        return self._connection.dialect.name

    def columns(self, name: str, query: str) -> list[str]:
        """The names of a query's columns, in their order; no row is read. ``name`` is what the query is called."""
        with self._watched(name):
            return list(self._connection.execute(_around(name, query).where(false())).keys())

    def first(self, name: str, query: str, where: ColumnElement[bool]) -> Row[Any] | None:
        """One of the rows for which ``where`` holds."""
        with self._watched(name):
            return self._connection.execute(_around(name, query).where(where).limit(1)).first()

    def last(self, name: str, query: str, column: str, most: Any, count: int) -> Sequence[Row[Any]]:
        """The rows with the greatest values of a column, up to ``most``."""
        value = named_column(column)
        statement = _around(name, query).where(value <= most).order_by(value.desc()).limit(count)
        with self._watched(name):
            return self._connection.execute(statement).all()

    def stream(self, name: str, query: str, where: ColumnElement[bool] | None = None) -> Iterator[Sequence[Row[Any]]]:
        """The query's rows, some at a time, as they arrive. One that is left before its end may end the snapshot."""
        statement: Any = text(verbatim(_tidy(name, query))) if where is None else _around(name, query).where(where)
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
                _leave_unread(result.cursor)
                _break_off(self._connection)

    @contextmanager
    def _watched(self, name: str) -> Iterator[None]:
        """Breaks the connection off when the database says nothing for too long, and puts errors into words."""
        silent = threading.Event()

        def give_up() -> None:
            silent.set()
            _break_off(self._connection)

        # A server that hangs, or a network that swallows, is not noticed by every driver.
        timer = threading.Timer(self._answer_timeout + _GRACE, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (SQLAlchemyError, OSError, sqlite3.Error) as error:
            if silent.is_set():
                raise SqlTroubleError(
                    f"queries.{name}: no answer for {self._answer_timeout:g} s; see that the server is well, make the"
                    " query faster, or raise answer_timeout"
                ) from error
            raise trouble_of(error, self._url, name) from error
        except (ValueError, OverflowError, RecursionError) as error:
            # A driver that cannot make a Python value of what it was sent.
            raise SqlTroubleError(
                f"queries.{name}: a value cannot be read ({type(error).__name__}); leave out its column, or cast it to"
                " text in the query"
            ) from error
        finally:
            timer.cancel()


_GRACE = 2.0
"""Seconds after ``answer_timeout`` that a server has to say by itself that it gave up."""


def named_column(name: str) -> ColumnElement[Any]:
    """A column of the query, exactly as it is called."""
    return column(quoted_name(name, quote=True))


def _around(name: str, query: str) -> Select[Any]:
    return select(literal_column("*")).select_from(text(wrapped(_tidy(name, query))))


def _tidy(name: str, query: str) -> str:
    try:
        return tidy(query)
    except ValueError as error:
        raise SqlTroubleError(f"queries.{name}: {error}") from None


@contextmanager
def open_snapshot(
    url: URL, *, connect_timeout: float, answer_timeout: float, zone: str = "UTC"
) -> Iterator[SqlSnapshot]:
    """Connects, begins the transaction, and at the end rolls it back; what was left unread is not waited for.

    ``zone``: the time zone of a database whose times have none. Raises ``SqlTroubleError``.
    """
    engine = _engine(url, connect_timeout=connect_timeout, answer_timeout=answer_timeout)
    try:
        try:
            connection = engine.connect()
        except (SQLAlchemyError, OSError, ValueError) as error:
            raise trouble_of(error, url) from error
        try:
            try:
                connection = _begin(connection, answer_timeout=answer_timeout, zone=zone)
            except (SQLAlchemyError, OSError) as error:
                raise trouble_of(error, url) from error
            yield SqlSnapshot(connection, url, answer_timeout)
        finally:
            _close(connection)
    finally:
        engine.dispose()


def _close(connection: Connection) -> None:
    """For good: what was left unread is not wanted."""
    with suppress(SQLAlchemyError, OSError, sqlite3.Error):
        connection.invalidate()
    with suppress(SQLAlchemyError, OSError, sqlite3.Error):
        connection.close()


def _leave_unread(cursor: Any) -> None:
    """Keeps PyMySQL from reading a stream that nobody wants to its end before it lets go of it."""
    result = cursor._result  # noqa: SLF001 - there is no other way to say it
    if result is not None:
        result.unbuffered_active = False
    cursor.connection = None


def _break_off(connection: Connection) -> None:
    """Ends whatever the connection is waiting for; may be called from another thread."""
    with suppress(Exception):  # it is broken anyway
        driver: Any = connection.connection.dbapi_connection
        if isinstance(driver, sqlite3.Connection):
            driver.interrupt()
        elif connection.dialect.driver == "psycopg":
            with socket.socket(fileno=os.dup(driver.fileno())) as wire:
                wire.shutdown(socket.SHUT_RDWR)
        elif connection.dialect.driver == "pymysql":
            # Its own way of saying it: the socket is closed, and cursors read no further.
            driver._force_close()  # noqa: SLF001
        elif hasattr(driver, "cancel"):
            driver.cancel()


def _engine(url: URL, *, connect_timeout: float, answer_timeout: float) -> Engine:
    arguments: dict[str, Any] = {"poolclass": NullPool, "hide_parameters": True}
    backend = url.get_backend_name()
    driver = url.get_driver_name() if "+" in url.drivername else ""
    if backend == "sqlite":
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
        raise driver_missing(url, error) from error
    if driver == "psycopg":
        event.listen(engine, "connect", lambda driver_connection, _: _tolerate_odd_times(driver_connection))
    return engine


def _open_sqlite(file: str, patience: float) -> sqlite3.Connection:
    path = file.removeprefix("file:").partition("?")[0]
    connection = sqlite3.connect(
        f"file:{quote(str(Path(path).absolute()))}?mode=ro",
        uri=True,
        timeout=patience,
        isolation_level=None,
        check_same_thread=False,
    )
    # Bytes that are not UTF-8 make their row malformed, not the read.
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    return connection


def _json(content: str | bytes) -> object:
    try:
        value: object = json.loads(content)
    except (ValueError, RecursionError):
        return NotReadableError("holds JSON that is nested too deep, or a number that is too long")
    return value


def _tolerate_odd_times(driver_connection: Any) -> None:
    """PostgreSQL has times that Python has not, such as ``infinity``: they are text."""
    import psycopg  # noqa: PLC0415 - of an extra, and imported by now
    from psycopg.adapt import Loader  # noqa: PLC0415 - as above
    from psycopg.types.string import TextLoader  # noqa: PLC0415 - as above

    class Tolerant(Loader):
        """Psycopg's own loader, and the text where that gives up."""

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
        driver_connection.adapters.register_loader(name, Tolerant)


def _begin(connection: Connection, *, answer_timeout: float, zone: str) -> Connection:
    """The connection, in its snapshot."""
    name = connection.dialect.name
    milliseconds = round(answer_timeout * 1000)
    if name == "postgresql":
        connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        # Whoever takes the rows may pause for as long as the reading as a whole may take.
        connection.exec_driver_sql(
            f"SELECT set_config('statement_timeout', '{milliseconds}', true),"
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
        connection = _begin_elsewhere(connection)
    return connection


def _begin_elsewhere(connection: Connection) -> Connection:
    driver: Any = connection.connection.dbapi_connection
    levels = connection.dialect.get_isolation_level_values(driver)
    level: Any = next((level for level in _ISOLATION if level in levels), None)
    return connection if level is None else connection.execution_options(isolation_level=level)
