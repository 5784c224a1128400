"""Classification and texts of database errors."""

import errno
import sqlite3
from typing import cast

import psycopg
import pytest
from psycopg import errors
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.foundation.database.errors import cause_of, database_problem, is_outage, is_write_conflict, log_fields


def raised(original: Exception, *, broken: bool = False) -> DBAPIError:
    """The error as SQLAlchemy raises it."""
    driver = sqlite3.Error if isinstance(original, sqlite3.Error) else psycopg.Error
    error = DBAPIError.instance(None, None, original, driver, connection_invalidated=broken)
    return cast("DBAPIError", error)


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (raised(sqlite3.OperationalError("disk I/O error")), True),
        (raised(sqlite3.IntegrityError("UNIQUE constraint failed")), False),
        (raised(errors.AdminShutdown("terminating connection")), True),
        (raised(errors.DiskFull("no space left")), True),
        (raised(errors.ReadOnlySqlTransaction("cannot execute INSERT")), True),
        (raised(errors.InFailedSqlTransaction("current transaction is aborted")), False),
        (raised(errors.InternalError_("cache lookup failed")), True),
        (raised(errors.SerializationFailure("could not serialize access")), True),
        (raised(errors.UndefinedTable("relation does not exist")), False),
        (raised(errors.UndefinedTable("relation does not exist"), broken=True), True),
        (PoolTimeout("QueuePool limit of size 5 overflow 0 reached"), True),
        (SQLAlchemyError("a mapper that is wrong"), False),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), False),
        (KeyError("a fault of ours"), False),
    ],
)
def test_outages_are_distinguished_from_bugs(error: Exception, away: bool) -> None:
    assert is_outage(error) is away
    assert set(log_fields(error)) == ({"problem", "reason"} if away else {"problem", "exc_info"})


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (raised(sqlite3.OperationalError("disk I/O error")), "the database: disk I/O error"),
        (raised(errors.AdminShutdown("terminating connection\nDETAIL: x")), "the database: terminating connection"),
        (PoolTimeout("QueuePool limit of size 5"), "the database: all connections to it are busy"),
        (SQLAlchemyError(""), "the database: it does not answer"),
        (OSError(errno.ENOSPC, "No space left on device"), "the machine: No space left on device"),
    ],
)
def test_problems_are_one_line(error: Exception, message: str) -> None:
    assert database_problem(error) == message
    assert cause_of(error) in message


def test_write_conflicts_are_recognized() -> None:
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorname = "SQLITE_BUSY_SNAPSHOT"

    assert is_write_conflict(raised(busy))
    assert is_write_conflict(raised(errors.SerializationFailure("could not serialize access")))
    assert not is_write_conflict(raised(errors.DeadlockDetected("deadlock detected")))
    assert not is_write_conflict(raised(sqlite3.OperationalError("disk I/O error")))
