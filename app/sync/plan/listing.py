"""Lists the items of a plan for pages and programs, with names and changed fields.

A name is read from the item itself, or else from the directory as it is or was. One statement reads a page of items.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from app.foundation.database.statements import json_list, run
from app.sync.ledger.ledger import CONTAINERS, USER_KINDS, Kind
from app.sync.ledger.settlement import SETTLES
from app.sync.plan.rules import Action
from app.sync.plan.search import EVERY_ITEM, ItemFilter, find


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that an update changes. None: the field is missing, inherited, or the top of the tree."""

    field: str
    """Its name in records."""
    old: object
    new: object
    old_is_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChange:
    """One item of a run's plan."""

    ordinal: int
    phase: int
    action: str
    kind: str
    organization_id: str
    container_id: str
    item_id: str
    operation: str
    reason: str
    status: str
    message: str
    name: str | None
    """The name of the item, or of its user."""
    container_name: str | None
    """The name of its folder, document or group."""
    fields: tuple[FieldChange, ...] = ()
    """The changes of an update."""
    all_fields_known: bool = True
    """Whether ``fields`` is complete. Former fields may be unknown."""


_TABLES = {
    Kind.ORGANIZATION: ("model_organization", "organization_id", "organizationName"),
    Kind.FOLDER: ("model_folder", "folder_id", "folderName"),
    Kind.DOCUMENT: ("model_document", "document_id", "documentName"),
    Kind.GROUP: ("model_group", "organization_user_group_id", "groupName"),
}
_USER_NAME = "name"

_PAGE = """
SELECT p.*, {item_payload} AS item_payload, {container_payload} AS container_payload
FROM (
  SELECT ordinal, phase, action, kind, organization_id, container_id, item_id, operation, reason, status, message,
    parent_id, access_type, access_role, disabled, payload, was
  FROM plan_item
  WHERE plan_id = :plan_id AND ordinal IN (@numbers(ordinals))
) p ORDER BY p.ordinal
"""

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


def list_changes(
    connection: Connection,
    plan_id: str,
    *,
    criteria: ItemFilter = EVERY_ITEM,
    after: int | None = None,
    limit: int = 100,
) -> list[PlannedChange]:
    """The next items after the ordinal ``after``."""
    ordinals = find(connection, plan_id, criteria, after=after, limit=limit)
    if not ordinals:
        return []
    rows = run(
        connection,
        _PAGE,
        {"plan_id": plan_id, "ordinals": json_list(ordinals)},
        item_payload=_ITEM_PAYLOAD,
        container_payload=_CONTAINER_PAYLOAD,
    )
    return [_change(row) for row in rows]


def sum_up(connection: Connection, plan_id: str) -> list[Sum]:
    """The number of items by organization, kind, action and status."""
    return [Sum(*row) for row in run(connection, _SUMMED, {"plan_id": plan_id})]


def _payload_of(kind: Kind, identity: str) -> str:
    """An SQL expression for the current or last fields of an item. ``identity``: the column with its id."""
    table, column, _ = _TABLES[kind]
    within = "''" if kind is Kind.ORGANIZATION else "p.organization_id"
    return f"""COALESCE(
      (SELECT a.payload FROM {table} a WHERE a.organization_id = p.organization_id AND a.{column} = {identity}),
      (SELECT f.payload FROM former_payload f
       WHERE f.kind = '{kind.value}' AND f.organization_id = {within} AND f.item_id = {identity} LIMIT 1))"""  # noqa: S608 - constants of this module


_USER_PAYLOAD = """COALESCE(
      (SELECT a.payload FROM model_user a WHERE a.user_id = p.item_id),
      (SELECT f.payload FROM former_payload f
       WHERE f.kind = 'user' AND f.organization_id = '' AND f.item_id = p.item_id LIMIT 1))"""

_ITEM_PAYLOAD = (
    "CASE WHEN p.payload <> '' THEN p.payload"
    + "".join(f" WHEN p.kind = '{kind.value}' THEN {_payload_of(kind, 'p.item_id')}" for kind in _TABLES)
    + f" ELSE {_USER_PAYLOAD} END"
)
_CONTAINER_PAYLOAD = (
    "CASE p.kind"
    + "".join(
        f" WHEN '{kind.value}' THEN {_payload_of(container, 'p.container_id')}"
        for kind, container in CONTAINERS.items()
    )
    + " END"
)


_COPIED = (
    *("ordinal", "phase", "action", "kind", "organization_id", "container_id", "item_id"),
    *("operation", "reason", "status", "message"),
)
"""The columns that ``PlannedChange`` copies."""


def _change(row: Row[Any]) -> PlannedChange:
    kind = Kind(row.kind)
    fields: tuple[FieldChange, ...] = ()
    known = True
    if row.action == Action.UPDATE:
        was = json.loads(row.was) if row.was else None
        fields = tuple(_changed(row, kind, was))
        sends_fields = "digest" in SETTLES.get(row.operation, ())
        known = not sends_fields or (was is not None and was.get("fields", {}) is not None)
    return PlannedChange(
        **{name: getattr(row, name) for name in _COPIED},
        name=_name(row.item_payload, _USER_NAME if kind in USER_KINDS else _TABLES[kind][2]),
        container_name=_name(row.container_payload, _TABLES[CONTAINERS[kind]][2]) if kind in CONTAINERS else None,
        fields=fields,
        all_fields_known=known,
    )


def _name(payload: str | None, field: str) -> str | None:
    name = json.loads(payload).get(field) if payload else None
    return name if isinstance(name, str) else None


def _changed(row: Row[Any], kind: Kind, was: Mapping[str, Any] | None) -> Iterator[FieldChange]:
    columns = SETTLES.get(row.operation, ())
    # The former state of an unconfirmed item is unknown.
    if "disabled" in columns:
        yield FieldChange("disabled", was and was["disabled"], bool(row.disabled), was is not None)
    for column, key, field in (
        ("access_role", "accessRole", "accessRole"),
        ("access_type", "accessType", "accessType"),
        ("parent_id", "parentId", "parentFolderId" if kind is Kind.FOLDER else "folderId"),
    ):
        if column not in columns:
            continue
        old, new = was and was[key], getattr(row, column)
        if was is None or old != new:
            # Unknown: a role that the backend did not return, and a type whose call has no answer.
            known = was is not None and old != "?" and (old != "" or column != "access_role")
            yield FieldChange(field, (old or None) if known else None, new or None, known)
    if "digest" in columns and was is not None and was.get("fields"):
        yield from _changed_fields(was["fields"], json.loads(row.payload))


def _changed_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[FieldChange]:
    for field in sorted(old.keys() | new.keys()):
        if field not in old or field not in new or not _equal_as_json(old[field], new[field]):
            yield FieldChange(field, old.get(field), new.get(field))


def _equal_as_json(left: object, right: object) -> bool:
    """Compares as JSON, where true is not 1."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)
