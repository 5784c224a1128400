"""Whether this version can use a database that a newer version upgraded.

An upgrade stores the oldest revision whose software can still use the database. A process of an older version continues
if it has that revision, and stops using the database if not.
"""

from collections.abc import Callable, Collection
from enum import Enum

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, inspect, select

from app.foundation.database.engine import reading
from app.foundation.database.programs import COMPATIBILITY_TABLE, SchemaNewerError

COMPATIBILITY = Table(COMPATIBILITY_TABLE, MetaData(), Column("oldest_revision", String, primary_key=True))


class SchemaState(Enum):
    """A database's schema, compared with that of this version."""

    CURRENT = "current"
    OLDER = "older"
    """An upgrade is pending."""
    NEWER = "newer"
    """A newer version upgraded it, and this version can still use it."""


def oldest_compatible(connection: Connection) -> str | None:
    """The oldest revision whose software can use the database; None if the database does not state it."""
    if not inspect(connection).has_table(COMPATIBILITY_TABLE):
        return None
    return connection.execute(select(COMPATIBILITY.c.oldest_revision)).scalar()


class SchemaGuard:
    """Refuses work on a database that a newer version made incompatible while this process runs.

    It queries the database at most once a second.
    """

    INTERVAL = 1.0

    def __init__(self, engine: Engine, known: Collection[str], monotonic: Callable[[], float]) -> None:
        self._engine, self._known, self._monotonic = engine, frozenset(known), monotonic
        self._next_query = float("-inf")

    def check(self) -> None:
        """Raises ``SchemaNewerError`` if this version cannot use the database."""
        now = self._monotonic()
        if now < self._next_query:
            return
        with reading(self._engine) as connection:
            oldest = connection.execute(select(COMPATIBILITY.c.oldest_revision)).scalar()
        if oldest is not None and oldest not in self._known:
            raise SchemaNewerError
        self._next_query = now + self.INTERVAL
