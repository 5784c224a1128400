"""The items of a plan for pages and programs: with names beside ids, and the fields that change.

Names come from the item itself, otherwise from the directory as it is now or was last. One statement reads a page of
items with all names.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from app.foundation.database.statements import json_list, run
from app.sync.ledger.items import CONTAINERS, USER_KINDS, Kind
from app.sync.ledger.settlement import SETTLES
from app.sync.plan.rules import Action
from app.sync.plan.search import EVERY_ITEM, ItemFilter, find


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that an update changes; None: the field is not there, or inherited, or the top of the tree."""

    field: str
    """Its name in the directory's records."""
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
    """What the item is called; of a membership, grant or group member the user."""
    container_name: str | None
    """What the folder, document or group of the item is called."""
    fields: tuple[FieldChange, ...] = ()
    """What an update changes; of other items nothing."""
    all_fields_known: bool = True
    """Whether these are all: what the backend was told of names and further fields may not be known any more."""


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
    """How many items of a plan are alike."""

    organization_id: str
    kind: str
    action: str
    status: str
    items: int


def list_changes(
    connection: Connection,
    plan_id: str,
    *,
    wanted: ItemFilter = EVERY_ITEM,
    after: int | None = None,
    limit: int = 100,
) -> list[PlannedChange]:
    """The plan's items in order, those after the ordinal ``after``."""
    ordinals = find(connection, plan_id, wanted, after=after, limit=limit)
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
    """How many items of each organization, kind, action and status the plan has."""
    return [Sum(*row) for row in run(connection, _SUMMED, {"plan_id": plan_id})]


def _payload_of(kind: Kind, identity: str) -> str:
    """The fields of what ``identity`` names, as they are or last were."""
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


def _change(row: Row[Any]) -> PlannedChange:
    kind = Kind(row.kind)
    fields: tuple[FieldChange, ...] = ()
    known = True
    if row.action == Action.UPDATE:
        was = json.loads(row.was) if row.was else None
        fields = tuple(_changed(row, kind, was))
        tells_fields = "digest" in SETTLES.get(row.operation, ())
        known = not tells_fields or (was is not None and was.get("fields", {}) is not None)
    return PlannedChange(
        ordinal=row.ordinal,
        phase=row.phase,
        action=row.action,
        kind=row.kind,
        organization_id=row.organization_id,
        container_id=row.container_id,
        item_id=row.item_id,
        operation=row.operation,
        reason=row.reason,
        status=row.status,
        message=row.message,
        name=_name(row.item_payload, _USER_NAME if kind in USER_KINDS else _TABLES[kind][2]),
        container_name=_name(row.container_payload, _TABLES[CONTAINERS[kind]][2]) if kind in CONTAINERS else None,
        fields=fields,
        all_fields_known=known,
    )


def _name(payload: str | None, field: str) -> str | None:
    name = json.loads(payload).get(field) if payload else None
    return name if isinstance(name, str) else None


def _changed(row: Row[Any], kind: Kind, was: Mapping[str, Any] | None) -> Iterator[FieldChange]:
    told = SETTLES.get(row.operation, ())
    # Of what is unconfirmed, nobody knows what it was.
    if "disabled" in told:
        yield FieldChange("disabled", was and was["disabled"], bool(row.disabled), was is not None)
    for column, key, field in (
        ("access_role", "accessRole", "accessRole"),
        ("access_type", "accessType", "accessType"),
        ("parent_id", "parentId", "parentFolderId" if kind is Kind.FOLDER else "folderId"),
    ):
        if column not in told:
            continue
        old, new = was and was[key], getattr(row, column)
        if was is None or old != new:
            # A role that the backend did not show, and a type of which a call was not answered.
            known = was is not None and old != "?" and (old != "" or column != "access_role")
            yield FieldChange(field, (old or None) if known else None, new or None, known)
    if "digest" in told and was is not None and was.get("fields"):
        yield from _changed_fields(was["fields"], json.loads(row.payload))


def _changed_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[FieldChange]:
    for field in sorted(old.keys() | new.keys()):
        if field not in old or field not in new or not _same(old[field], new[field]):
            yield FieldChange(field, old.get(field), new.get(field))


def _same(one: object, other: object) -> bool:
    """As JSON: true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
