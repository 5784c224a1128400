"""What changed between two syncs, and is not in the backend yet: organizations and users, until a run is queued.

Whoever changes the access model outside of a run says here what that was about, in the same transaction; a worker makes
narrowed runs of it (``app.runs.followup``). So nothing is forgotten when a process dies in between.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache

from sqlalchemy import Column, Connection, Select, Table, delete, func, select

from app.database.statements import json_list, run
from app.model.refresh.scratch import SCRATCH_TABLES, ScratchTables
from app.store.push_tables import TouchedRow
from app.store.record_tables import core_table

ORGANIZATION, USER = "organization", "user"

_TOUCHED: Table = core_table(TouchedRow)

_NOTE = """
INSERT INTO touched (sort, item_id, since)
SELECT :sort, value, :since FROM (@list(ids)) AS asked WHERE value <> '' ORDER BY value
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class Touched:
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


def touched_in_deltas(
    connection: Connection, of: Iterable[ScratchTables] = SCRATCH_TABLES
) -> tuple[list[str], list[str]]:
    """The organizations and the users about which something stands in a refresh's deltas, ``of`` these kinds."""
    organizations: set[str] = set()
    users: set[str] = set()
    for tables in of:
        if "organization_id" in tables.keys:
            organizations.update(connection.execute(_named(tables.delta.c.organization_id)).scalars())
        elif "user_id" in tables.keys:
            users.update(connection.execute(_named(tables.delta.c.user_id)).scalars())
    return sorted(organizations), sorted(users)


@cache
def _named(column: Column[str]) -> Select[str]:
    return select(column).distinct()


def touched_since(connection: Connection) -> int | None:
    """Since when the first of them waits, in epoch milliseconds; None: none does."""
    return connection.execute(select(func.min(_TOUCHED.c.since))).scalar()


def take_touched(connection: Connection) -> Touched:
    """Takes all of them away, in the transaction that queues the runs about them."""
    rows = connection.execute(delete(_TOUCHED).returning(_TOUCHED.c.sort, _TOUCHED.c.item_id)).all()
    return Touched(
        organization_ids=tuple(sorted(row.item_id for row in rows if row.sort == ORGANIZATION)),
        user_ids=tuple(sorted(row.item_id for row in rows if row.sort == USER)),
    )
