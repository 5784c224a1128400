"""Read transactions for pages, with a statement timeout."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from app.foundation.database.engine import is_sqlite, reading

TIMEOUT = 2.0
"""Seconds."""

_STEPS = 20_000
"""SQLite checks the timeout after so many virtual machine instructions, which take some milliseconds."""

_INDEX_LOOKUPS = "; ".join(
    f"SET LOCAL enable_{plan} = off" for plan in ("seqscan", "bitmapscan", "hashjoin", "mergejoin")
)
"""Pages look up a few rows by key. PostgreSQL cannot see how few keys a list parameter contains, and would scan a table
of ten million rows."""


class TooSlowError(Exception):
    """A statement exceeded the timeout."""


@contextmanager
def page_reading(engine: Engine) -> Iterator[Connection]:
    """A read transaction. Raises ``TooSlowError`` if one statement (PostgreSQL), or all (SQLite), take too long."""
    dialect = engine.dialect
    with reading(engine) as connection:
        driver = connection.connection.driver_connection
        assert driver is not None  # noqa: S101 - it is connected
        if is_sqlite(engine):
            deadline = monotonic() + TIMEOUT
            driver.set_progress_handler(lambda: monotonic() > deadline, _STEPS)
        try:
            if not is_sqlite(engine):
                driver.execute(f"SET LOCAL statement_timeout = {round(TIMEOUT * 1000)}; {_INDEX_LOOKUPS}")
            yield connection
        # The loader of views uses the driver directly, so its errors occur as well.
        except (DBAPIError, dialect.loaded_dbapi.Error) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            if getattr(cause, "sqlstate", "") == "57014" or "interrupted" in str(cause):
                raise TooSlowError from error
            if isinstance(error, DBAPIError):
                raise
            raise DBAPIError.instance(
                None, None, error, dialect.loaded_dbapi.Error, hide_parameters=True, dialect=dialect
            ) from error
        finally:
            if is_sqlite(engine):
                driver.set_progress_handler(None, 0)
