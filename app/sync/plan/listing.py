"""Lists the items of a plan for pages and programs, with names, changed fields and their history in other runs.

A name is read from the item itself, or else from the directory as it is or was. One statement reads a page of items.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from app.access.kinds import NAMED_KINDS
from app.access.record_tables import TABLES_OF_KIND
from app.foundation.database.statements import json_list, run
from app.sync.ledger.items import CONTAINERS, ItemKey, Kind, record_kind
from app.sync.ledger.settlement import SETTLES
from app.sync.plan.fields import FieldChange, updated_fields
from app.sync.plan.rules import Action
from app.sync.plan.search import EVERY_ITEM, ItemFilter, find
from app.sync.plan.stored import PlanItem


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChange(PlanItem):
    """One item of a run's plan."""

    was: str
    """The former state of an update, as in ``PlanItemRow``."""
    name: str | None
    """The name of the item, or of its user."""
    container_name: str | None
    """The name of its folder, document or group."""
    fields: tuple[FieldChange, ...] = ()
    """The changes of an update."""
    all_fields_known: bool = True
    """Whether ``fields`` is complete. Former fields may be unknown."""


_COLUMNS = [*PlanItem.__dataclass_fields__, "was"]

_PAGE = """
SELECT p.*, {item_payload} AS item_payload, {container_payload} AS container_payload
FROM (SELECT {columns} FROM plan_item WHERE plan_id = :plan_id AND ordinal IN (@numbers(ordinals))) p
ORDER BY p.ordinal
"""


def list_changes(
    connection: Connection,
    plan_id: str,
    *,
    criteria: ItemFilter = EVERY_ITEM,
    after: int | None = None,
    limit: int = 100,
) -> list[PlannedChange]:
    """The next items after the ordinal ``after``."""
    return read_changes(connection, plan_id, find(connection, plan_id, criteria, after=after, limit=limit))


def read_change(connection: Connection, plan_id: str, ordinal: int) -> PlannedChange | None:
    """One item of a plan. None if it does not exist."""
    return next(iter(read_changes(connection, plan_id, [ordinal])), None)


def _payload_of(kind: str, identity: str) -> str:
    """An SQL expression for the current or last fields of a record. ``identity``: the column with its id."""
    table = TABLES_OF_KIND[kind]
    *within, item = table.keys
    organization = "p.organization_id" if within else "''"
    same = f"{'a.organization_id = p.organization_id AND ' if within else ''}a.{item} = {identity}"
    return f"""COALESCE(
      (SELECT a.payload FROM {table.table.name} a WHERE {same}),
      (SELECT f.payload FROM former_payload f
       WHERE f.kind = '{kind}' AND f.organization_id = {organization} AND f.item_id = {identity}
       ORDER BY f.digest LIMIT 1))"""  # noqa: S608 - constants of this module


_ITEM_PAYLOAD = (
    "CASE WHEN p.payload <> '' THEN p.payload"
    + "".join(f" WHEN p.kind = '{kind}' THEN {_payload_of(kind, 'p.item_id')}" for kind in NAMED_KINDS)
    + f" ELSE {_payload_of('user', 'p.item_id')} END"
)
_CONTAINER_PAYLOAD = (
    "CASE p.kind"
    + "".join(
        f" WHEN '{kind}' THEN {_payload_of(container, 'p.container_id')}" for kind, container in CONTAINERS.items()
    )
    + " END"
)


def read_changes(connection: Connection, plan_id: str, ordinals: Sequence[int]) -> list[PlannedChange]:
    """The items of a plan with these ordinals, in their order."""
    if not ordinals:
        return []
    rows = run(
        connection,
        _PAGE,
        {"plan_id": plan_id, "ordinals": json_list(ordinals)},
        item_payload=_ITEM_PAYLOAD,
        container_payload=_CONTAINER_PAYLOAD,
        columns=", ".join(_COLUMNS),
    )
    return [_change(row) for row in rows]


def _change(row: Row[Any]) -> PlannedChange:
    kind = Kind(row.kind)
    values = {name: getattr(row, name) for name in _COLUMNS} | {"disabled": bool(row.disabled)}
    item = PlanItem(**{name: value for name, value in values.items() if name != "was"})
    fields: tuple[FieldChange, ...] = ()
    known = True
    if item.action == Action.UPDATE:
        fields = tuple(updated_fields(item, row.was))
        sends_fields = "digest" in SETTLES.get(item.operation, ())
        known = not sends_fields or (row.was != "" and json.loads(row.was).get("fields", {}) is not None)
    return PlannedChange(
        **values,
        name=_name(row.item_payload, record_kind(kind)),
        container_name=_name(row.container_payload, CONTAINERS[kind]) if kind in CONTAINERS else None,
        fields=fields,
        all_fields_known=known,
    )


def _name(payload: str | None, kind: str) -> str | None:
    name = json.loads(payload).get(NAMED_KINDS[kind].name) if payload else None
    return name if isinstance(name, str) else None


def held_reasons(connection: Connection, plan_id: str, limit: int) -> list[tuple[str, str]]:
    """Kind and reason of the first held deletes."""
    held = "SELECT kind, reason FROM plan_item WHERE plan_id = :plan_id AND status = 'held'"
    rows = run(connection, f"{held} ORDER BY ordinal LIMIT :limit", {"plan_id": plan_id, "limit": limit})
    return [(row.kind, row.reason) for row in rows]


_SUMMED = """
SELECT organization_id, kind, action, status, COUNT(*) AS items FROM plan_item WHERE plan_id = :plan_id
GROUP BY organization_id, kind, action, status
"""


@dataclass(frozen=True, slots=True)
class Sum:
    """The number of items of an organization, kind, action and status."""

    organization_id: str
    kind: str
    action: str
    status: str
    items: int


def sum_up(connection: Connection, plan_id: str) -> list[Sum]:
    """The number of items by organization, kind, action and status."""
    return [Sum(*row) for row in run(connection, _SUMMED, {"plan_id": plan_id})]


@dataclass(frozen=True, slots=True)
class PastChange:
    """An item in the plan of an earlier run. ``requested_at`` is epoch milliseconds."""

    run_id: str
    requested_at: int
    ordinal: int
    action: str
    operation: str
    status: str
    message: str


# Starts with the runs, which are few. The order is fixed, because PostgreSQL would read the items of all plans.
_HISTORY = """
SELECT r.run_id, r.requested_at, p.ordinal, p.action, p.operation, p.status, p.message
FROM run r {items}
ORDER BY r.run_id DESC, p.ordinal LIMIT :limit
"""
_OF_RUN = """p.plan_id = r.plan_id AND p.kind = :kind AND p.organization_id = :organization_id
  AND p.container_id = :container_id AND p.item_id = :item_id"""
_ITEMS = {
    "sqlite": f"CROSS JOIN plan_item p WHERE r.plan_id IS NOT NULL AND NOT r.dry_run AND {_OF_RUN}",
    "postgresql": f"CROSS JOIN LATERAL (SELECT p.* FROM plan_item p WHERE {_OF_RUN} OFFSET 0) p"  # noqa: S608 - a constant
    " WHERE r.plan_id IS NOT NULL AND NOT r.dry_run",
}


def item_history(connection: Connection, item: PlanItem | ItemKey, *, limit: int) -> list[PastChange]:
    """The item in the plans of runs, newest first. Previews are left out: they change nothing."""
    key = ItemKey(item.kind, item.organization_id, item.container_id, item.item_id)
    values = {**key._asdict(), "limit": limit}
    return [PastChange(*row) for row in run(connection, _HISTORY, values, items=_ITEMS[connection.dialect.name])]
