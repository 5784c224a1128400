"""The change log: which entries of the index (``app.access.index``) each revision changes.

A refresh writes the log in the transaction that creates the revision. A node with the index of an earlier revision
reads only these entries again. A revision is not ``logged`` if it changed too much, if its changes were deleted, or if
an older version of the software created it. A node that is behind such a revision builds a new index.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, func, select, update

from app.access.change_counts import ChangeCounts
from app.access.records import (
    ContextGrant,
    Document,
    Folder,
    Grant,
    Group,
    GroupMember,
    Membership,
    Organization,
    User,
)
from app.access.refresh.tables import ModelTables
from app.access.revisions import REVISION, REVISION_CHANNEL
from app.access.tables import AccessChangeRow
from app.foundation.database.engine import is_sqlite
from app.foundation.database.statements import run

MAX_LOGGED = 50_000
"""A revision with more changes is not logged. This bounds the memory and the time for changing an index. To build a new
one takes not much longer."""
KEPT_MS = 3_600_000
"""How long changes are kept, in milliseconds, also those that all nodes have: plans of changes read them since the last
plan of everything, and a node that restarts follows them instead of building a new index."""

ACCESS_CHANGE = AccessChangeRow.__table__

_LOG = """
INSERT INTO access_change (revision, kind, organization_id, item_id, detail)
SELECT :revision, {rows} FROM {delta} WHERE change <> {owner}
"""

# The columns kind, organization_id, item_id and detail, from those of the record's key.
_LOGGED: Mapping[str, str] = {
    Organization.kind: "'o', organization_id, '', ''",
    User.kind: "'u', '', user_id, ''",
    Membership.kind: "'m', organization_id, user_id, ''",
    Group.kind: "'g', organization_id, organization_user_group_id, ''",
    GroupMember.kind: """
        CASE WHEN user_id <> '' THEN 'e' ELSE 'g' END, organization_id,
        CASE WHEN user_id <> '' THEN user_id ELSE member_group_id END, ''""",
    Folder.kind: "'f', organization_id, folder_id, ''",
    Document.kind: "'d', organization_id, document_id, ''",
    Grant.kind: """
        CASE WHEN user_id <> '' THEN 'x' WHEN folder_id <> '' THEN 'f' ELSE 'd' END, organization_id,
        CASE WHEN user_id <> '' THEN user_id WHEN folder_id <> '' THEN folder_id ELSE document_id END,
        CASE WHEN user_id = '' THEN organization_user_group_id
          WHEN folder_id <> '' THEN 'f' || folder_id ELSE 'd' || document_id END""",
    ContextGrant.kind: """
        'c', organization_id, user_id, '[' || @json(organization_user_group_id) || ',' || @json(field)
          || ',' || @json(value) || ',' || @json(document_id) || ']'""",
}


def are_logged(changes: Mapping[str, ChangeCounts]) -> bool:
    """Whether changes are few enough for the log."""
    return sum(counts.total for counts in changes.values()) <= MAX_LOGGED


def log_changes(connection: Connection, revision: int, kinds: Sequence[ModelTables], now_ms: int) -> None:
    """Logs the deltas of these kinds as the changes of ``revision``, deletes old changes, and notifies the nodes."""
    # Only the revisions that are kept: there may be millions before them.
    first = select(func.min(ACCESS_CHANGE.c.revision)).scalar_subquery()
    is_earlier = REVISION.c.revision.between(first, revision - 1)
    is_old = is_earlier & (REVISION.c.created_at < now_ms - KEPT_MS)
    last_old = connection.execute(select(func.max(REVISION.c.revision)).where(is_old)).scalar()
    if last_old is not None:
        connection.execute(update(REVISION).where(is_old).values(logged=False))
        connection.execute(delete(ACCESS_CHANGE).where(ACCESS_CHANGE.c.revision <= last_old))
    for tables in kinds:
        run(connection, tables.text(_LOG, rows=_LOGGED[tables.kind]), {"revision": revision})
    if not is_sqlite(connection):
        connection.execute(select(func.pg_notify(REVISION_CHANNEL, str(revision))))
