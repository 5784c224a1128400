"""Database errors: their causes, advice for operators, and which of them are outages.

SQLite's messages name no file, and a full disk has several error codes. ``describe_sqlite_error`` fixes both where the
error is raised.
"""

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

_NO_ROOM = 1024 * 1024
"""Bytes. With less free space SQLite fails with misleading errors."""

DISK_FULL = "the disk is full"
READ_ONLY = "cannot be written to"
ON_READ_ONLY_DISK = ": its file system is read-only"
MOUNT_IT = "mount it so that it can be written to, or let database_url name a file elsewhere"

_FULL_DISK_CODES = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL})
"""SQLite's errors on a full disk, beside ``SQLITE_FULL``."""


class NoTurnError(PoolTimeout):
    """The database works, but too many requests of this process use it."""


def describe_sqlite_error(error: sqlite3.Error, file: str) -> None:
    """Replaces the error's text by one that names the file and the cause."""
    original = " ".join(str(part) for part in error.args) or "an error of SQLite"
    if file in original:
        return
    code = _sqlite_code(error)
    path = Path(file)
    if code == sqlite3.SQLITE_FULL or (code in _FULL_DISK_CODES and free_bytes(path) < _NO_ROOM):
        error.args = (f"{file}: {DISK_FULL} ({original})",)
    elif code == sqlite3.SQLITE_READONLY or (
        code == sqlite3.SQLITE_CANTOPEN and path.is_file() and not is_writable_database(path)
    ):
        error.args = (f"{file} {READ_ONLY}{ON_READ_ONLY_DISK if is_on_read_only_disk(path) else ''} ({original})",)
    elif code == sqlite3.SQLITE_CANTOPEN:
        reason = "is a directory" if path.is_dir() else "cannot be opened"
        if is_on_read_only_disk(path):
            reason = READ_ONLY + ON_READ_ONLY_DISK
        error.args = (f"{file} {reason} ({original})",)
    elif code == sqlite3.SQLITE_NOTADB:
        error.args = (f"{file} is not a SQLite database",)
    elif code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT}:
        error.args = (f"{file}: {original}",)


def wrap_driver_error(error: Exception, dialect: Dialect) -> BaseException:
    """SQLAlchemy's form of a driver's error, without parameters."""
    driver: Any = dialect.loaded_dbapi
    return DBAPIError.instance(None, None, error, driver.Error, hide_parameters=True, dialect=dialect)


def free_bytes(path: Path) -> int:
    """Free space of the file system that contains the file, or would contain it."""
    folder = next((parent for parent in (path, *path.parents) if parent.is_dir()), Path("/"))
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return _NO_ROOM


def is_on_read_only_disk(path: Path) -> bool:
    """Whether the file is on a read-only file system, or would be."""
    existing = next((parent for parent in (path, *path.parents) if parent.exists()), Path("/"))
    return bool(os.statvfs(existing).f_flag & os.ST_RDONLY)


def is_writable(path: Path) -> bool:
    """Whether this user may write to an existing file or folder."""
    return os.access(path, os.W_OK) and not is_on_read_only_disk(path)


def is_writable_database(file: Path) -> bool:
    """Whether this user may write to the file and to its directory, in which SQLite creates further files."""
    return is_writable(file) and is_writable(file.parent)


_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})

_OUTAGE_STATES = ("25006", "40", "53", "57P", "58", "XX")
"""Prefixes of SQLSTATE: read-only server, serialization failure, insufficient resources, operator intervention, system
error, internal error. They are temporary or need a fix on the server."""

_CONFLICTS = frozenset({"40001", "SQLITE_BUSY_SNAPSHOT", "SQLITE_BUSY"})


def is_outage(error: BaseException) -> bool:
    """Whether the database or the disk is unavailable, as opposed to a bug in the program."""
    if isinstance(error, OperationalError | InterfaceError | PoolTimeout):
        return True
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or _sqlstate(error.orig).startswith(_OUTAGE_STATES)
    return isinstance(error, OSError) and error.errno in _DISK_ERRORS


def is_write_conflict(error: DBAPIError) -> bool:
    """Whether a concurrent transaction changed rows that this one had read, so that it must be retried."""
    code = _sqlstate(error.orig) or getattr(error.orig, "sqlite_errorname", None)
    return code in _CONFLICTS


def contradicts_schema(error: DBAPIError) -> bool:
    """Whether a statement does not match the tables: one is missing, or exists already."""
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    state = _sqlstate(error.orig)
    return state.startswith("42") and state != "42501"


def _sqlstate(original: BaseException | None) -> str:
    return getattr(original, "sqlstate", None) or ""


def _sqlite_code(original: BaseException | None) -> int:
    """SQLite's primary error code. 0 if there is none."""
    return (getattr(original, "sqlite_errorcode", None) or 0) & 0xFF


def log_fields(error: Exception) -> dict[str, Any]:
    """The log fields of a handled error: one line for an outage, which recurs while it lasts, otherwise the
    traceback."""
    if is_outage(error):
        return {"problem": type(error).__name__, "reason": cause_of(error)[:200]}
    return {"problem": type(error).__name__, "exc_info": error}


def database_problem(error: BaseException) -> str:
    """The cause and the advice, if there is any, on one line."""
    return f"the {'machine' if isinstance(error, OSError) else 'database'}: {cause_with_remedy(error)}"


def cause_with_remedy(error: BaseException) -> str:
    """The cause and the advice on one line, without a prefix."""
    remedy = remedy_of(error)
    return cause_of(error) + (f"; {remedy}" if remedy else "")


def cause_of(error: BaseException) -> str:
    """The first line of the driver's or the system's message. It may contain a URL with a password."""
    if isinstance(error, NoTurnError):
        return "too many requests are in progress"
    if isinstance(error, PoolTimeout):
        return "all connections to it are busy"
    if isinstance(error, OSError):
        return error.strerror or "cannot be opened"
    lines = str(error.orig).strip().splitlines() if isinstance(error, DBAPIError) else []
    return lines[0] if lines else "it does not answer"


def remedy_of(error: BaseException) -> str:
    """Advice for the operator. Empty if there is none."""
    original = error.orig if isinstance(error, DBAPIError) else None
    state, text = _sqlstate(original), str(original)
    if DISK_FULL in text or state == "53100":
        return "make room there"
    if READ_ONLY + ON_READ_ONLY_DISK in text:
        return MOUNT_IT
    if READ_ONLY in text:
        return "give this user the right to write to the file and to the directory that it is in"
    if state == "25006":
        return "the role or the database is set to read only, or it is a replica: let database_url name a primary"
    if state == "42501":
        return "let database_url name a role that may write to all tables, as the one that ran usher db upgrade"
    if isinstance(original, sqlite3.Error) and _sqlite_code(original) in {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOTADB,
    }:
        return "let database_url name Usher's own file, or one that is not there yet"
    return ""


def public_reason(error: BaseException) -> str:
    """The reason of an outage without file, host or role names: safe for anonymous callers."""
    original = error.orig if isinstance(error, DBAPIError) else error
    state = _sqlstate(original)
    if DISK_FULL in str(original) or state == "53100":
        return DISK_FULL
    if READ_ONLY in str(original) or state in {"25006", "42501"}:
        return f"the database {READ_ONLY}"
    return "not reachable at the moment"
