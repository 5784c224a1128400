"""The revisions of the access model."""

from hashlib import sha256

from sqlalchemy import Connection, Table, func, select

from app.access.tables import RevisionRow

REVISION: Table = RevisionRow.__table__


def current_revision(connection: Connection) -> int:
    """The current revision of the access model; 0 before the directory was read."""
    return int(connection.execute(select(func.coalesce(func.max(REVISION.c.revision), 0))).scalar_one())


def revision_created_at(connection: Connection) -> int | None:
    """When the current revision was created, in epoch milliseconds; None before the first."""
    return connection.execute(select(func.max(REVISION.c.created_at))).scalar()


def instance_stamp(connection: Connection) -> str:
    """Identifies the state of the access model: two installations never have the same."""
    stamp = f"{current_revision(connection)} {revision_created_at(connection)}"
    return sha256(stamp.encode()).hexdigest()[:16]
