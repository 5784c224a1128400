"""The next revision: the deltas of the access model are carried out, with what is stored beside it.

In the same transaction the names by which records are searched, the number of records, and the former payloads follow.
If nothing changed, the revision stays. Only the first read is a revision even if it is empty, because an empty
directory is not the same as one that was never read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, insert, select

from app.access.candidate import shadow
from app.access.counts import IN_ALL
from app.access.former import FORMER_PAYLOAD, keep_former
from app.access.names import NAMED_KINDS, names_of
from app.access.record_tables import Values
from app.access.refresh.session import RefreshSession
from app.access.refresh.sources import SOURCE
from app.access.refresh.tables import (
    MODEL_TABLES,
    NAME_DELTA,
    ChangeCounts,
    ModelTables,
    RowChange,
    counted,
    indexed_afterwards,
)
from app.access.revisions import REVISION, revision_in_force
from app.foundation.database.statements import run, statement

NOTHING = ChangeCounts()


@dataclass(frozen=True, slots=True)
class Replaced:
    """The result for the access model."""

    revision: int
    """The revision in force; 0 when there is none yet."""
    changed: bool
    changes: Mapping[str, ChangeCounts]
    """kind → counts, for every kind."""


_REMOVE_ROWS = "DELETE FROM {model} WHERE ({keys}) IN (SELECT {keys} FROM {delta} WHERE change <> {add})"

# An outer join stops SQLite from swapping the sides.
_ADD_ROWS = """
INSERT INTO {model} ({columns})
SELECT {columns:m} FROM {delta} d LEFT JOIN {merged} m ON {keys:m=d} WHERE d.change <> {remove} ORDER BY {keys:d}
"""


def carry_out(session: RefreshSession, connection: Connection, kinds: Sequence[ModelTables]) -> dict[str, ChangeCounts]:
    """Carries out the deltas of these kinds, which have rows; returns kind → counts, for every kind."""
    changes = {tables.kind: NOTHING for tables in MODEL_TABLES}
    for tables in kinds:
        counts, rows = counted(connection, tables)
        changes[tables.kind] = counts
        is_payload_lost = (counts.updated or counts.removed) and "payload" in tables.model.c
        if session.on_candidate:
            shadow(connection, tables.model)
            if is_payload_lost:
                shadow(connection, FORMER_PAYLOAD)
        else:
            _update_names(session, connection, tables)
            _update_counts(connection, tables, counts)
        if is_payload_lost:
            keep_former(connection, tables)
        if rows > counts.added:
            tables.run(connection, _REMOVE_ROWS)
        if rows > counts.removed:
            with indexed_afterwards(connection, tables.model, counts.added):
                tables.run(connection, _ADD_ROWS)
        session.analyze_if_many(tables.model, rows)
    return changes


_READ = select(SOURCE.c.source_id).where(SOURCE.c.read_in_force > 0).limit(1)


def close_revision(connection: Connection, changes: Mapping[str, ChangeCounts], now_ms: int) -> Replaced:
    """Increments the revision if anything changed."""
    revision = revision_in_force(connection)
    changed = any(one.any for one in changes.values())
    if changed or (revision == 0 and connection.execute(_READ).first() is not None):
        revision += 1
        counts = {
            kind: {"added": one.added, "updated": one.updated, "removed": one.removed}
            for kind, one in changes.items()
            if one.any
        }
        connection.execute(
            insert(REVISION).values(revision=revision, created_at=now_ms, changes=orjson.dumps(counts).decode())
        )
    return Replaced(revision=revision, changed=changed, changes=changes)


# The number of records of each organization.

_COUNT_IN_EACH = """
INSERT INTO access_count (organization_id, kind, records)
SELECT organization_id, '{kind}', SUM(CASE change WHEN {add} THEN 1 ELSE -1 END)
FROM {delta} WHERE change IN ({add}, {remove}) GROUP BY organization_id
HAVING SUM(CASE change WHEN {add} THEN 1 ELSE -1 END) <> 0
ON CONFLICT (organization_id, kind) DO UPDATE SET records = access_count.records + excluded.records
"""

_COUNT_IN_ALL = """
INSERT INTO access_count (organization_id, kind, records) VALUES (:organization_id, '{kind}', :more)
ON CONFLICT (organization_id, kind) DO UPDATE SET records = access_count.records + excluded.records
"""

_NONE_LEFT = """
DELETE FROM access_count WHERE records = 0 AND kind = '{kind}'
AND organization_id IN (SELECT organization_id FROM {delta} WHERE change = {remove})
"""


def _update_counts(connection: Connection, tables: ModelTables, counts: ChangeCounts) -> None:
    if not counts.added and not counts.removed:
        return
    if len(tables.keys) > 1:
        tables.run(connection, _COUNT_IN_EACH)
        if counts.removed:
            tables.run(connection, _NONE_LEFT)
    more = counts.added - counts.removed
    if more:
        tables.run(connection, _COUNT_IN_ALL, {"organization_id": IN_ALL, "more": more})


# The names by which records are searched. A record whose names stay has no part in it.

_ROWS_AT_A_TIME = 100
"""Few, because the fields of a single record may be as long as a line of its source."""
_NAMES_AT_A_TIME = 4_000

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

_ADD, _REMOVE = int(RowChange.ADD), int(RowChange.REMOVE)


def _update_names(session: RefreshSession, connection: Connection, tables: ModelTables) -> None:
    """Updates the names of a kind; before its rows change."""
    if tables.kind not in NAMED_KINDS:
        return
    session.run_all([f"DELETE FROM {NAME_DELTA.name}"])  # noqa: S608 - our own table
    added = removed = 0
    changed: list[Values] = []
    for rows in _payloads(session, connection, tables):
        for organization_id, item_id, before, after in rows:
            for change, name in _name_changes(tables.kind, item_id, before, after):
                changed.append((change, tables.kind, name, organization_id, item_id))
                added += change == _ADD
                removed += change == _REMOVE
        if len(changed) >= _NAMES_AT_A_TIME:
            session.fill(NAME_DELTA, changed)
            changed = []
    if changed:
        session.fill(NAME_DELTA, changed)
    session.analyze_if_many(NAME_DELTA, added + removed)
    if removed:
        run(connection, _REMOVE_NAMES, {"remove": _REMOVE})
    if added:
        run(connection, _ADD_NAMES, {"add": _ADD})


def _name_changes(kind: str, item_id: str, before: str | None, after: str | None) -> Iterator[tuple[int, str]]:
    names = names_of(kind)
    former = set[str]() if before is None else names(item_id, before)
    new = set[str]() if after is None else names(item_id, after)
    for name in former - new:
        yield _REMOVE, name
    for name in new - former:
        yield _ADD, name


def _payloads(session: RefreshSession, connection: Connection, tables: ModelTables) -> Iterator[Sequence[Any]]:
    query = statement(connection, tables.text(_PAYLOADS))
    if session.is_small:
        yield connection.execute(query).all()
        return
    found = connection.execute(query, execution_options={"yield_per": _ROWS_AT_A_TIME})
    yield from found.partitions(_ROWS_AT_A_TIME)
