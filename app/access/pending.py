"""Stores the organizations and users that changed outside of a run, until a run about them is queued.

They are stored in the transaction that changes the access model, so they survive a crash. A worker queues narrowed
runs about them (``app.sync.runs.queue``).
"""

from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Table,
    and_,
    delete,
    false,
    func,
    literal,
    not_,
    select,
    text,
    true,
    union,
)

from app.access.refresh.tables import MODEL_TABLES, ModelTables, RowChange
from app.access.source_tables import TouchedRow
from app.foundation.database.statements import json_lists, run

ORGANIZATION, USER = "organization", "user"

_PENDING: Table = TouchedRow.__table__

_STORE = """
INSERT INTO touched (sort, item_id, since)
SELECT @part(changed.value, 0), @part(changed.value, 1), :since FROM (@list(items)) AS changed WHERE true
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class PendingChanges:
    """The changes that have no run yet, each list sorted."""

    organization_ids: tuple[str, ...]
    user_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CoveredByRun:
    """The users in the organizations that the current run is about. Each empty tuple: all."""

    organization_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()


def store_pending(connection: Connection, covered: CoveredByRun | None, now_ms: int) -> None:
    """Stores the organizations and users of the changed rows of the access model, except the ``covered`` rows.

    Those that are pending already keep their time. If an alias moves to another user, the merge also changes the
    records that use it.
    """
    changed = connection.execute(_CHANGED if covered is None else _changed(covered))
    items = sorted((sort, item_id) for sort, item_id in changed if item_id)
    if items:
        run(connection, _STORE, {"since": now_ms, "items": json_lists(items)})


def _changed(covered: CoveredByRun | None = None) -> CompoundSelect[str, str]:
    """A query for the changed organizations and users."""
    queries = []
    for tables in MODEL_TABLES:
        delta = tables.delta.c
        conditions = [delta.change != int(RowChange.OWNER)]
        if covered is not None:
            conditions.append(not_(_is_covered(tables, covered)))
        if "organization_id" in tables.keys:
            queries.append(select(literal(ORGANIZATION), delta.organization_id).where(*conditions))
        elif "user_id" in tables.keys:
            queries.append(select(literal(USER), delta.user_id).where(*conditions))
    return union(*queries)


def _is_covered(tables: ModelTables, covered: CoveredByRun) -> ColumnElement[bool]:
    conditions = [
        tables.delta.c[name].in_(ids) if name in tables.keys else false()
        for name, ids in (("organization_id", covered.organization_ids), ("user_id", covered.user_ids))
        if ids
    ]
    return and_(true(), *conditions)


_CHANGED = text(str(_changed().compile(compile_kwargs={"literal_binds": True})))
"""The query without covered rows, compiled once."""


def pending_since(connection: Connection) -> int | None:
    """The time of the oldest pending change, in epoch milliseconds. None: there is none."""
    return connection.execute(select(func.min(_PENDING.c.since))).scalar()


def take_pending(connection: Connection) -> PendingChanges:
    """Deletes and returns all pending changes, in the transaction that queues the runs about them."""
    rows = connection.execute(delete(_PENDING).returning(_PENDING.c.sort, _PENDING.c.item_id)).all()
    return PendingChanges(
        organization_ids=tuple(sorted(row.item_id for row in rows if row.sort == ORGANIZATION)),
        user_ids=tuple(sorted(row.item_id for row in rows if row.sort == USER)),
    )
