"""The errors of a database: what they mean, and what somebody does about them.

SQLite's own words name no file, and call a full disk many things: ``tell`` puts both right where errors come up, so
that whoever shows or logs one need not know.
"""

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

_NO_ROOM = 1024 * 1024
"""Bytes; with less SQLite fails in ways of its own."""

DISK_FULL = "the disk is full"
READ_ONLY = "cannot be written to"
ON_READ_ONLY_DISK = ": its file system is read-only"
MOUNT_IT = "mount it so that it can be written to, or let database_url name a file elsewhere"


def tell(error: sqlite3.Error, file: str) -> None:
    """Gives the error words that name the file and the cause."""
    own = " ".join(str(part) for part in error.args) or "an error of SQLite"
    if file in own:
        return
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    path = Path(file)
    if code == sqlite3.SQLITE_FULL or (code in _AS_IF_FULL and room_left(path) < _NO_ROOM):
        error.args = (f"{file}: {DISK_FULL} ({own})",)
    elif code == sqlite3.SQLITE_READONLY or (
        code == sqlite3.SQLITE_CANTOPEN and path.is_file() and not is_writable(path)
    ):
        error.args = (f"{file} {READ_ONLY}{ON_READ_ONLY_DISK if is_on_read_only_disk(path) else ''} ({own})",)
    elif code == sqlite3.SQLITE_CANTOPEN:
        why = "is a directory" if path.is_dir() else "cannot be opened"
        if is_on_read_only_disk(path):
            why = READ_ONLY + ON_READ_ONLY_DISK
        error.args = (f"{file} {why} ({own})",)
    elif code == sqlite3.SQLITE_NOTADB:
        error.args = (f"{file} is not a SQLite database",)
    elif code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT}:
        error.args = (f"{file}: {own}",)


_AS_IF_FULL = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL})


def room_left(path: Path) -> int:
    """Free bytes where the file is or would be."""
    folder = next((one for one in (path, *path.parents) if one.is_dir()), Path("/"))
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return _NO_ROOM


def is_on_read_only_disk(path: Path) -> bool:
    """Whether the file is, or would be, on a file system that can only be read."""
    folder = next((one for one in (path, *path.parents) if one.exists()), Path("/"))
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def is_writable(file: Path) -> bool:
    """Whether this user may write to it, and to the directory that SQLite makes files in beside it."""
    return all(
        os.access(folder, os.W_OK) and not os.statvfs(folder).f_flag & os.ST_RDONLY for folder in (file, file.parent)
    )


_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})

_AWAY = ("25006", "40", "53", "57P", "58", "XX")
"""SQLSTATE classes: read-only server, serialization failure, insufficient resources, operator intervention, system
error, internal error (all of them pass, or somebody has to mend the server)."""

_CAME_IN_BETWEEN = frozenset({"40001", "SQLITE_BUSY_SNAPSHOT", "SQLITE_BUSY"})


def is_outage(error: BaseException) -> bool:
    """Whether the error says that the database or the disk does not work at the moment, rather than that the program
    is wrong."""
    if isinstance(error, OperationalError | InterfaceError | PoolTimeout):
        return True
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or _sqlstate(error.orig).startswith(_AWAY)
    return isinstance(error, OSError) and error.errno in _DISK_ERRORS


def is_write_conflict(error: DBAPIError) -> bool:
    """Whether another transaction wrote what this one had read, so that it has to begin anew."""
    code = _sqlstate(error.orig) or getattr(error.orig, "sqlite_errorname", None)
    return code in _CAME_IN_BETWEEN


def contradicts_schema(error: DBAPIError) -> bool:
    """Whether a statement does not fit the tables: one is missing, or exists already."""
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    state = _sqlstate(error.orig)
    return state.startswith("42") and state != "42501"


def _sqlstate(original: BaseException | None) -> str:
    return getattr(original, "sqlstate", None) or ""


def log_fields(error: Exception) -> dict[str, Any]:
    """What a log line says of an error that was survived: one line of a database that is away, which comes again and
    again while it lasts, and the traceback of anything else."""
    if is_outage(error):
        return {"problem": type(error).__name__, "reason": cause_of(error)[:200]}
    return {"problem": type(error).__name__, "exc_info": error}


def database_problem(error: BaseException) -> str:
    """What is wrong, in the database's own words, and what to do where that is known, on one line."""
    return f"the {'machine' if isinstance(error, OSError) else 'database'}: {cause_with_remedy(error)}"


def cause_with_remedy(error: BaseException) -> str:
    """The same, for after a colon."""
    remedy = remedy_of(error)
    return cause_of(error) + (f"; {remedy}" if remedy else "")


def cause_of(error: BaseException) -> str:
    """The first line of what the driver or the system says; may hold a password in a URL."""
    if isinstance(error, PoolTimeout):
        return "all connections to it are busy"
    if isinstance(error, OSError):
        return error.strerror or "cannot be opened"
    lines = str(error.orig).strip().splitlines() if isinstance(error, DBAPIError) else []
    return lines[0] if lines else "it does not answer"


def remedy_of(error: BaseException) -> str:
    """What to do, in words for people; empty where nobody knows."""
    original = error.orig if isinstance(error, DBAPIError) else None
    state = _sqlstate(original)
    says = str(original)
    if DISK_FULL in says or state == "53100":
        return "make room there"
    if READ_ONLY + ON_READ_ONLY_DISK in says:
        return MOUNT_IT
    if READ_ONLY in says:
        return "give this user the right to write to the file and to the directory that it is in"
    if state == "25006":
        return "the role or the database is set to read only, or it is a replica: let database_url name a primary"
    if state == "42501":
        return "let database_url name a role that may write to all tables, as the one that ran usher db upgrade"
    if isinstance(original, sqlite3.Error) and (getattr(original, "sqlite_errorcode", 0) & 0xFF) in _OTHER_FILE:
        return "let database_url name Usher's own file, or one that is not there yet"
    return ""


_OTHER_FILE = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB})


def public_reason(error: BaseException) -> str:
    """What may be told to anybody of a database that cannot be used: no file, host or name."""
    original = error.orig if isinstance(error, DBAPIError) else error
    state = _sqlstate(original)
    if DISK_FULL in str(original) or state == "53100":
        return DISK_FULL
    if READ_ONLY in str(original) or state in {"25006", "42501"}:
        return f"the database {READ_ONLY}"
    return "not reachable at the moment"
