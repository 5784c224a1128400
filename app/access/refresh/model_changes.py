"""Writes the deltas of the access model, and updates what is stored beside it.

Beside the access model are the numbers of records, the search names, the former payloads, and the change log: which
entries of the index (``app.access.index``) each revision changes. A refresh writes the log in the transaction that
creates the revision. A node with the index of an earlier revision reads only these entries again. A revision is not
``logged`` if it changed too much, if its changes were deleted, or if an older version of the software created it. A
node that is behind such a revision builds a new index.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, func, select, update

from app.access.candidate import shadow
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
from app.access.refresh.search_names import compute_name_changes, store_name_changes
from app.access.refresh.session import RefreshSession
from app.access.refresh.tables import MODEL_TABLES, ChangeCounts, ModelTables, RowChange
from app.access.revisions import REVISION, REVISION_CHANNEL
from app.access.tables import AccessChangeRow, FormerPayloadRow
from app.foundation.database.engine import is_sqlite
from app.foundation.database.statements import run

MAX_LOGGED = 50_000
"""A revision with more changes is not logged. This bounds the memory and the time for changing an index. To build a new
one takes not much longer."""
KEPT_MS = 3_600_000
"""How long changes are kept, in milliseconds, also those that all nodes have: plans of changes read them since the last
plan of everything, and a node that restarts follows them instead of building a new index."""

FORMER_PAYLOAD = FormerPayloadRow.__table__
ACCESS_CHANGE = AccessChangeRow.__table__

_COUNTS = """
SELECT COUNT(*) FILTER (WHERE change = {add}), COUNT(*) FILTER (WHERE change = {update}),
  COUNT(*) FILTER (WHERE change = {remove}), COUNT(*)
FROM {delta}
"""

_REMOVE_ROWS = "DELETE FROM {model} WHERE ({keys}) IN (SELECT {keys} FROM {delta} WHERE change <> {add})"

# An outer join stops SQLite from swapping the sides.
_ADD_ROWS = """
INSERT INTO {model} ({columns})
SELECT {columns:m} FROM {delta} d LEFT JOIN {merged} m ON {keys:m=d} WHERE d.change <> {remove} ORDER BY {keys:d}
"""


def write_model_rows(
    session: RefreshSession, connection: Connection, kinds: Sequence[ModelTables]
) -> dict[str, ChangeCounts]:
    """Writes the deltas of these kinds, which have rows. Returns kind → counts, for every kind."""
    changes = {tables.kind: ChangeCounts() for tables in MODEL_TABLES}
    name_changes = set[RowChange]()
    for tables in kinds:
        added, updated, removed, rows = tables.run(connection, _COUNTS).one()
        changes[tables.kind] = counts = ChangeCounts(added, updated, removed)
        is_payload_replaced = (updated or removed) and "payload" in tables.model.c
        if session.on_candidate:
            shadow(connection, tables.model)
            if is_payload_replaced:
                shadow(connection, FORMER_PAYLOAD)
        else:
            name_changes |= compute_name_changes(session, connection, tables, rows)
            _update_counts(connection, tables, counts)
        if is_payload_replaced:
            tables.run(connection, _STORE_FORMER)
        if rows > added:
            tables.run(connection, _REMOVE_ROWS)
        if rows > removed:
            tables.run(connection, _ADD_ROWS)
        session.analyze_if_many(tables.model, rows)
    store_name_changes(connection, name_changes)
    return changes


# Former payloads. The ledger stores digests. The payload of a digest is in the access model as long as the record stays
# as it is; when the record changes, its payload moves to ``former_payload``, so that plans can show it.

# Outer joins stop SQLite from swapping the sides and reading whole tables for a small delta.
_STORE_FORMER = """
INSERT INTO former_payload (kind, organization_id, item_id, digest, payload)
SELECT '{kind}', {organization:a}, {item:a}, a.digest, a.payload
FROM {delta} d LEFT JOIN {model} a ON {keys:a=d} LEFT JOIN {merged} m ON {keys:m=d}
WHERE d.change IN ({update}, {remove}) AND a.digest IS NOT NULL AND m.digest IS DISTINCT FROM a.digest
ORDER BY 2, 3, 4
ON CONFLICT DO NOTHING
"""

_DELETE_UNUSED = """
DELETE FROM former_payload WHERE NOT EXISTS (
  SELECT 1 FROM ledger b CROSS JOIN ledger_item l
  WHERE l.ledger_id = b.ledger_id AND l.item_id = former_payload.item_id AND l.digest = former_payload.digest
    AND l.kind IN (former_payload.kind, 'organizationUser', 'folderUser', 'documentUser'))
AND digest NOT IN (
  SELECT i.digest FROM plan_part p CROSS JOIN plan_item i
  WHERE p.organization_id = '' AND p.action = 'delete'
    AND p.kind IN ('organization', 'folder', 'document', 'group', 'organizationUser')
    AND i.plan_id = p.plan_id AND i.ordinal BETWEEN p.first_ordinal AND p.last_ordinal)
"""


def delete_unused_payloads(connection: Connection) -> int:
    """Deletes the former payloads whose digest no ledger and no delete in a plan has. Returns how many."""
    return run(connection, _DELETE_UNUSED).rowcount


# The number of records of each organization, and of all: the empty organization id.

_COUNT_IN_EACH = """
INSERT INTO access_count (organization_id, kind, records)
SELECT organization_id, '{kind}', SUM(CASE change WHEN {add} THEN 1 ELSE -1 END)
FROM {delta} WHERE change IN ({add}, {remove}) GROUP BY organization_id
HAVING SUM(CASE change WHEN {add} THEN 1 ELSE -1 END) <> 0
ON CONFLICT (organization_id, kind) DO UPDATE SET records = access_count.records + excluded.records
"""

_COUNT_IN_ALL = """
INSERT INTO access_count (organization_id, kind, records) VALUES ('', '{kind}', :more)
ON CONFLICT (organization_id, kind) DO UPDATE SET records = access_count.records + excluded.records
"""

_DELETE_ZERO = """
DELETE FROM access_count WHERE records = 0 AND kind = '{kind}'
AND organization_id IN (SELECT organization_id FROM {delta} WHERE change = {remove})
"""


def _update_counts(connection: Connection, tables: ModelTables, counts: ChangeCounts) -> None:
    """Adds the change of a kind to the stored numbers. Keys of several columns begin with the organization."""
    if not counts.added and not counts.removed:
        return
    if len(tables.keys) > 1:
        tables.run(connection, _COUNT_IN_EACH)
        tables.run(connection, _DELETE_ZERO)
    tables.run(connection, _COUNT_IN_ALL, {"more": counts.added - counts.removed})


# The change log.

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
