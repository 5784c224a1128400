"""Fields that records had before: kept for as long as a backend may hold them, so that a plan can say what changes.

The ledger remembers what a backend was told as digests. What a digest stands for is in the access model while the
record is as it was, and is kept here from the moment when the directory changes or removes it. So nothing is written
for an item that is synced, and a record that many items carry is kept once.
"""

from sqlalchemy import Connection, Table, select

from app.database.statements import run
from app.model.refresh.scratch import ModelTables, RowChange
from app.store.access_tables import FormerPayloadRow
from app.store.record_tables import core_table

FORMER_PAYLOAD: Table = core_table(FormerPayloadRow)

# Outer joins keep SQLite from turning the joins round and reading whole tables for a small delta.
_KEEP = """
INSERT INTO former_payload (kind, organization_id, item_id, digest, payload)
SELECT '{kind}', {organization}, a.{item}, a.digest, a.payload
FROM {delta} d LEFT JOIN {access} a ON {same_record} LEFT JOIN {given} s ON {same_row}
WHERE d.change <> {add} AND a.digest IS NOT NULL AND (d.change = {remove} OR s.digest <> a.digest)
ORDER BY 2, 3, 4
ON CONFLICT DO NOTHING
"""

_FORGET = """
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


def may_keep_former(connection: Connection, tables: ModelTables) -> bool:
    """Whether the delta changes or removes records that have fields."""
    changed = select(tables.delta.c.change).where(tables.delta.c.change != RowChange.ADD).limit(1)
    return "payload" in tables.access.columns and connection.execute(changed).first() is not None


def keep_former(connection: Connection, tables: ModelTables, given: Table) -> None:
    """Keeps the fields of what the delta is about to change or remove; records without fields have none to keep.

    ``given``: where the new ones stand."""
    if not may_keep_former(connection, tables):
        return
    access, delta = tables.access, tables.delta
    *within, item = tables.keys
    run(
        connection,
        _KEEP,
        kind=tables.kind,
        organization="a.organization_id" if within else "''",
        item=item,
        delta=delta.name,
        access=access.name,
        given=given.name,
        same_record=_same("a", tables.keys),
        same_row=_same("s", tables.given_keys),
        add=str(int(RowChange.ADD)),
        remove=str(int(RowChange.REMOVE)),
    )


def forget_former(connection: Connection) -> int:
    """Forgets the fields of which neither a ledger nor a delete in a plan has a digest any more; how many records."""
    return run(connection, _FORGET).rowcount


def _same(alias: str, columns: tuple[str, ...]) -> str:
    return " AND ".join(f"{alias}.{name} = d.{name}" for name in columns)
