"""The rows of one table brought in line with another set of rows, touching only what differs.

A change is worked out first, into the kind's ``delta`` table, and carried out later: working out reads everything and
may take its time in a snapshot; carrying out is short and holds the lock.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from sqlalchemy import Connection, Delete, Insert, Select, Table, func, insert, literal, select, tuple_
from sqlalchemy import delete as delete_from

from app.database.engine import is_sqlite
from app.model.refresh.scratch import SCRATCH_TABLES, RowChange, ScratchTables, same
from app.model.refresh.session import RefreshSession

_WORTH_INDEXING_AFTERWARDS = 10_000
"""From so many rows on that are added to an empty table, its indexes are made after it is full."""

_DELTA_SIZES = " UNION ALL ".join(
    f"SELECT '{tables.kind}', (SELECT COUNT(*) FROM {tables.delta.name})"  # noqa: S608 - our own names
    for tables in SCRATCH_TABLES
)

_ANY_CHANGE = f"SELECT {' OR '.join(f'EXISTS (SELECT 1 FROM {tables.delta.name})' for tables in SCRATCH_TABLES)}"  # noqa: S608 - as above

_CHANGED_KINDS = " UNION ALL ".join(
    f"SELECT '{tables.kind}', EXISTS (SELECT 1 FROM {tables.delta.name})"  # noqa: S608 - as above
    for tables in SCRATCH_TABLES
)


def is_disabled_by(tables: ScratchTables) -> bool:
    """Whether records of the kind may be disabled."""
    return "disabled" in tables.source.c


_LOSING_KINDS = " UNION ALL ".join(
    f"SELECT '{tables.kind}', EXISTS (SELECT 1 FROM {tables.delta.name} WHERE change "  # noqa: S608 - as above
    + (f"<> {int(RowChange.ADD)})" if is_disabled_by(tables) else f"= {int(RowChange.REMOVE)})")
    for tables in SCRATCH_TABLES
)


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How many records of a kind were touched."""

    added: int = 0
    updated: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        return self.added + self.updated + self.removed

    @property
    def any(self) -> bool:
        return self.total > 0


NOTHING = ChangeCounts()

_CHANGES = (RowChange.ADD, RowChange.UPDATE, RowChange.REMOVE)
"""As ``ChangeCounts`` has them."""


def changed_kinds(connection: Connection) -> set[str]:
    """The kinds whose deltas hold anything."""
    return {str(kind) for kind, any_of_it in connection.exec_driver_sql(_CHANGED_KINDS) if any_of_it}


def losing_kinds(connection: Connection) -> set[str]:
    """The kinds whose deltas remove anything, or may enable something that was disabled."""
    return {str(kind) for kind, any_of_it in connection.exec_driver_sql(_LOSING_KINDS) if any_of_it}


def counted(connection: Connection, tables: ScratchTables) -> ChangeCounts:
    """What the delta holds, of all sources together. In one pass: to group would be to sort."""
    added, updated, removed = connection.exec_driver_sql(_counts_of_all(tables.delta.name)).one()
    return ChangeCounts(added=added, updated=updated, removed=removed)


def counted_by_source(connection: Connection, tables: ScratchTables) -> dict[int, ChangeCounts]:
    """What the delta holds, per source."""
    by_source: dict[int, dict[int, int]] = {}
    for source_id, change, count in connection.execute(_counts(tables.delta)):
        by_source.setdefault(source_id, {})[change] = count
    return {
        source_id: ChangeCounts(
            added=changes.get(RowChange.ADD, 0),
            updated=changes.get(RowChange.UPDATE, 0),
            removed=changes.get(RowChange.REMOVE, 0),
        )
        for source_id, changes in by_source.items()
    }


def total(counts: Iterable[ChangeCounts]) -> ChangeCounts:
    """All of them together."""
    every = list(counts)
    return ChangeCounts(
        added=sum(one.added for one in every),
        updated=sum(one.updated for one in every),
        removed=sum(one.removed for one in every),
    )


def delta_sizes(session: RefreshSession) -> dict[str, int]:
    """Kind → how many rows its delta holds, for every kind."""
    return {str(kind): int(rows) for kind, rows in session.rows(_DELTA_SIZES)}


def any_change(session: RefreshSession) -> bool:
    """Whether any delta holds anything."""
    return bool(session.rows(_ANY_CHANGE)[0][0])


def carry_out(
    connection: Connection,
    tables: ScratchTables,
    target: Table,
    keys: tuple[str, ...],
    origin: Table,
    *,
    by: tuple[str, ...],
    counts: ChangeCounts,
) -> None:
    """Does what the delta says to ``target``; new values come from ``origin``, ``by`` its keys. ``counts`` is what the
    delta holds.

    Updated rows are deleted and inserted: nobody sees the moment between, and no statement has to name the columns.
    """
    if counts.updated or counts.removed:
        connection.execute(_away(tables.delta, target, keys))
    if counts.added or counts.updated:
        with _indexed_afterwards(connection, target, counts):
            connection.execute(_new_rows(tables.delta, target, origin, by))


@contextmanager
def _indexed_afterwards(connection: Connection, target: Table, counts: ChangeCounts) -> Iterator[None]:
    """On SQLite: makes the indexes of a table that is filled for the first time when it is full, which takes a fraction
    of the time. On PostgreSQL it would keep readers waiting. (Neither is it done to the copy that a candidate has.)"""
    names = (
        [f"'{index.name}'" for index in target.indexes]
        if counts.added >= _WORTH_INDEXING_AFTERWARDS and is_sqlite(connection)
        else []
    )
    if not names or connection.execute(select(literal(1)).select_from(target).limit(1)).first() is not None:
        yield
        return
    made = connection.exec_driver_sql(
        f"SELECT name, sql FROM main.sqlite_master WHERE type = 'index' AND name IN ({', '.join(sorted(names))})"  # noqa: S608 - our own names
        f" AND NOT EXISTS (SELECT 1 FROM sqlite_temp_master t WHERE t.name = '{target.name}') ORDER BY name"
    ).all()
    for name, _ in made:
        connection.exec_driver_sql(f"DROP INDEX main.{name}")
    yield
    for _, sql in made:
        connection.exec_driver_sql(sql)


# Put together once: that takes longer than to execute them for a few rows.


@cache
def _counts_of_all(delta: str) -> str:
    counts = (f"COUNT(*) FILTER (WHERE change = {int(change)})" for change in _CHANGES)
    return f"SELECT {', '.join(counts)} FROM {delta}"  # noqa: S608 - our own table


@cache
def _counts(delta: Table) -> Select[int, int, int]:
    return select(delta.c.source_id, delta.c.change, func.count()).group_by(delta.c.source_id, delta.c.change)


@cache
def _away(delta: Table, target: Table, keys: tuple[str, ...]) -> Delete:
    replaced = select(*(delta.c[name] for name in keys)).where(delta.c.change != RowChange.ADD)
    return delete_from(target).where(tuple_(*(target.c[name] for name in keys)).in_(replaced))


@cache
def _new_rows(delta: Table, target: Table, origin: Table, keys: tuple[str, ...]) -> Insert:
    names = [column.name for column in target.columns]
    # An outer join keeps SQLite from turning the join round and reading all of the origin for a small delta.
    joined = delta.outerjoin(origin, same(delta, origin, keys))
    rows = (
        select(*(origin.c[name] for name in names))
        .select_from(joined)
        .where(delta.c.change != RowChange.REMOVE)
        .order_by(*(delta.c[name] for name in keys))
    )
    return insert(target).from_select(names, rows)
