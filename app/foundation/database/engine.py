"""The opening of a database, and what a read or a write transaction on it is.

``reading`` gives one consistent snapshot for all of its statements. ``writing`` takes the right to write at once on
SQLite. On PostgreSQL others write beside it: what is read in order to be changed is locked there (``FOR UPDATE``, or an
advisory lock), or compared once more in the statement that changes it. Both roll back when the block raises.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from app.foundation.database.errors import tell
from app.foundation.files import make_file, make_folder

BUSY_TIMEOUT_MS = 60_000
"""How long a SQLite writer waits for another one."""

_WAL_TRIES = 20

MAPPED_BYTES = 4 << 30
"""How much of a database file is mapped at most; the rest is read as ever."""

_AFTERWARDS = "usher_afterwards"
"""The execution option that holds what is to be called when a transaction of ``writing`` is committed."""

WRITE = "usher_write"
"""The execution option that tells whether a transaction on SQLite takes the write lock when it begins (the default)."""


def usable_url(text: str) -> str:
    """The text, for settings, if it is the URL of a database that can be used. Raises ``DatabaseUrlError``."""
    parse_url(text)
    return text


RAW_AT = "each @ but the one before the host is written as %40, as in a password (and a / there as %2F)"


class DatabaseUrlError(ValueError):
    """A database URL that cannot be used; the text says why, without any password."""


class DriverMissingError(DatabaseUrlError):
    """A database that could be used if its driver were installed; the text names the extra that brings it."""


def parse_url(text: str) -> URL:
    """The URL of a database; raises ``DatabaseUrlError`` with what is wrong and what is possible."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise DatabaseUrlError(
            "not a database URL; write sqlite:///var/usher.db or postgresql://user@host/name"
        ) from error
    if url.get_backend_name() != "sqlite" and text.count("@") > 1:
        # A piece of the password would be taken for the host, which messages show.
        raise DatabaseUrlError(RAW_AT)
    if url.get_backend_name() in {"postgresql", "postgres"}:
        return url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:":
        return url
    if url.get_backend_name() == "sqlite":
        raise DatabaseUrlError("a SQLite database needs a file, as in sqlite:///var/usher.db")
    raise DatabaseUrlError(
        f"{url.get_backend_name()} is not supported; use sqlite:///FILE or postgresql://user@host/name"
    )


def is_sqlite(engine: Engine | Connection) -> bool:
    """Whether the embedded database is in use."""
    return engine.dialect.name == "sqlite"


def open_engine(url_text: str, *, pool_size: int = 8, mapped: bool = False, single: bool = False) -> Engine:
    """An engine with this project's transaction rules; nothing is connected yet.

    ``mapped`` is for a process that looks up much and changes little: SQLite then reads the pages that the operating
    system holds, which all processes share, without copying them.

    ``single``: one connection, which is kept as it is for as long as the engine lives, temporary tables included.

    In a process that forks, call this after the fork, or ``engine.dispose(close=False)`` in the child.
    """
    url = parse_url(url_text)
    if url.get_backend_name() == "sqlite":
        return _open_sqlite(url, pool_size, mapped=mapped, single=single)
    try:
        engine = create_engine(
            url,
            # What a caller shows as an API key, say, is a parameter: it belongs into no log and no error.
            hide_parameters=True,
            pool_size=1 if single else pool_size,
            max_overflow=0 if single else pool_size,
            pool_pre_ping=not single,
            # Those that were used last know most: prepared statements, and temporary tables that pushes leave there.
            pool_use_lifo=True,
            pool_recycle=-1 if single else 1800,
            connect_args={"connect_timeout": 5, "application_name": "usher"},
        )
    except (NoSuchModuleError, ImportError) as error:
        raise DriverMissingError(
            "PostgreSQL needs the driver that the extra \"postgres\" brings: pip install 'usher[postgres]'"
        ) from error

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _entry: ConnectionPoolEntry) -> None:
        # Sets of ids travel as one JSON parameter, of whose size the planner knows nothing: it would compile plans, for
        # a second, that run for a millisecond. (Asked for here because poolers refuse it as a start-up option.)
        connection.execute("SET jit = off")
        connection.commit()

    return engine


