"""Dependencies between the items of a plan: finds items that must not be sent because of others.

The rules: ``app/sync/plan/README.md``, "Preconditions".

An add or update needs the items in ``_NEEDS``. A delete must not include items that it does not cover.
"""

# ruff: noqa: S608 - SQL consists of constants of this module; data is in parameters.

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from app.foundation.database.statements import json_list, run
from app.sync.ledger.items import Kind, listed
from app.sync.plan.stored import PlanItem

_BELOW_ORGANIZATIONS = tuple(kind for kind in Kind if kind is not Kind.ORGANIZATION)


class _Need(NamedTuple):
    """Items of some kinds that need another item, unless they are deletes."""

    needed: Kind
    by: tuple[Kind, ...]
    column: str
    """The column with the id of the needed item."""


_NEEDS = (
    # An item that needs itself is an update after an add.
    _Need(Kind.ORGANIZATION, (Kind.ORGANIZATION, *_BELOW_ORGANIZATIONS), "organization_id"),
    _Need(Kind.FOLDER, (Kind.FOLDER, Kind.DOCUMENT), "parent_id"),
    _Need(Kind.FOLDER, (Kind.FOLDER_USER,), "container_id"),
    _Need(Kind.DOCUMENT, (Kind.DOCUMENT_USER,), "container_id"),
    _Need(Kind.GROUP, (Kind.GROUP_MEMBER,), "container_id"),
    _Need(Kind.FOLDER, (Kind.FOLDER,), "item_id"),
    _Need(Kind.DOCUMENT, (Kind.DOCUMENT,), "item_id"),
)

_UNSENT = "('failed', 'skipped', 'waiting', 'parked', 'cancelled')"

# `d` was not added, and `p` needs it. An unsupported add is in the ledger and not missing.
_NEEDS_MISSING = f"""
  d.plan_id = :plan_id AND d.action = 'add' AND d.status IN {_UNSENT} AND NOT EXISTS (
    SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind = d.kind
      AND l.organization_id = d.organization_id AND l.container_id = d.container_id AND l.item_id = d.item_id
      AND l.certain)
  AND d.kind = '{{kind}}' AND d.organization_id = p.organization_id AND d.container_id = '' AND d.item_id = p.{{column}}
"""

_SKIP = f"""
UPDATE plan_item SET status = 'skipped', message = '{{kind}} ' || {{column}} || ' is not in the backend'
WHERE plan_id = :plan_id AND status = 'planned' AND ordinal IN (
  SELECT p.ordinal FROM plan_item d @by(ix_plan_item_plan_id_status_ordinal) CROSS JOIN plan_item p
  WHERE {_NEEDS_MISSING} AND p.plan_id = :plan_id AND p.kind IN ({{by}}) AND p.action <> 'delete')
"""

_FIND = f"""
SELECT p.ordinal, '{{kind}} ' || p.{{column}} || ' is not in the backend' AS message
FROM plan_item p CROSS JOIN plan_item d
WHERE p.plan_id = :plan_id AND p.ordinal IN (@numbers(ordinals)) AND {_NEEDS_MISSING}
"""

_ANY_UNSENT_ADDS = (
    f"SELECT 1 FROM plan_item WHERE plan_id = :plan_id AND action = 'add' AND status IN {_UNSENT} LIMIT 1"
)

_WITHOUT_CONTAINER = """
UPDATE plan_item SET status = 'skipped',
  message = 'its container is not in the backend yet: a run that is not narrowed to users adds it'
WHERE plan_id = :plan_id AND status = 'planned' AND action <> 'delete' AND NOT EXISTS (
  SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind = CASE plan_item.kind
      WHEN 'folderUser' THEN 'folder' WHEN 'documentUser' THEN 'document' WHEN 'groupMember' THEN 'group'
      ELSE 'organization' END
    AND l.organization_id = plan_item.organization_id AND l.container_id = ''
    AND l.item_id = CASE plan_item.kind WHEN 'organizationUser' THEN plan_item.organization_id
      ELSE plan_item.container_id END AND l.certain)
"""


def any_unsent_adds(connection: Connection, plan_id: str) -> bool:
    """Whether the plan has adds that failed or are not sent. If not, no item is missing."""
    return run(connection, _ANY_UNSENT_ADDS, {"plan_id": plan_id}).first() is not None


