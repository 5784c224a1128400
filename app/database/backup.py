"""The copy of a SQLite database to which others write. A plain copy of the file would be half of two states."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from app.database.engine import DatabaseUrlError, parse_url

_PAGES_AT_ONCE = 4096
"""Between two lots others may write; what they change is copied again."""


def copy_sqlite(url: str, to: Path) -> int:
    """Copies the database of the URL into a file that is not there yet, readable for its owner alone; its bytes.

    Raises ``DatabaseUrlError`` when there is no such database, and ``OSError`` when the file cannot be made.
    """
    source = Path(str(parse_url(url).database))
    if not source.is_file():
        raise DatabaseUrlError(f"there is no database {source} yet: nothing to copy")
    os.close(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with (
            closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as original,
            closing(sqlite3.connect(to)) as copy,
        ):
            original.backup(copy, pages=_PAGES_AT_ONCE)
            # A copy of a write-ahead database wants a file beside it, which a backup should not.
            copy.execute("PRAGMA journal_mode=DELETE").close()
    except BaseException:
        to.unlink(missing_ok=True)
        raise
    return to.stat().st_size
