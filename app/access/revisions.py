"""The revisions of the access model: the current one, and the next.

If a refresh changed nothing, the revision stays. Only the first read is a revision even if it is empty, because an
empty directory is not the same as one that was never read.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256

import orjson
from sqlalchemy import Connection, func, insert, select

from app.access.refresh.sources import SOURCE
from app.access.refresh.tables import ChangeCounts
from app.access.tables import RevisionRow

REVISION = RevisionRow.__table__

REVISION_CHANNEL = "usher_revision"
"""The channel on which PostgreSQL notifies the nodes of a new revision."""


def current_revision(connection: Connection) -> int:
    """The current revision of the access model; 0 before the directory was read."""
    return int(connection.execute(select(func.coalesce(func.max(REVISION.c.revision), 0))).scalar_one())


def revision_created_at(connection: Connection) -> int | None:
    """When the current revision was created, in epoch milliseconds; None before the first."""
    return connection.execute(select(REVISION.c.created_at).order_by(REVISION.c.revision.desc()).limit(1)).scalar()


def instance_stamp(connection: Connection) -> str:
    """Identifies the state of the access model: two installations never have the same."""
    stamp = f"{current_revision(connection)} {revision_created_at(connection)}"
    return sha256(stamp.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ModelChange:
    """The changes of a refresh to the access model."""

    revision: int
    """The current revision; 0 if there is none yet."""
    changed: bool
    changes: Mapping[str, ChangeCounts]
    """kind → counts, for every kind."""


def close_revision(connection: Connection, changes: Mapping[str, ChangeCounts], now_ms: int) -> ModelChange:
    """Increments the revision if anything changed."""
    revision = current_revision(connection)
    changed = any(counts.any for counts in changes.values())
    is_read = select(SOURCE.c.source_id).where(SOURCE.c.read_in_force > 0).limit(1)
    if changed or (revision == 0 and connection.execute(is_read).first() is not None):
        revision += 1
        stored = {kind: asdict(counts) for kind, counts in changes.items() if counts.any}
        row = {"revision": revision, "created_at": now_ms, "changes": orjson.dumps(stored).decode()}
        connection.execute(insert(REVISION).values(row))
    return ModelChange(revision=revision, changed=changed, changes=changes)
