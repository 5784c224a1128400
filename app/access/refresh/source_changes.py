"""Computes what reads change in the records of the sources, and writes it.

``compute_source_changes`` fills the tables ``source_delta``, which other modules correct before ``write_source_rows``
writes them. The head of ``tables.py`` explains the placeholders of the statements, such as ``{source_keys:t}``.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete

from app.access.change_counts import ChangeCounts, SourceCounts
from app.access.refresh.reads import FAILED, StagedRead
from app.access.refresh.session import RefreshSession
from app.access.refresh.sources import count_change
from app.access.refresh.tables import REFRESH_TABLES, REFRESH_TABLES_OF_KIND, RefreshTables, RowChange
from app.foundation.database.statements import json_list

# ``+ 0`` stops SQLite from sorting again: it distrusts the order of an index below a column that it knows to be equal.
_CHANGED_ROWS = """
INSERT INTO {source_delta} ({source_keys}, change)
SELECT {source_keys:t}, CASE WHEN s.source_id IS NULL THEN {add} ELSE {update} END
FROM {staged} t LEFT JOIN {source} s ON {source_keys:s=t}
WHERE t.source_id + 0 IN (@numbers(source_ids))
AND (s.source_id IS NULL OR ({source_content:t}) IS DISTINCT FROM ({source_content:s}))
ORDER BY {source_keys:t}
"""

# Each staged record is stored or added, and none is staged twice: so counting, which is fast, shows if any is missing.
_COUNT_MISSING = """
SELECT (SELECT COUNT(*) FROM {source} WHERE source_id IN (@numbers(source_ids)))
  - (SELECT COUNT(*) FROM {staged} WHERE source_id IN (@numbers(source_ids)))
  + (SELECT COUNT(*) FROM {source_delta} WHERE change = {add} AND source_id IN (@numbers(source_ids)))
"""

_MISSING_ROWS = """
INSERT INTO {source_delta} ({source_keys}, change)
SELECT {source_keys:s}, {remove} FROM {source} s
WHERE s.source_id IN (@numbers(source_ids)) AND NOT EXISTS (SELECT 1 FROM {staged} t WHERE {source_keys:t=s})
AND NOT EXISTS (SELECT 1 FROM refresh_malformed_object m WHERE m.source_id = s.source_id AND m.origin = s.origin)
"""

# Objects that were read again are few; each is looked up by its source and origin.
_MISSING_ROWS_OF_REREAD_OBJECTS = """
INSERT INTO {source_delta} ({source_keys}, change)
SELECT {source_keys:s}, {remove} FROM refresh_reread_object o CROSS JOIN {source} s
WHERE o.source_id IN (@numbers(source_ids)) AND s.source_id = o.source_id AND s.origin = o.origin AND s.origin <> ''
AND NOT EXISTS (SELECT 1 FROM {staged} t WHERE {source_keys:t=s})
"""

# Users may have made these objects malformed themselves, to be enabled again.
_STAGE_DISABLED = """
INSERT INTO {staged} ({source_columns})
SELECT {disabled_row} FROM {source} s
JOIN refresh_malformed_object m ON m.source_id = s.source_id AND m.origin = s.origin
WHERE m.source_id IN (@numbers(source_ids)) AND m.disabled AND s.origin <> ''
AND NOT EXISTS (SELECT 1 FROM {staged} t WHERE {source_keys:t=s})
"""


def compute_source_changes(
    connection: Connection,
    reads: Sequence[StagedRead],
    forgotten: Collection[int] = (),
    *,
    of: Sequence[RefreshTables] = REFRESH_TABLES,
) -> None:
    """Fills ``source_delta`` with what the reads change in the sources' records of some kinds. ``forgotten``: the
    sources whose records are all removed."""
    usable = [read for read in reads if read.verdict != FAILED]
    malformed = [read.source_id for read in usable if read.malformed]
    replaced = [read.source_id for read in usable if read.removes_missing and not read.answered] + list(forgotten)
    reread = [read.source_id for read in usable if read.removes_missing and read.answered]
    for tables in of:
        if malformed and tables.may_be_disabled:
            tables.run(connection, _STAGE_DISABLED, {"source_ids": json_list(malformed)})
        if usable:
            tables.run(connection, _CHANGED_ROWS, {"source_ids": json_list(read.source_id for read in usable)})
        if replaced:
            of_sources = {"source_ids": json_list(replaced)}
            if tables.run(connection, _COUNT_MISSING, of_sources).scalar_one():
                tables.run(connection, _MISSING_ROWS, of_sources)
        if reread:
            tables.run(connection, _MISSING_ROWS_OF_REREAD_OBJECTS, {"source_ids": json_list(reread)})


@dataclass(frozen=True, slots=True)
class ReadScope:
    """The only records that a read may remove."""

    kinds: frozenset[str]
    """Empty: all."""
    organizations: frozenset[str]
    """Empty: all. Otherwise kinds that belong to no organization are in the scope only if they are in ``kinds``."""


def drop_out_of_scope(connection: Connection, source_id: int, scope: ReadScope) -> None:
    """Drops from ``source_delta`` the removals that are not in the scope of the source's read."""
    for tables in REFRESH_TABLES:
        delta = tables.source_delta
        removals = delete(delta).where(delta.c.source_id == source_id, delta.c.change == RowChange.REMOVE)
        has_organization = "organization_id" in tables.keys
        if (scope.kinds or (scope.organizations and not has_organization)) and tables.kind not in scope.kinds:
            connection.execute(removals)
        elif scope.organizations and has_organization:
            connection.execute(removals.where(delta.c.organization_id.not_in(scope.organizations)))


