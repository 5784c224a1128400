"""Copies a SQLite database while other processes write to it. A plain copy of the file could mix two states."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from app.foundation.database.errors import free_bytes
from app.foundation.database.url import DatabaseUrlError, parse_url

_PAGES_PER_STEP = 4096
"""Other processes can write between two steps; SQLite copies the pages that they change again."""


class BackupError(Exception):
    """The copy failed. The text is one line with the reason."""


def _remove(copy: Path) -> None:
    for suffix in ("", "-journal"):
        copy.with_name(copy.name + suffix).unlink(missing_ok=True)


def copy_sqlite(url: str, to: Path) -> int:
    """Copies the database into a new file that only its owner can read, and returns the size in bytes.

    Raises ``DatabaseUrlError`` if there is no such database, and ``BackupError`` if the copy fails.
    """
    source = Path(str(parse_url(url).database))
    if not source.is_file():
        raise DatabaseUrlError(f"there is no database {source} yet: nothing to copy")
    try:
        os.close(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise BackupError(f"{to}: {error.strerror}; name a new file in a folder that can be written to") from error
    try:
        with (
            closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as original,
            closing(sqlite3.connect(to)) as copy,
        ):
            original.backup(copy, pages=_PAGES_PER_STEP)
            # A database in write-ahead mode needs a second file, which a backup should not have.
            copy.execute("PRAGMA journal_mode=DELETE").close()
    except sqlite3.Error as error:
        _remove(to)
        size = source.stat().st_size
        if "full" in str(error) or free_bytes(to.parent) < size:
            raise BackupError(
                f"{to}: the disk is full; the copy needs {size:,} bytes: make room, or name a file elsewhere"
            ) from error
        raise BackupError(f"{to}: the copy failed: {error}") from error
    except BaseException:
        _remove(to)
        raise
    return to.stat().st_size
