"""Computes and stores the names by which ``app.access.search`` finds records, when a refresh changes the records.

The names of a record follow from its id and its fields alone. So a refresh computes the names to delete from the old
fields. A change of these rules needs a migration that computes all names again.
"""

from collections.abc import Set as AbstractSet

from sqlalchemy import Connection

from app.access.kinds import NAMED_KINDS
from app.access.record_tables import Values
from app.access.refresh.session import RefreshSession
from app.access.refresh.tables import CHANGE_PARTS, ModelTables, RowChange
from app.access.search import MIN_LENGTH, from_each_word, from_first_word, read_name_fields
from app.foundation.database.statements import run, statement

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
  SELECT kind, name, organization_id, item_id FROM refresh_name_delta WHERE change = {remove})
"""

# In the order of the key, so that a large table is written from its beginning to its end.
_ADD_NAMES = """
INSERT INTO access_name (kind, name, organization_id, item_id)
SELECT kind, name, organization_id, item_id FROM refresh_name_delta WHERE change = {add}
ORDER BY kind, name, organization_id, item_id
ON CONFLICT DO NOTHING
"""

_COLUMNS = ("change", "kind", "name", "organization_id", "item_id")


def search_names(kind: str, item_id: str, payload: str | None) -> set[str]:
    """The names under which a record is stored. Empty without a payload, because then there is no record."""
    if payload is None:
        return set()
    name, email = read_name_fields(kind, payload)
    names = (*from_each_word(name), from_first_word(item_id), from_first_word(email))
    return {text for text in names if len(text) >= MIN_LENGTH}


def compute_name_changes(
    session: RefreshSession, connection: Connection, tables: ModelTables, count: int
) -> AbstractSet[RowChange]:
    """Adds the names of a kind that change to ``refresh_name_delta``, before its rows change. Returns which changes
    it added. ``count``: the number of changed rows."""
    if tables.kind not in NAMED_KINDS:
        return set()
    query = statement(connection, tables.text(_PAYLOADS))
    rows = connection.execute(query, execution_options={"yield_per": _BATCH_ROWS} if count > _BATCH_ROWS else {})
    delta: list[Values] = []
    changes = set[RowChange]()
    for batch in rows.partitions(_BATCH_ROWS):
        for organization_id, item_id, before, after in batch:
            old, new = (search_names(tables.kind, item_id, payload) for payload in (before, after))
            for change, names in ((RowChange.REMOVE, old - new), (RowChange.ADD, new - old)):
                delta += [(int(change), tables.kind, name, organization_id, item_id) for name in names]
                changes |= {change} if names else set()
        if len(delta) >= _BATCH_NAMES:
            session.fill("refresh_name_delta", _COLUMNS, delta)
            delta = []
    if delta:
        session.fill("refresh_name_delta", _COLUMNS, delta)
    return changes


def store_name_changes(connection: Connection, changes: AbstractSet[RowChange]) -> None:
    """Writes ``refresh_name_delta``, which contains these changes."""
    if RowChange.REMOVE in changes:
        run(connection, _REMOVE_NAMES, **CHANGE_PARTS)
    if RowChange.ADD in changes:
        run(connection, _ADD_NAMES, **CHANGE_PARTS)
