"""The copy of a SQLite database to which others write. A plain copy of the file would be half of two states."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from app.foundation.database.engine import DatabaseUrlError, parse_url
from app.foundation.database.errors import room_left

_PAGES_AT_ONCE = 4096
"""Between two lots others may write; what they change is copied again."""


class BackupError(Exception):
    """The copy failed; the text is one line with the reason."""


def _remove(copy: Path) -> None:
    for ending in ("", "-journal"):
        copy.with_name(copy.name + ending).unlink(missing_ok=True)


def copy_sqlite(url: str, to: Path) -> int:
    """Copies the database of the URL into a file that is not there yet, readable for its owner alone; its bytes.

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
            original.backup(copy, pages=_PAGES_AT_ONCE)
            # A copy of a write-ahead database wants a file beside it, which a backup should not.
            copy.execute("PRAGMA journal_mode=DELETE").close()
    except sqlite3.Error as error:
        _remove(to)
        if "full" in str(error) or room_left(to.parent) < source.stat().st_size:
            raise BackupError(
                f"{to}: the disk is full; the copy needs {source.stat().st_size:,} bytes: make room, or name a file"
                " elsewhere"
            ) from error
        raise BackupError(f"{to}: the copy failed: {error}") from error
    except BaseException:
        _remove(to)
        raise
    return to.stat().st_size
