"""Writes the deltas of the access model, and what follows from its rows: their numbers, names and former payloads."""

from collections.abc import Sequence

from sqlalchemy import Connection

from app.access.candidate import shadow
from app.access.change_counts import ChangeCounts
from app.access.refresh.search_names import compute_name_changes, store_name_changes
from app.access.refresh.session import RefreshSession
from app.access.refresh.tables import MODEL_TABLES, ModelTables, RowChange
from app.access.tables import FormerPayloadRow
from app.foundation.database.statements import run

FORMER_PAYLOAD = FormerPayloadRow.__table__

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
