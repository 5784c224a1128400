"""Stores the organizations and users that changed outside of a run, until a run about them is queued.

They are stored in the transaction that changes the access model, so they survive a crash. A worker queues narrowed
runs about them (``app.sync.runs.queue``).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, Table, delete, func, select

from app.access.refresh.tables import CHANGE_PARTS, ModelTables
from app.access.source_tables import TouchedRow
from app.foundation.database.statements import json_list, run

ORGANIZATION, USER = "organization", "user"

_PENDING: Table = TouchedRow.__table__

_STORE = """
INSERT INTO touched (sort, item_id, since)
SELECT DISTINCT '{sort}', {column}, CAST(:since AS BIGINT) FROM {delta} WHERE change <> {owner} AND NOT ({covered})
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


EVERYTHING = CoveredByRun()
"""What a run without a selection covers."""


def store_pending(
    connection: Connection, kinds: Iterable[ModelTables], covered: CoveredByRun | None, now_ms: int
) -> None:
    """Stores the organizations and users of the changed rows of these kinds, except the ``covered`` rows.

    Those that are pending already keep their time. If an alias moves to another user, the merge also changes the
    records that use it.
    """
    parameters: dict[str, object] = {"since": now_ms}
    if covered is not None:
        parameters["organization_ids"] = json_list(covered.organization_ids)
        parameters["user_ids"] = json_list(covered.user_ids)
    for tables in kinds:
        is_within = "organization_id" in tables.keys
        run(
            connection,
            _STORE,
            parameters,
            sort=ORGANIZATION if is_within else USER,
            column="organization_id" if is_within else "user_id",
            delta=tables.delta.name,
            owner=CHANGE_PARTS["owner"],
            covered="FALSE" if covered is None else _covered_sql(tables, covered),
        )


def _covered_sql(tables: ModelTables, covered: CoveredByRun) -> str:
    """The condition that a run is about the changed row."""
    conditions = []
    if covered.organization_ids:
        conditions.append(
            "organization_id IN (@list(organization_ids))" if "organization_id" in tables.keys else "FALSE"
        )
    if covered.user_ids:
        conditions.append("user_id IN (@list(user_ids))" if "user_id" in tables.keys else "FALSE")
    return " AND ".join(conditions) or "TRUE"


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
