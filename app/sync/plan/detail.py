"""The details of one item of a plan: its fields before and after, and its history in other runs.

The fields before an update are in ``was``, those before a delete in the item's columns. The text of a digest is in the
access model, or in ``former_payload`` while a ledger or a stored plan needs it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from app.foundation.database.statements import run
from app.sync.ledger.ledger import ItemKey, Kind
from app.sync.ledger.settlement import SETTLES
from app.sync.plan.listing import PlannedChange
from app.sync.plan.rules import Action
from app.sync.plan.stored import PlanItem

NOT_KNOWN = object()
"""An unknown value."""

_FIELDS_OF = {
    Kind.ORGANIZATION: "SELECT payload FROM model_organization WHERE organization_id = :item_id AND digest = :digest",
    Kind.FOLDER: """SELECT payload FROM model_folder
        WHERE organization_id = :organization_id AND folder_id = :item_id AND digest = :digest""",
    Kind.DOCUMENT: """SELECT payload FROM model_document
        WHERE organization_id = :organization_id AND document_id = :item_id AND digest = :digest""",
    Kind.GROUP: """SELECT payload FROM model_group
        WHERE organization_id = :organization_id AND organization_user_group_id = :item_id AND digest = :digest""",
}
_FIELDS_OF_USER = "SELECT payload FROM model_user WHERE user_id = :item_id AND digest = :digest"
_FORMER = """
SELECT payload FROM former_payload
WHERE kind = :of AND organization_id = :within AND item_id = :item_id AND digest = :digest
"""


@dataclass(frozen=True, slots=True)
class FieldHistory:
    """One field before and after. None: it is missing. ``NOT_KNOWN``: it is unknown."""

    field: str
    before: object
    after: object

    @property
    def is_changed(self) -> bool:
        """Whether it differs as JSON, where true is not 1."""
        if NOT_KNOWN in (self.before, self.after):
            return True
        return json.dumps(self.before, sort_keys=True) != json.dumps(self.after, sort_keys=True)


def field_histories(connection: Connection, item: PlanItem, was: str) -> list[FieldHistory]:
    """All fields of an item, before and after. ``was``: its column."""
    before = _before(connection, item, was)
    after = {} if item.action == Action.DELETE else _after(item, before)
    return [FieldHistory(name, before.get(name), after.get(name)) for name in dict.fromkeys([*before, *after])]


def _attributes(
    item: PlanItem, parent_id: str, access_type: str, access_role: str, *, disabled: bool
) -> dict[str, object]:
    kind = Kind(item.kind)
    if kind is Kind.FOLDER:
        return {"parentFolderId": parent_id or None, "accessType": access_type or None}
    if kind is Kind.DOCUMENT:
        return {"folderId": parent_id or None, "accessType": access_type or None}
    if kind is Kind.ORGANIZATION:
        return {"disabled": disabled}
    return {"accessRole": access_role or None} if kind not in {Kind.GROUP, Kind.GROUP_MEMBER} else {}


_COLUMNS = {
    "accessRole": "access_role",
    "accessType": "access_type",
    "parentFolderId": "parent_id",
    "folderId": "parent_id",
    "disabled": "disabled",
}


def _after(item: PlanItem, before: Mapping[str, object]) -> dict[str, object]:
    attributes = _attributes(item, item.parent_id, item.access_type, item.access_role, disabled=item.disabled)
    columns = SETTLES.get(item.operation, ())
    fields = json.loads(item.payload) if item.payload else None
    after: dict[str, object] = {name: value for name, value in before.items() if name not in attributes}
    if fields is not None:
        after = dict(fields)
    # An operation sends a part of an item; the rest stays as it was.
    return after | {
        name: value if item.action == Action.ADD or _COLUMNS[name] in columns else before.get(name)
        for name, value in attributes.items()
    }


def _before(connection: Connection, item: PlanItem, was: str) -> dict[str, object]:
    if item.action == Action.ADD:
        return {}
    if item.action == Action.DELETE:
        fields = _former_fields(connection, item)
        attributes = _attributes(item, item.parent_id, item.access_type, item.access_role, disabled=item.disabled)
        return (fields or {}) | _known(attributes)
    sent = json.loads(item.payload) if item.payload else {}
    if not was:
        attributes = _attributes(item, "", "", "", disabled=False)
        return dict.fromkeys([*sent, *attributes], NOT_KNOWN)
    old: dict[str, Any] = json.loads(was)
    attributes = _attributes(item, old["parentId"], old["accessType"], old["accessRole"], disabled=old["disabled"])
    fields = old.get("fields", sent)
    return (dict.fromkeys(sent, NOT_KNOWN) if fields is None else fields) | _known(attributes)


def _known(attributes: Mapping[str, object]) -> dict[str, object]:
    """Replaces a role that the backend did not return, and a type whose call has no answer, by ``NOT_KNOWN``."""
    return {
        name: NOT_KNOWN if value == "?" or (name == "accessRole" and value is None) else value
        for name, value in attributes.items()
    }


def _former_fields(connection: Connection, item: PlanItem) -> dict[str, object] | None:
    """The fields behind the digest of a delete; None if they are unknown."""
    kind = Kind(item.kind)
    of = kind if kind in _FIELDS_OF else "user"
    values = {
        "organization_id": item.organization_id,
        "item_id": item.item_id,
        "digest": item.digest,
        "of": of,
        "within": item.organization_id if kind in {Kind.FOLDER, Kind.DOCUMENT, Kind.GROUP} else "",
    }
    for query in (_FIELDS_OF.get(kind, _FIELDS_OF_USER), _FORMER):
        if found := run(connection, query, values).scalar():
            fields: dict[str, object] = json.loads(found)
            return fields
    return None


def was_of(connection: Connection, plan_id: str, ordinal: int) -> str:
    """The column ``was`` of an item."""
    found = run(
        connection,
        "SELECT was FROM plan_item WHERE plan_id = :plan_id AND ordinal = :ordinal",
        {"plan_id": plan_id, "ordinal": ordinal},
    ).scalar()
    return str(found or "")


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
    "sqlite": f"CROSS JOIN plan_item p WHERE r.plan_id IS NOT NULL AND {_OF_RUN}",
    "postgresql": f"CROSS JOIN LATERAL (SELECT p.* FROM plan_item p WHERE {_OF_RUN} OFFSET 0) p"  # noqa: S608 - a constant
    " WHERE r.plan_id IS NOT NULL",
}


def item_history(connection: Connection, change: PlannedChange | ItemKey, *, limit: int) -> list[PastChange]:
    """The item in the plans of runs, newest first."""
    identity = {
        "kind": change.kind,
        "organization_id": change.organization_id,
        "container_id": change.container_id,
        "item_id": change.item_id,
    }
    rows = run(connection, _HISTORY, {**identity, "limit": limit}, items=_ITEMS[connection.dialect.name])
    return [PastChange(*row) for row in rows]
