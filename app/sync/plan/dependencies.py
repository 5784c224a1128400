"""Dependencies between the items of a plan: finds items that must not be sent because of others.

The rules: ``app/sync/plan/README.md``, "Preconditions".

An add or update needs the items in ``_NEEDED``. A delete must not include items that it does not cover.
"""

# ruff: noqa: S608 - SQL consists of constants of this module; data is in parameters.

from collections.abc import Sequence

from sqlalchemy import Connection

from app.foundation.database.statements import json_list, run
from app.sync.ledger.ledger import Kind, listed
from app.sync.plan.stored import PlanItem

_BELOW_ORGANIZATIONS = tuple(kind.value for kind in Kind if kind is not Kind.ORGANIZATION)

_NEEDED = (
    ("organization", ("organization", *_BELOW_ORGANIZATIONS), "organization_id"),
    ("folder", ("folder", "document"), "parent_id"),
    ("folder", ("folderUser",), "container_id"),
    ("document", ("documentUser",), "container_id"),
    ("group", ("groupMember",), "container_id"),
    ("folder", ("folder",), "item_id"),
    ("document", ("document",), "item_id"),
)
"""The kind that is needed, the kinds that need it, and their column with its id. An organization that needs itself, and
the last two, are updates after an add."""

_NEEDS = (
    "d.kind = '{kind}' AND d.organization_id = p.organization_id AND d.container_id = '' AND d.item_id = p.{column}"
)
"""``p`` needs ``d``."""

_MISSING = """
    d.plan_id = :plan_id AND d.action = 'add' AND d.status IN ('failed', 'skipped', 'waiting', 'parked', 'cancelled')
    AND NOT EXISTS (
        SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind = d.kind
        AND l.organization_id = d.organization_id AND l.container_id = d.container_id AND l.item_id = d.item_id
        AND l.certain
    )
"""
"""``d`` was not added. An unsupported add is in the ledger and not missing."""

_SKIP = """
    UPDATE plan_item SET status = 'skipped', message = '{kind} ' || {column} || ' is not in the backend'
    WHERE plan_id = :plan_id AND status = 'planned' AND ordinal IN (
        SELECT p.ordinal FROM plan_item d @by(ix_plan_item_plan_id_status_ordinal) CROSS JOIN plan_item p
        WHERE {missing} AND {needs} AND p.plan_id = :plan_id AND p.kind IN ({needing}) AND p.action <> 'delete'
    )
"""

_FIND = """
    SELECT p.ordinal, '{kind} ' || p.{column} || ' is not in the backend' AS message
    FROM plan_item p CROSS JOIN plan_item d
    WHERE p.plan_id = :plan_id AND p.ordinal IN (@numbers(ordinals)) AND {needs} AND {missing}
"""


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


def any_missing(connection: Connection, plan_id: str) -> bool:
    """Whether the plan has adds that failed or are not sent."""
    row = run(
        connection,
        """
        SELECT 1 FROM plan_item WHERE plan_id = :plan_id
        AND status IN ('failed', 'skipped', 'waiting', 'parked', 'cancelled') AND action = 'add' LIMIT 1
        """,
        {"plan_id": plan_id},
    ).first()
    return row is not None


def skip_dependents(connection: Connection, ledger_id: int, plan_id: str) -> None:
    """Skips planned items that need a missing item, and the items that need these, level by level."""
    parameters = {"ledger_id": ledger_id, "plan_id": plan_id}
    skipped = any_missing(connection, plan_id)
    while skipped:
        skipped = False
        for kind, needing, column in _NEEDED:
            names = {"kind": kind, "column": column, "needing": listed(needing)}
            done = run(connection, _SKIP, parameters, needs=_NEEDS, missing=_MISSING, **names)
            skipped |= done.rowcount > 0


def skip_without_container(connection: Connection, ledger_id: int, plan_id: str) -> None:
    """Skips items whose container is not confirmed, in a plan of users, which adds no containers."""
    run(connection, _WITHOUT_CONTAINER, {"ledger_id": ledger_id, "plan_id": plan_id})


def find_dependents(connection: Connection, ledger_id: int, items: Sequence[PlanItem]) -> dict[int, str]:
    """The adds or updates of one call that need a missing item, with a message by ordinal."""
    parameters = {
        "ledger_id": ledger_id,
        "plan_id": items[0].plan_id,
        "ordinals": json_list([item.ordinal for item in items]),
    }
    messages: dict[int, str] = {}
    for kind, needing, column in _NEEDED:
        if items[0].kind in needing:
            rows = run(connection, _FIND, parameters, needs=_NEEDS, missing=_MISSING, kind=kind, column=column)
            messages = {row.ordinal: row.message for row in rows} | messages
    return messages


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
    "organization": ((_DELETED, f"l.kind IN ({listed(_BELOW_ORGANIZATIONS)})"),),
    "folder": (
        (_DELETED_FOLDERS, "l.kind IN ('folder', 'document') AND l.parent_id = d.item_id"),
        (_DELETED, "l.kind = 'folderUser' AND l.container_id = d.item_id"),
    ),
    "document": ((_DELETED, "l.kind = 'documentUser' AND l.container_id = d.item_id"),),
    "group": ((_DELETED, "l.kind = 'groupMember' AND l.container_id = d.item_id"),),
}
"""Kind of a container → the containers that its delete includes, and the condition for their contents ``l``."""

_UNCOVERED = """
    WITH RECURSIVE deleted (ordinal, organization_id, item_id) AS ({deleted})
    SELECT d.ordinal, l.kind, MIN(l.item_id) AS item_id FROM deleted d CROSS JOIN ledger_item l
    WHERE l.ledger_id = :ledger_id AND l.organization_id = d.organization_id AND {contents} AND NOT EXISTS (
        SELECT 1 FROM plan_item c WHERE c.plan_id = :plan_id AND c.kind = l.kind
        AND c.organization_id = l.organization_id AND c.container_id = l.container_id AND c.item_id = l.item_id
        AND (c.covered_by = d.ordinal OR c.ordinal = d.ordinal
            OR NOT l.certain AND c.action = 'delete' AND c.status = 'planned')
    )
    GROUP BY d.ordinal, l.kind
"""


def find_unsafe_deletes(connection: Connection, ledger_id: int, items: Sequence[PlanItem]) -> dict[int, str]:
    """The deletes of one call that would include items that they do not cover, with a message by ordinal.

    Such an item could not be moved, or was added after the plan was made. An unconfirmed item that has a planned delete
    of its own may be included.
    """
    parameters = {
        "ledger_id": ledger_id,
        "plan_id": items[0].plan_id,
        "ordinals": json_list([item.ordinal for item in items]),
    }
    ids = {item.ordinal: item.item_id for item in items}
    messages: dict[int, str] = {}
    for deleted, contents in _CONTENTS.get(items[0].kind, ()):
        for row in run(connection, _UNCOVERED, parameters, deleted=deleted, contents=contents):
            within = f"{items[0].kind} {ids[row.ordinal]}"
            messages[row.ordinal] = f"{row.kind} {row.item_id} is still in {within} and is not to be deleted with it"
    return messages
