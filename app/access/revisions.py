"""The revisions of the access model."""

from sqlalchemy import Connection, Table, func, select

from app.access.record_tables import core_table
from app.access.tables import RevisionRow

REVISION: Table = core_table(RevisionRow)

_IN_FORCE = select(func.coalesce(func.max(REVISION.c.revision), 0))


def revision_in_force(connection: Connection) -> int:
    """The current revision of the access model; 0 before the directory was read."""
    return int(connection.execute(_IN_FORCE).scalar_one())
