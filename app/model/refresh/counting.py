"""The numbers of records of each organization, brought in line with what a merge changes in the access model."""

from sqlalchemy import Connection

from app.database.statements import run
from app.model.counts import IN_ALL
from app.model.refresh.changes import ChangeCounts
from app.model.refresh.scratch import ModelTables, RowChange

_IN_EACH = """
INSERT INTO access_count (organization_id, kind, records)
SELECT organization_id, '{kind}', SUM(CASE change WHEN {add} THEN 1 ELSE -1 END)
FROM {delta} WHERE change <> {update} GROUP BY organization_id
HAVING SUM(CASE change WHEN {add} THEN 1 ELSE -1 END) <> 0
ON CONFLICT (organization_id, kind) DO UPDATE SET records = access_count.records + excluded.records
"""

_IN_ALL = """
INSERT INTO access_count (organization_id, kind, records) VALUES (:organization_id, :kind, :more)
ON CONFLICT (organization_id, kind) DO UPDATE SET records = access_count.records + excluded.records
"""

_NONE_LEFT = """
DELETE FROM access_count WHERE records = 0 AND kind = '{kind}'
AND organization_id IN (SELECT organization_id FROM {delta} WHERE change = {remove})
"""


def count_on(connection: Connection, tables: ModelTables, counts: ChangeCounts) -> None:
    """Adds to the numbers what the delta of a kind, which holds so many, adds and removes."""
    if not counts.added and not counts.removed:
        return
    if len(tables.keys) > 1:
        parts = {
            "kind": tables.kind,
            "delta": tables.delta.name,
            "add": str(int(RowChange.ADD)),
            "update": str(int(RowChange.UPDATE)),
            "remove": str(int(RowChange.REMOVE)),
        }
        run(connection, _IN_EACH, **parts)
        if counts.removed:
            run(connection, _NONE_LEFT, **parts)
    more = counts.added - counts.removed
    if more:
        run(connection, _IN_ALL, {"organization_id": IN_ALL, "kind": tables.kind, "more": more})
