"""The next revision: the deltas of the access model are carried out, with what is stored beside it.

In the same transaction the search names, the numbers of records and the former payloads follow. If nothing changed, the
revision stays. Only the first read is a revision even if it is empty, because an empty directory is not the same as one
that was never read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import orjson
from sqlalchemy import Connection, Table, insert, select

from app.access.candidate import shadow
from app.access.record_tables import Values
from app.access.refresh.session import RefreshSession
from app.access.refresh.sources import SOURCE
from app.access.refresh.tables import MODEL_TABLES, ChangeCounts, ModelTables, RowChange
from app.access.revisions import REVISION, current_revision
from app.access.search import NAMED_KINDS, names_of
from app.access.tables import FormerPayloadRow
from app.foundation.database.statements import run, statement

FORMER_PAYLOAD: Table = FormerPayloadRow.__table__


@dataclass(frozen=True, slots=True)
class ModelChange:
    """The changes of a refresh to the access model."""

    revision: int
    """The current revision; 0 if there is none yet."""
    changed: bool
    changes: Mapping[str, ChangeCounts]
    """kind → counts, for every kind."""


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


def carry_out(session: RefreshSession, connection: Connection, kinds: Sequence[ModelTables]) -> dict[str, ChangeCounts]:
    """Carries out the deltas of these kinds, which have rows; returns kind → counts, for every kind."""
    changes = {tables.kind: ChangeCounts() for tables in MODEL_TABLES}
    for tables in kinds:
        added, updated, removed, rows = tables.run(connection, _COUNTS).one()
        changes[tables.kind] = counts = ChangeCounts(added, updated, removed)
        is_payload_replaced = (updated or removed) and "payload" in tables.model.c
        if session.on_candidate:
            shadow(connection, tables.model)
            if is_payload_replaced:
                shadow(connection, FORMER_PAYLOAD)
        else:
            _compute_names(session, connection, tables)
            _update_counts(connection, tables, counts)
        if is_payload_replaced:
            tables.run(connection, _STORE_FORMER)
        if rows > added:
            tables.run(connection, _REMOVE_ROWS)
        if rows > removed:
            tables.run(connection, _ADD_ROWS)
        session.analyze_if_many(tables.model, rows)
    if kinds and not session.on_candidate:
        run(connection, _REMOVE_NAMES, _CHANGES)
        run(connection, _ADD_NAMES, _CHANGES)
    return changes


def close_revision(connection: Connection, changes: Mapping[str, ChangeCounts], now_ms: int) -> ModelChange:
    """Increments the revision if anything changed."""
    revision = current_revision(connection)
    changed = any(counts.any for counts in changes.values())
    is_read = select(SOURCE.c.source_id).where(SOURCE.c.read_in_force > 0).limit(1)
    if changed or (revision == 0 and connection.execute(is_read).first() is not None):
        revision += 1
        stored = {
            kind: {"added": counts.added, "updated": counts.updated, "removed": counts.removed}
            for kind, counts in changes.items()
            if counts.any
        }
        row = {"revision": revision, "created_at": now_ms, "changes": orjson.dumps(stored).decode()}
        connection.execute(insert(REVISION).values(row))
    return ModelChange(revision=revision, changed=changed, changes=changes)


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
    """Deletes the former payloads whose digest no ledger and no delete in a plan has; returns how many."""
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
    if not counts.added and not counts.removed:
        return
    if len(tables.keys) > 1:
        tables.run(connection, _COUNT_IN_EACH)
        tables.run(connection, _DELETE_ZERO)
    tables.run(connection, _COUNT_IN_ALL, {"more": counts.added - counts.removed})


# The names by which records are searched.

_BATCH_ROWS = 100
"""Few, because the fields of a single record may be as long as a line of its source."""
_BATCH_NAMES = 4_000

# Outer joins stop SQLite from swapping the sides.
_PAYLOADS = """
SELECT {organization:d}, {item:d}, a.payload, m.payload
FROM {delta} d LEFT JOIN {model} a ON d.change <> {add} AND {keys:a=d} LEFT JOIN {merged} m ON {keys:m=d}
WHERE a.digest IS DISTINCT FROM m.digest
"""

_REMOVE_NAMES = """
DELETE FROM access_name WHERE (kind, name, organization_id, item_id) IN (
  SELECT kind, name, organization_id, item_id FROM refresh_name_delta WHERE change = :remove)
"""

# In the order of the key, so that a large table is written from its beginning to its end.
_ADD_NAMES = """
INSERT INTO access_name (kind, name, organization_id, item_id)
SELECT kind, name, organization_id, item_id FROM refresh_name_delta WHERE change = :add
ORDER BY kind, name, organization_id, item_id
ON CONFLICT DO NOTHING
"""

_CHANGES = {"add": int(RowChange.ADD), "remove": int(RowChange.REMOVE)}

_COLUMNS = ("change", "kind", "name", "organization_id", "item_id")


def _compute_names(session: RefreshSession, connection: Connection, tables: ModelTables) -> None:
    """Adds the names of a kind that change to ``refresh_name_delta``; before its rows change."""
    if tables.kind not in NAMED_KINDS:
        return
    query = statement(connection, tables.text(_PAYLOADS))
    rows = connection.execute(query, execution_options={"yield_per": _BATCH_ROWS})
    changed: list[Values] = []
    for batch in rows.partitions(_BATCH_ROWS):
        for organization_id, item_id, before, after in batch:
            for change, name in _name_changes(tables.kind, item_id, before, after):
                changed.append((int(change), tables.kind, name, organization_id, item_id))
        if len(changed) >= _BATCH_NAMES:
            session.fill("refresh_name_delta", _COLUMNS, changed)
            changed = []
    session.fill("refresh_name_delta", _COLUMNS, changed)


def _name_changes(kind: str, item_id: str, before: str | None, after: str | None) -> Iterator[tuple[RowChange, str]]:
    old = set[str]() if before is None else names_of(kind, item_id, before)
    new = set[str]() if after is None else names_of(kind, item_id, after)
    for name in old - new:
        yield RowChange.REMOVE, name
    for name in new - old:
        yield RowChange.ADD, name
