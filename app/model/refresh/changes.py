"""The rows of one table brought in line with another set of rows, touching only what differs.

A change is worked out first, into the kind's ``delta`` table, and carried out later: working out reads everything and
may take its time in a snapshot; carrying out is short and holds the lock.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, FromClause, Select, Table, func, insert, select, tuple_
from sqlalchemy import delete as delete_from

from app.model.refresh.scratch import SCRATCH_TABLES, RowChange, ScratchTables, same
from app.model.refresh.session import RefreshSession

_DELTA_SIZES = " UNION ALL ".join(
    f"SELECT '{tables.kind}', (SELECT COUNT(*) FROM {tables.delta.name})"  # noqa: S608 - our own names
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


def counted(connection: Connection, tables: ScratchTables) -> dict[int, ChangeCounts]:
    """What the delta holds, per source."""
    delta = tables.delta
    by_source: dict[int, dict[int, int]] = {}
    counts = select(delta.c.source_id, delta.c.change, func.count()).group_by(delta.c.source_id, delta.c.change)
    for source_id, change, count in connection.execute(counts):
        by_source.setdefault(source_id, {})[change] = count
    return {
        source_id: ChangeCounts(
            added=changes.get(RowChange.ADD, 0),
            updated=changes.get(RowChange.UPDATE, 0),
            removed=changes.get(RowChange.REMOVE, 0),
        )
        for source_id, changes in by_source.items()
    }


def delta_sizes(session: RefreshSession) -> dict[str, int]:
    """Kind → how many rows its delta holds, for every kind."""
    return {str(kind): int(rows) for kind, rows in session.rows(_DELTA_SIZES)}


def carry_out(
    connection: Connection,
    tables: ScratchTables,
    target: Table,
    keys: tuple[str, ...],
    origin: Table,
    *,
    by: tuple[str, ...],
) -> None:
    """Does what the delta says to ``target``; new values come from ``origin``, ``by`` its keys.

    Updated rows are deleted and inserted: nobody sees the moment between, and no statement has to name the columns.
    """
    delta = tables.delta
    replaced = select(*(delta.c[name] for name in keys)).where(delta.c.change != RowChange.ADD)
    connection.execute(delete_from(target).where(tuple_(*(target.c[name] for name in keys)).in_(replaced)))
    names = [column.name for column in target.columns]
    connection.execute(insert(target).from_select(names, _new_rows(tables, origin, by, names)))


def _new_rows(
    tables: ScratchTables, origin: FromClause, keys: tuple[str, ...], names: list[str]
) -> Select[tuple[object, ...]]:
    delta = tables.delta
    # An outer join keeps SQLite from turning the join round and reading all of the origin for a small delta.
    joined = delta.outerjoin(origin, same(delta, origin, keys))
    return (
        select(*(origin.c[name] for name in names))
        .select_from(joined)
        .where(delta.c.change != RowChange.REMOVE)
        .order_by(*(delta.c[name] for name in keys))
    )
