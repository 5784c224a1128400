"""The revisions of the access model: the current one, and the next.

If a refresh changed nothing, the revision stays. Only the first read is a revision even if it is empty, because an
empty directory is not the same as one that was never read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import Connection, select

from app.access.refresh.sources import SOURCE
from app.access.refresh.tables import ChangeCounts, changes_from_json, changes_to_json
from app.access.tables import RevisionRow
from app.foundation.database.statements import run

REVISION = RevisionRow.__table__

REVISION_CHANNEL = "usher_revision"
"""The channel on which PostgreSQL notifies the nodes of a new revision."""


def latest_revision(connection: Connection) -> tuple[int, int | None]:
    """The current revision of the access model, and when it was created, in epoch milliseconds. 0 and None before the
    directory was read."""
    query = select(REVISION.c.revision, REVISION.c.created_at).order_by(REVISION.c.revision.desc()).limit(1)
    row = connection.execute(query).first()
    return (0, None) if row is None else (row.revision, row.created_at)


def current_revision(connection: Connection) -> int:
    """The current revision of the access model. 0 before the directory was read."""
    return latest_revision(connection)[0]


def instance_stamp(connection: Connection) -> str:
    """Identifies the state of the access model. Installations whose directory was never read have the same stamp."""
    revision, created_at = latest_revision(connection)
    return sha256(f"{revision} {created_at}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ModelChange:
    """The changes of a refresh to the access model."""

    revision: int
    """The current revision. 0 if there is none yet."""
    changed: bool
    changes: Mapping[str, ChangeCounts]
    """kind → counts, for every kind."""


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """The changes of a stored revision."""

    revision: int
    created_at: int
    """Epoch milliseconds."""
    changes: Mapping[str, ChangeCounts]
    """kind → counts, for the kinds that changed."""

    @property
    def total(self) -> ChangeCounts:
        """The changes of all kinds."""
        return sum(self.changes.values(), ChangeCounts())


def recent_changes(connection: Connection, limit: int) -> list[RecordedChange]:
    """The changes of the latest revisions, the current one first."""
    rows = connection.execute(select(REVISION).order_by(REVISION.c.revision.desc()).limit(limit))
    return [
        RecordedChange(
            row.revision,
            row.created_at,
            changes_from_json(row.changes),
        )
        for row in rows
    ]


_ADD = """
INSERT INTO access_revision (revision, created_at, changes, logged)
SELECT COALESCE(MAX(revision), 0) + 1, :now, :changes, :logged FROM access_revision
RETURNING revision
"""


def close_revision(
    connection: Connection, changes: Mapping[str, ChangeCounts], now_ms: int, *, logged: bool
) -> ModelChange:
    """Increments the revision if anything changed. ``logged``: whether its changes are logged."""
    changed = any(counts.any for counts in changes.values())
    revision = 0 if changed else current_revision(connection)
    is_read = select(SOURCE.c.source_id).where(SOURCE.c.read_in_force > 0).limit(1)
    if changed or (revision == 0 and connection.execute(is_read).first() is not None):
        row = {"now": now_ms, "changes": changes_to_json(changes), "logged": logged}
        revision = int(run(connection, _ADD, row).scalar_one())
    return ModelChange(revision=revision, changed=changed, changes=changes)
