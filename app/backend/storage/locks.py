"""The exclusive lock of a name, such as an API key, that writers hold until their transaction ends."""

from sqlalchemy import Connection, func, select

from app.foundation.database.engine import is_sqlite


def lock_for_writing(connection: Connection, name: str) -> None:
    """Waits for the lock. Rows that only holders write cannot change after this. SQLite allows one writer anyway."""
    if not is_sqlite(connection):
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))