_COUNTS = """
SELECT '{kind}', source_id, COUNT(*) FILTER (WHERE change = {add}), COUNT(*) FILTER (WHERE change = {update}),
  COUNT(*) FILTER (WHERE change = {remove})
FROM {source_delta} GROUP BY source_id
"""

_REMOVE_ROWS = """
DELETE FROM {source} WHERE ({source_keys}) IN (SELECT {source_keys} FROM {source_delta} WHERE change <> {add})
"""

# An outer join stops SQLite from swapping the sides and reading all that is staged for a small delta.
_ADD_ROWS = """
INSERT INTO {source} ({source_columns})
SELECT {source_columns:t} FROM {source_delta} d LEFT JOIN {staged} t ON {source_keys:t=d}
WHERE d.change <> {remove} ORDER BY {source_keys:d}
"""

_ALL_COUNTS = " UNION ALL ".join(tables.text(_COUNTS) for tables in REFRESH_TABLES)


def count_source_changes(connection: Connection) -> SourceCounts:
    """Counts the rows of ``source_delta``."""
    changes: dict[str, dict[int, ChangeCounts]] = {}
    for kind, source_id, *counts in connection.exec_driver_sql(_ALL_COUNTS):
        changes.setdefault(kind, {})[source_id] = ChangeCounts(*map(int, counts))
    return changes


def total(counts: SourceCounts) -> ChangeCounts:
    """The sum over all kinds and sources."""
    every = (counts_of_source for of_kind in counts.values() for counts_of_source in of_kind.values())
    return sum(every, ChangeCounts())


def write_source_rows(session: RefreshSession, connection: Connection, counts: SourceCounts) -> None:
    """Writes the rows of ``source_delta``. ``counts``: their numbers."""
    for kind in counts:
        tables = REFRESH_TABLES_OF_KIND[kind]
        of_kind = total({kind: counts[kind]})
        session.analyze_if_many(tables.source_delta, of_kind.total)
        if of_kind.updated or of_kind.removed:
            tables.run(connection, _REMOVE_ROWS)
        if of_kind.added or of_kind.updated:
            tables.run(connection, _ADD_ROWS)
        session.analyze_if_many(tables.source, of_kind.total)
    if counts:
        count_change(connection)
