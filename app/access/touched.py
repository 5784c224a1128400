"""Touched organizations and users: changed between two syncs, until a run about them is queued.

Whoever changes the access model outside of a run says here what that was about, in the same transaction; a worker makes
narrowed runs of it (``app.sync.runs.queue``). So nothing is forgotten when a process dies in between.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Table,
    and_,
    delete,
    false,
    func,
    not_,
    select,
    true,
    union,
)

from app.access.push_tables import TouchedRow
from app.access.record_tables import core_table
from app.access.refresh.tables import MODEL_TABLES, ModelTables, RowChange
from app.foundation.database.statements import json_list, run

ORGANIZATION, USER = "organization", "user"

_TOUCHED: Table = core_table(TouchedRow)

_NOTE = """
INSERT INTO touched (sort, item_id, since)
SELECT :sort, value, :since FROM (@list(ids)) AS asked WHERE value <> '' ORDER BY value
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class TouchedIds:
    """What changed and was not followed by a run, each sorted."""

    organization_ids: tuple[str, ...]
    user_ids: tuple[str, ...]


def note_touched(
    connection: Connection, organization_ids: Collection[str], user_ids: Collection[str], now_ms: int
) -> None:
    """Notes that these changed; those that are noted already keep their time."""
    for sort, ids in ((ORGANIZATION, organization_ids), (USER, user_ids)):
        if ids:
            run(connection, _NOTE, {"sort": sort, "since": now_ms, "ids": json_list(sorted(ids))})


@dataclass(frozen=True, slots=True)
class Followed:
    """What a run that is under way sees to by itself: these users in these organizations; none of a sort: all."""

    organization_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()


def touched_in_deltas(connection: Connection, followed: Followed | None = None) -> tuple[list[str], list[str]]:
    """The organizations and users of the changed rows of the access model, except what is ``followed``. None: nothing
    is. If an alias changes hands, the rows that name it are among them."""
    organizations, users = (connection.execute(query).scalars().all() for query in _changed(followed))
    return sorted(organizations), sorted(users)


@lru_cache(maxsize=16)
def _changed(followed: Followed | None) -> tuple[CompoundSelect[str], CompoundSelect[str]]:
    organizations, users = [], []
    for tables in MODEL_TABLES:
        delta = tables.delta.c
        rest = [delta.change != int(RowChange.OWNER)]
        if followed is not None:
            rest.append(_is_not_followed(tables, followed))
        if "organization_id" in tables.keys:
            organizations.append(select(delta.organization_id).where(*rest))
        elif "user_id" in tables.keys:
            users.append(select(delta.user_id).where(*rest))
    return union(*organizations), union(*users)


def _is_not_followed(tables: ModelTables, followed: Followed) -> ColumnElement[bool]:
    conditions = [
        tables.delta.c[name].in_(ids) if name in tables.keys else false()
        for name, ids in (("organization_id", followed.organization_ids), ("user_id", followed.user_ids))
        if ids
    ]
    return not_(and_(true(), *conditions))


def touched_since(connection: Connection) -> int | None:
    """Since when the first of them waits, in epoch milliseconds; None: none does."""
    return connection.execute(select(func.min(_TOUCHED.c.since))).scalar()


def take_touched(connection: Connection) -> TouchedIds:
    """Takes all of them away, in the transaction that queues the runs about them."""
    rows = connection.execute(delete(_TOUCHED).returning(_TOUCHED.c.sort, _TOUCHED.c.item_id)).all()
    return TouchedIds(
        organization_ids=tuple(sorted(row.item_id for row in rows if row.sort == ORGANIZATION)),
        user_ids=tuple(sorted(row.item_id for row in rows if row.sort == USER)),
    )