def _open_sqlite(url: URL, pool_size: int, *, mapped: bool, single: bool) -> Engine:
    file = Path(str(url.database))
    make_folder(file.parent)
    engine = create_engine(
        url,
        hide_parameters=True,
        pool_size=1 if single else pool_size,
        max_overflow=0 if single else pool_size,
        pool_use_lifo=True,
        connect_args={
            "timeout": BUSY_TIMEOUT_MS / 1000,
            "check_same_thread": False,
            # A refresh says over 400 different statements: of the driver's 128 none would be there when it comes again.
            "cached_statements": 1000,
        },
    )

    @event.listens_for(engine, "do_connect")
    def _make(*_: object) -> None:
        # SQLite would let everybody read it, and the files beside it take after it. Where no file can be made, SQLite
        # says so: its errors are those that are told.
        with suppress(OSError):
            make_file(file)

    @event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        # The driver's own implicit BEGIN would come too late to guard a read-modify-write.
        connection.isolation_level = None
        _use_write_ahead_log(connection)
        for pragma in (
            "synchronous=FULL",  # what was answered survives a power cut, not only a crash
            "foreign_keys=ON",
            "temp_store=FILE",  # planning spills to disk instead of growing
            "cache_size=-16384",
            "journal_size_limit=67108864",
            f"mmap_size={MAPPED_BYTES if mapped else 0}",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "handle_error")
    def _tell(context: ExceptionContext) -> None:
        if isinstance(context.original_exception, sqlite3.Error):
            tell(context.original_exception, str(url.database))

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        write = connection.get_execution_options().get(WRITE, True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """A new file is changed to it by whoever opens it first; others who come meanwhile are refused without waiting."""
    for left in reversed(range(_WAL_TRIES)):
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or not left:
                raise
            # This does wait for them.
            connection.execute("BEGIN IMMEDIATE").close()
            connection.execute("COMMIT").close()
        else:
            return


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads; all of its statements see the same snapshot."""
    options: dict[str, object] = {WRITE: False}
    if not is_sqlite(engine):
        options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


@contextmanager
def driver_snapshot(engine: Engine, at_first: str = "") -> Iterator[Any]:
    """The same as ``reading`` for what is asked thousands of times a second: the driver's own connection.

    ``at_first`` is what the transaction is to run before anything else (PostgreSQL only), in the same round trip.

    Errors are SQLAlchemy's all the same, and a connection that broke is not used again.
    """
    dialect = engine.dialect
    pooled: PoolProxiedConnection | None = None
    try:
        pooled = engine.raw_connection()
        driver: Any = pooled.dbapi_connection
        # The pool rolls back what it gets back, which ends the transaction.
        driver.execute(
            "BEGIN" if is_sqlite(engine) else f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; {at_first}"
        ).close()
        yield driver
    except dialect.loaded_dbapi.Error as error:
        if pooled is not None and dialect.is_disconnect(error, pooled, None):
            pooled.invalidate(error)
        if isinstance(error, sqlite3.Error):
            tell(error, str(engine.url.database))
        raise DBAPIError.instance(
            None, None, error, dialect.loaded_dbapi.Error, hide_parameters=True, dialect=dialect
        ) from error
    finally:
        if pooled is not None:
            pooled.close()


def execute_raw(connection: Connection, statements: Iterable[str]) -> None:
    """Executes texts without parameters and results in the transaction that is open: on PostgreSQL in one round trip,
    on SQLite by the driver alone, because what SQLAlchemy does for a statement takes longer than most of them.

    Errors are SQLAlchemy's all the same.
    """
    if not is_sqlite(connection):
        connection.exec_driver_sql("; ".join(statements))
        return
    driver: Any = connection.connection.driver_connection
    try:
        for statement in statements:
            driver.execute(statement).close()
    except sqlite3.Error as error:
        tell(error, str(connection.engine.url.database))
        raise DBAPIError.instance(
            None, None, error, sqlite3.Error, hide_parameters=True, dialect=connection.dialect
        ) from error


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that may write, committed when the block ends; on SQLite it holds the write lock from the start."""
    afterwards: list[Callable[[], object]] = []
    options: dict[str, object] = {WRITE: True, _AFTERWARDS: afterwards}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection
    for call in afterwards:
        call()


def after_commit(connection: Connection, call: Callable[[], object]) -> None:
    """Calls it when this transaction of ``writing`` is committed, and never when it is rolled back; in a transaction
    that began otherwise, now."""
    afterwards: list[Callable[[], object]] | None = connection.get_execution_options().get(_AFTERWARDS)
    if afterwards is None:
        call()
    else:
        afterwards.append(call)
