"""Opens a database, and its read and write transactions.

All statements of a ``reading`` transaction see one snapshot. A ``writing`` transaction takes the write lock at once on
SQLite. On PostgreSQL writers run concurrently: a read-modify-write locks its rows there (``FOR UPDATE`` or an advisory
lock), or compares them again in the statement that changes them. Both roll back when the block raises.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, ExceptionContext
from sqlalchemy.exc import NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry

from app.foundation.database.errors import describe_sqlite_error, wrap_driver_error
from app.foundation.database.response_timeout import bound_responses
from app.foundation.database.url import DriverMissingError, parse_url
from app.foundation.files import make_file, make_folder

BUSY_TIMEOUT_MS = 60_000
"""How long a SQLite writer waits for another one."""

CLIENT_KEEPALIVES = {"keepalives_idle": 3, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 9000}
"""PostgreSQL's client detects a dead connection within ten seconds: the next statement fails."""

WRITE_LOCK = "usher_write_lock"
"""The execution option that decides whether a transaction on SQLite begins with the write lock (default: True)."""

_AFTER_COMMIT = "usher_after_commit"
"""The execution option with the callbacks of a ``writing`` transaction."""

_MMAP_BYTES = 4 << 30
"""The maximum size of the memory-mapped part of a SQLite file."""

_WAL_TRIES = 20
"""Tries to convert a new SQLite file to write-ahead logging."""


def is_sqlite(engine: Engine | Connection) -> bool:
    return engine.dialect.name == "sqlite"


def open_engine(
    url_text: str,
    *,
    pool_size: int = 8,
    mapped: bool = False,
    single: bool = False,
    response_timeout: float | None = None,
) -> Engine:
    """Opens an engine for the transactions of this module. It connects lazily.

    ``mapped``: for processes that read much and write little. They map the SQLite file into memory and share its pages.
    ``single``: for temporary tables that live as long as the engine. It has one connection and keeps it.
    ``response_timeout``: seconds that a statement waits for PostgreSQL, see ``bound_responses``. None: no limit.

    In a process that forks, call this after the fork, or ``engine.dispose(close=False)`` in the child.
    """
    url = parse_url(url_text)
    options: dict[str, Any] = {
        # Parameters can be secrets, such as API keys. They must not reach a log or an error.
        "hide_parameters": True,
        "pool_size": 1 if single else pool_size,
        "max_overflow": 0 if single else pool_size,
        # The connections used last have the most prepared statements, and the temporary tables of pushes.
        "pool_use_lifo": True,
    }
    if url.get_backend_name() == "sqlite":
        return _open_sqlite(url, options, mapped=mapped)
    return _open_postgresql(url, options, single=single, response_timeout=response_timeout)


def _open_postgresql(url: URL, options: dict[str, Any], *, single: bool, response_timeout: float | None) -> Engine:
    try:
        engine = create_engine(
            url,
            **options,
            pool_pre_ping=not single,
            pool_recycle=-1 if single else 1800,
            connect_args={"connect_timeout": 5, "application_name": "usher", **CLIENT_KEEPALIVES},
        )
    except (NoSuchModuleError, ImportError) as error:
        raise DriverMissingError(
            "PostgreSQL needs the driver that the extra \"postgres\" brings: pip install 'usher[postgres]'"
        ) from error

    if response_timeout is not None:
        bound_responses(engine, response_timeout)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _entry: ConnectionPoolEntry) -> None:
        # Id lists are one JSON parameter of unknown size. The planner would overestimate it and spend a second on
        # compiling a plan that runs for a millisecond. Poolers refuse this as a start-up option.
        connection.execute("SET jit = off")
        connection.commit()

    return engine


def _open_sqlite(url: URL, options: dict[str, Any], *, mapped: bool) -> Engine:
    file = Path(str(url.database))
    make_folder(file.parent)
    engine = create_engine(
        url,
        **options,
        connect_args={
            "timeout": BUSY_TIMEOUT_MS / 1000,
            "check_same_thread": False,
            # A refresh has over 400 different statements; the driver's default of 128 would evict all of them.
            "cached_statements": 1000,
        },
    )

    @event.listens_for(engine, "do_connect")
    def _make(*_: object) -> None:
        # SQLite would create it, and the files beside it, readable for everyone. SQLite reports if that fails.
        with suppress(OSError):
            make_file(file)

    @event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        # The driver's implicit BEGIN would come too late to guard a read-modify-write.
        connection.isolation_level = None
        _use_write_ahead_log(connection)
        for pragma in (
            "synchronous=FULL",  # commits survive a power failure, not only a crash
            "foreign_keys=ON",
            "temp_store=FILE",  # planning spills to disk instead of growing
            "cache_size=-16384",
            "journal_size_limit=67108864",
            f"mmap_size={_MMAP_BYTES if mapped else 0}",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "handle_error")
    def _describe(context: ExceptionContext) -> None:
        if isinstance(context.original_exception, sqlite3.Error):
            describe_sqlite_error(context.original_exception, str(url.database))

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        lock = connection.get_execution_options().get(WRITE_LOCK, True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if lock else "BEGIN")

    return engine


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """The first connection converts a new file. SQLite refuses concurrent connections meanwhile without waiting."""
    for left in reversed(range(_WAL_TRIES)):
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or not left:
                raise
            # This waits for the other connection.
            connection.execute("BEGIN IMMEDIATE").close()
            connection.execute("COMMIT").close()
        else:
            return


@contextmanager
def disposing(engine: Engine) -> Iterator[Engine]:
    """The engine, whose connections are closed at the end of the block."""
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A read-only transaction. All of its statements see the same snapshot."""
    options: dict[str, object] = {WRITE_LOCK: False}
    if not is_sqlite(engine):
        options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A read-write transaction, committed at the end of the block. On SQLite it holds the write lock from the start."""
    callbacks: list[Callable[[], object]] = []
    options: dict[str, object] = {WRITE_LOCK: True, _AFTER_COMMIT: callbacks}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection
    for callback in callbacks:
        callback()


@contextmanager
def snapshot(engine: Engine, *, lock: bool = False) -> Iterator[Connection]:
    """A read-write transaction, all of whose statements see the same snapshot. ``lock``: on SQLite it holds the write
    lock from the start. Otherwise its first write takes the lock, and writing temporary tables needs none."""
    options: dict[str, object] = {WRITE_LOCK: lock} if is_sqlite(engine) else {"isolation_level": "REPEATABLE READ"}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


def after_commit(connection: Connection, callback: Callable[[], object]) -> None:
    """Calls ``callback`` after the commit of this ``writing`` transaction, or at once in any other transaction."""
    callbacks: list[Callable[[], object]] | None = connection.get_execution_options().get(_AFTER_COMMIT)
    if callbacks is None:
        callback()
    else:
        callbacks.append(callback)


def execute_raw(connection: Connection, statements: Iterable[str]) -> None:
    """Executes statements that have neither parameters nor results. Raises the errors of SQLAlchemy.

    It takes one round trip on PostgreSQL. On SQLite it avoids SQLAlchemy's overhead, which exceeds the time of most
    statements.
    """
    if not is_sqlite(connection):
        connection.exec_driver_sql("; ".join(statements))
        return
    driver: Any = connection.connection.driver_connection
    try:
        for statement in statements:
            driver.execute(statement).close()
    except sqlite3.Error as error:
        describe_sqlite_error(error, str(connection.engine.url.database))
        raise wrap_driver_error(error, connection.dialect) from error
