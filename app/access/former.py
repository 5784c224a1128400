"""Fields that records had before: kept for as long as a backend may hold them, so that a plan can say what changes.

The ledger remembers what a backend was told as digests. What a digest stands for is in the access model while the
record is as it was, and is kept here from the moment when the directory changes or removes it. So nothing is written
for an item that is synced, and a record that many items carry is kept once.
"""

from sqlalchemy import Connection, Table

from app.access.record_tables import core_table
from app.access.refresh.tables import ModelTables
from app.access.tables import FormerPayloadRow
from app.foundation.database.statements import run

FORMER_PAYLOAD: Table = core_table(FormerPayloadRow)

# Outer joins stop SQLite from swapping the sides and reading whole tables for a small delta.
_KEEP = """
INSERT INTO former_payload (kind, organization_id, item_id, digest, payload)
SELECT '{kind}', {organization:a}, {item:a}, a.digest, a.payload
FROM {delta} d LEFT JOIN {model} a ON {keys:a=d} LEFT JOIN {merged} m ON {keys:m=d}
WHERE d.change IN ({update}, {remove}) AND a.digest IS NOT NULL AND m.digest IS DISTINCT FROM a.digest
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


def keep_former(connection: Connection, tables: ModelTables) -> None:
    """Keeps the fields of what the delta is about to change or remove, of a kind that has fields."""
    tables.run(connection, _KEEP)


def forget_former(connection: Connection) -> int:
    """Forgets the fields of which neither a ledger nor a delete in a plan has a digest any more; how many records."""
    return run(connection, _FORGET).rowcount
