"""The revisions of the access model: the current one, and the next.

If a refresh changed nothing, the revision stays. Only the first read is a revision even if it is empty, because an
empty directory is not the same as one that was never read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from sqlalchemy import Connection, select

from app.access.change_counts import ChangeCounts, changes_from_json, changes_to_json
from app.access.refresh.sources import SOURCE
from app.access.tables import RevisionRow
from app.foundation.database.statements import run

REVISION = RevisionRow.__table__

REVISION_CHANNEL = "usher_revision"
"""The channel on which PostgreSQL notifies the nodes of a new revision."""


class LatestRevision(NamedTuple):
    """The current revision of the access model."""

    revision: int = 0
    """0 before the directory was read."""
    created_at: int | None = None
    """In epoch milliseconds. None before the directory was read."""


def latest_revision(connection: Connection) -> LatestRevision:
    """Reads the current revision."""
    query = select(REVISION.c.revision, REVISION.c.created_at).order_by(REVISION.c.revision.desc()).limit(1)
    row = connection.execute(query).first()
    return LatestRevision() if row is None else LatestRevision(row.revision, row.created_at)


def current_revision(connection: Connection) -> int:
    """The current revision of the access model. 0 before the directory was read."""
    return latest_revision(connection).revision


def instance_stamp(connection: Connection) -> str:
    """Identifies the state of the access model. Installations whose directory was never read have the same stamp."""
    revision, created_at = latest_revision(connection)
    return sha256(f"{revision} {created_at}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ModelChange:
    """The changes of a refresh, or of a stored revision, to the access model."""

    revision: int
    """The revision after the changes. 0 if there is none yet."""
    changes: Mapping[str, ChangeCounts]
    """kind → counts."""
    created_at: int | None = None
    """When a stored revision was created, in epoch milliseconds."""

    @property
    def changed(self) -> bool:
        """Whether anything changed."""
        return any(counts.any for counts in self.changes.values())


def recent_changes(connection: Connection, limit: int) -> list[ModelChange]:
    """The changes of the latest revisions, the current one first."""
    rows = connection.execute(select(REVISION).order_by(REVISION.c.revision.desc()).limit(limit))
    return [ModelChange(row.revision, changes_from_json(row.changes), row.created_at) for row in rows]


_ADD = """
INSERT INTO access_revision (revision, created_at, changes, logged)
SELECT COALESCE(MAX(revision), 0) + 1, :now, :changes, :logged FROM access_revision
RETURNING revision
"""


def add_revision(
    connection: Connection, changes: Mapping[str, ChangeCounts], now_ms: int, *, logged: bool
) -> ModelChange:
    """Adds a revision if anything changed, or at the first read. ``logged``: whether its changes are logged."""
    if not any(counts.any for counts in changes.values()):
        revision = current_revision(connection)
        was_read = select(SOURCE.c.source_id).where(SOURCE.c.read_in_force > 0).limit(1)
        if revision or connection.execute(was_read).first() is None:
            return ModelChange(revision, changes)
    row = {"now": now_ms, "changes": changes_to_json(changes), "logged": logged}
    return ModelChange(int(run(connection, _ADD, row).scalar_one()), changes)
