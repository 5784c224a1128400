"""The fields of a plan item, before and after its operation.

The fields before an update are in ``was``, those before a delete in the item's columns. The text of a digest is in the
access model, or in ``former_payload`` while a ledger or a stored plan needs it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from app.access.record_tables import TABLES_OF_KIND
from app.foundation.database.statements import run
from app.sync.ledger.items import Kind, record_kind
from app.sync.ledger.settlement import SETTLES
from app.sync.plan.rules import Action
from app.sync.plan.stored import PlanItem

NOT_KNOWN = object()
"""An unknown value."""

_ROLE = {"accessRole": "access_role"}
_ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    Kind.ORGANIZATION: {"disabled": "disabled"},
    Kind.FOLDER: {"parentFolderId": "parent_id", "accessType": "access_type"},
    Kind.DOCUMENT: {"folderId": "parent_id", "accessType": "access_type"},
    Kind.ORGANIZATION_USER: _ROLE,
    Kind.FOLDER_USER: _ROLE,
    Kind.DOCUMENT_USER: _ROLE,
}
"""Kind → the fields with columns of their own, and these columns."""

_UNANSWERED_TYPE = "?"
"""The access type in the ledger of a document whose call has no answer (``app.sync.ledger.settlement``)."""

_IN_WAS = {"parent_id": "parentId", "access_type": "accessType", "access_role": "accessRole", "disabled": "disabled"}
"""Column → its key in ``was``."""

_CURRENT = "SELECT payload FROM {table} WHERE {same} AND digest = :digest"
_FORMER = """
SELECT payload FROM former_payload
WHERE kind = :of AND organization_id = :within AND item_id = :item_id AND digest = :digest
"""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field before and after, by its name in records. None: it is missing, inherited, or the top of the tree.
    ``NOT_KNOWN``: it is unknown."""

    field: str
    old: object
    new: object

    @property
    def old_is_known(self) -> bool:
        return self.old is not NOT_KNOWN

    @property
    def is_changed(self) -> bool:
        """Whether it differs as JSON, where true is not 1."""
        if NOT_KNOWN in (self.old, self.new):
            return True
        if self.old is self.new:
            return False
        return json.dumps(self.old, sort_keys=True) != json.dumps(self.new, sort_keys=True)


def all_fields(connection: Connection, item: PlanItem, was: str) -> list[FieldChange]:
    """All fields of an item, changed or not. ``was``: its column."""
    former = _former_fields(connection, item) if item.action == Action.DELETE else {}
    return _fields(item, was, former)


def updated_fields(item: PlanItem, was: str) -> list[FieldChange]:
    """The fields that an update changes, without those of which the former state is unknown."""
    attributes, settles = _ATTRIBUTES.get(item.kind, {}), SETTLES.get(item.operation, ())
    changes = [
        change
        for change in _fields(item, was, {})
        if change.is_changed
        and (attributes[change.field] in settles if change.field in attributes else change.old_is_known)
    ]
    return sorted(changes, key=lambda change: (change.field not in attributes, change.field))


def _fields(item: PlanItem, was: str, former: Mapping[str, object]) -> list[FieldChange]:
    """All fields of an item. ``former``: the fields behind the digest of a delete."""
    attributes, settles = _ATTRIBUTES.get(item.kind, {}), SETTLES.get(item.operation, ())
    own = {name: getattr(item, column) or _empty(column) for name, column in attributes.items()}
    sent: dict[str, object] = json.loads(item.payload) if item.payload else {}
    if item.action == Action.DELETE:
        return [FieldChange(name, value, None) for name, value in {**former, **_known(own)}.items()]
    before = _before_update(was, sent, attributes) if item.action == Action.UPDATE else {}
    # An operation sends a part of an item; the rest stays as it was.
    after = sent if item.payload else {name: value for name, value in before.items() if name not in attributes}
    after |= {
        name: value if item.action == Action.ADD or attributes[name] in settles else before.get(name)
        for name, value in own.items()
    }
    return [FieldChange(name, before.get(name), after.get(name)) for name in dict.fromkeys([*before, *after])]


def _before_update(was: str, sent: Mapping[str, object], attributes: Mapping[str, str]) -> dict[str, object]:
    """The fields before an update. ``sent``: the fields that it sends."""
    if not was:
        return dict.fromkeys([*sent, *attributes], NOT_KNOWN)
    old: dict[str, Any] = json.loads(was)
    fields = old.get("fields", sent)
    before = dict.fromkeys(sent, NOT_KNOWN) if fields is None else dict(fields)
    return before | _known({name: old[_IN_WAS[column]] or _empty(column) for name, column in attributes.items()})


def _empty(column: str) -> object:
    return False if column == "disabled" else None


def _known(attributes: Mapping[str, object]) -> dict[str, object]:
    """Replaces a role that the backend did not return, and a type whose call has no answer, by ``NOT_KNOWN``."""
    return {
        name: NOT_KNOWN if value == _UNANSWERED_TYPE or (name == "accessRole" and value is None) else value
        for name, value in attributes.items()
    }


def _former_fields(connection: Connection, item: PlanItem) -> dict[str, object]:
    """The fields behind the digest of a delete. Empty if they are unknown."""
    kind = record_kind(item.kind)
    table = TABLES_OF_KIND[kind]
    *within, own = table.keys
    same = " AND ".join([f"{own} = :item_id", *(f"{name} = :{name}" for name in within)])
    values = {
        "organization_id": item.organization_id,
        "item_id": item.item_id,
        "digest": item.digest,
        "of": kind,
        "within": item.organization_id if within else "",
    }
    for query in (_CURRENT, _FORMER):
        if payload := run(connection, query, values, table=table.table.name, same=same).scalar():
            fields: dict[str, object] = json.loads(payload)
            return fields
    return {}
