"""Reads for pages: transactions in which no statement takes longer than a reader would wait."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from app.foundation.database.engine import is_sqlite, reading

LONGEST = 2.0
"""Seconds."""

_STEPS = 20_000
"""Virtual machine instructions of SQLite between two looks at the clock; some milliseconds."""

_LOOKING_UP = "; ".join(f"SET LOCAL enable_{way} = off" for way in ("seqscan", "bitmapscan", "hashjoin", "mergejoin"))
"""Pages look up a few rows by keys. PostgreSQL cannot know how few are in a list that is given as one parameter, and
would rather read a table with ten million rows."""


class TooSlowError(Exception):
    """A statement was ended because it took too long."""


@contextmanager
def page_reading(engine: Engine, longest: float = LONGEST) -> Iterator[Connection]:
    """Like ``reading``; raises ``TooSlowError`` where the statements together (SQLite), or one of them (PostgreSQL),
    take longer than that many seconds."""
    dialect = engine.dialect
    with reading(engine) as connection:
        driver = connection.connection.driver_connection
        assert driver is not None  # noqa: S101 - it is connected
        if is_sqlite(engine):
            ends = monotonic() + longest
            driver.set_progress_handler(lambda: monotonic() > ends, _STEPS)
        try:
            if not is_sqlite(engine):
                driver.execute(f"SET LOCAL statement_timeout = {round(longest * 1000)}; {_LOOKING_UP}")
            yield connection
        # What loads views speaks to the driver itself.
        except (DBAPIError, dialect.loaded_dbapi.Error) as error:
            own = error.orig if isinstance(error, DBAPIError) else error
            if getattr(own, "sqlstate", "") == "57014" or "interrupted" in str(own):
                raise TooSlowError from error
            if isinstance(error, DBAPIError):
                raise
            raise DBAPIError.instance(
                None, None, error, dialect.loaded_dbapi.Error, hide_parameters=True, dialect=dialect
            ) from error
        finally:
            if is_sqlite(engine):
                driver.set_progress_handler(None, 0)