def skip_dependents(connection: Connection, ledger_id: int, plan_id: str) -> None:
    """Skips planned items that need a missing item, and the items that need these, level by level."""
    parameters = {"ledger_id": ledger_id, "plan_id": plan_id}
    skipped = any_unsent_adds(connection, plan_id)
    while skipped:
        skipped = False
        for need in _NEEDS:
            parts = {"kind": need.needed, "column": need.column, "by": listed(need.by)}
            skipped |= run(connection, _SKIP, parameters, **parts).rowcount > 0


def skip_without_container(connection: Connection, ledger_id: int, plan_id: str) -> None:
    """Skips items whose container is not confirmed, in a plan of users, which adds no containers."""
    run(connection, _WITHOUT_CONTAINER, {"ledger_id": ledger_id, "plan_id": plan_id})


def find_dependents(connection: Connection, ledger_id: int, items: Sequence[PlanItem]) -> dict[int, str]:
    """The adds or updates of one call that need a missing item, with a message by ordinal."""
    parameters = _parameters(ledger_id, items)
    messages: dict[int, str] = {}
    for need in _NEEDS:
        if items[0].kind in need.by:
            for row in run(connection, _FIND, parameters, kind=need.needed, column=need.column):
                # The first need wins: it is about the outermost missing item.
                messages.setdefault(row.ordinal, row.message)
    return messages


def _parameters(ledger_id: int, items: Sequence[PlanItem]) -> dict[str, object]:
    ordinals = json_list([item.ordinal for item in items])
    return {"ledger_id": ledger_id, "plan_id": items[0].plan_id, "ordinals": ordinals}


_DELETED = """
  SELECT ordinal, organization_id, item_id FROM plan_item WHERE plan_id = :plan_id AND ordinal IN (@numbers(ordinals))
"""

_DELETED_FOLDERS = f"""{_DELETED}
  UNION
  SELECT d.ordinal, d.organization_id, l.item_id FROM deleted d CROSS JOIN ledger_item l
  WHERE l.ledger_id = :ledger_id AND l.organization_id = d.organization_id AND l.kind = 'folder'
    AND l.parent_id = d.item_id
"""

_CONTENTS = {
    Kind.ORGANIZATION: ((_DELETED, f"l.kind IN ({listed(_BELOW_ORGANIZATIONS)})"),),
    Kind.FOLDER: (
        (_DELETED_FOLDERS, "l.kind IN ('folder', 'document') AND l.parent_id = d.item_id"),
        (_DELETED, "l.kind = 'folderUser' AND l.container_id = d.item_id"),
    ),
    Kind.DOCUMENT: ((_DELETED, "l.kind = 'documentUser' AND l.container_id = d.item_id"),),
    Kind.GROUP: ((_DELETED, "l.kind = 'groupMember' AND l.container_id = d.item_id"),),
}
"""Kind of a container → the query for the containers that its delete includes, and the condition for their contents
``l``."""

_UNCOVERED = """
WITH RECURSIVE deleted (ordinal, organization_id, item_id) AS ({deleted})
SELECT d.ordinal, l.kind, MIN(l.item_id) AS item_id FROM deleted d CROSS JOIN ledger_item l
WHERE l.ledger_id = :ledger_id AND l.organization_id = d.organization_id AND {contents} AND NOT EXISTS (
  SELECT 1 FROM plan_item c WHERE c.plan_id = :plan_id AND c.kind = l.kind
    AND c.organization_id = l.organization_id AND c.container_id = l.container_id AND c.item_id = l.item_id
    AND (c.covered_by = d.ordinal OR c.ordinal = d.ordinal
      OR NOT l.certain AND c.action = 'delete' AND c.status = 'planned'))
GROUP BY d.ordinal, l.kind
"""


def find_unsafe_deletes(connection: Connection, ledger_id: int, items: Sequence[PlanItem]) -> dict[int, str]:
    """The deletes of one call that would include items that they do not cover, with a message by ordinal.

    Such an item could not be moved, or was added after the plan was made. An unconfirmed item that has a planned delete
    of its own may be included.
    """
    parameters = _parameters(ledger_id, items)
    ids = {item.ordinal: item.item_id for item in items}
    messages: dict[int, str] = {}
    for deleted, contents in _CONTENTS.get(Kind(items[0].kind), ()):
        # One of several contents is enough for a message.
        for row in run(connection, _UNCOVERED, parameters, deleted=deleted, contents=contents):
            within = f"{items[0].kind} {ids[row.ordinal]}"
            messages[row.ordinal] = f"{row.kind} {row.item_id} is still in {within} and is not to be deleted with it"
    return messages
