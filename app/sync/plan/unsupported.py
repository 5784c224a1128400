"""Marks the items of a preview that this backend does not support.

A run that applies a plan finds out while it sends, and settles such an item in the ledger. In a preview these items are
``skipped``, with a message that begins with ``UNSUPPORTED``. Before the plan is applied they become ``planned`` again,
because the backend may have the operation by then.
"""

from sqlalchemy import Connection

from app.client.capabilities import Capabilities
from app.contract.operations import by_name
from app.foundation.database.statements import run
from app.sync.plan.rules import RULES

UNSUPPORTED = "unsupported: "
_BY_ITSELF = "goes by itself: "
_PREFIXES = {
    "unsupported": UNSUPPORTED,
    "length": len(UNSUPPORTED),
    "by_itself": _BY_ITSELF,
    "by_itself_length": len(_BY_ITSELF),
}

_BUT = {
    "add_organizations": "it is created with its first user",
    "add_documents": "it is created with its first user",
    "add_groups": "it is created with its first member",
    "delete_organizations": "it is emptied and left behind",
    "delete_folder": "it is emptied and left behind",
}

_MARK = """
UPDATE plan_item SET status = 'skipped', message = :message
WHERE plan_id = :plan_id AND status = 'planned' AND operation = :operation
"""

# Items that a delete covers are deleted one by one if their container is left behind.
_ONE_BY_ONE = """
UPDATE plan_item SET message = :by_itself || c.kind || ' ' || c.item_id || ' is left behind'
FROM plan_item AS c
WHERE plan_item.plan_id = :plan_id AND plan_item.status = 'planned' AND plan_item.covered_by = c.ordinal
  AND c.plan_id = :plan_id AND c.status = 'skipped' AND SUBSTR(c.message, 1, :length) = :unsupported
"""

_UNMARK = """
UPDATE plan_item SET status = 'planned', message = ''
WHERE plan_id = :plan_id AND (
  status = 'skipped' AND SUBSTR(message, 1, :length) = :unsupported
  OR status = 'planned' AND SUBSTR(message, 1, :by_itself_length) = :by_itself)
"""


def mark_unsupported(connection: Connection, plan_id: str, capabilities: Capabilities) -> dict[str, int]:
    """Marks the items that the backend does not support. Returns operation → number of items."""
    why = "backend.operations is core" if capabilities.mode == "core" else "the backend lacks it"
    marked: dict[str, int] = {}
    for operation in dict.fromkeys(rule.operation for rule in RULES):
        if not capabilities.is_unsupported(operation):
            continue
        but = f"; {_BUT[operation]}" if operation in _BUT else ""
        message = f"{UNSUPPORTED}{by_name(operation).title} ({why}){but}"
        parameters: dict[str, object] = {"plan_id": plan_id, "operation": operation, "message": message}
        if number := run(connection, _MARK, parameters).rowcount:
            marked[operation] = number
    if marked:
        # It reads every item of the plan.
        run(connection, _ONE_BY_ONE, {"plan_id": plan_id, **_PREFIXES})
    return marked


def plan_unsupported_again(connection: Connection, plan_id: str) -> None:
    """Removes the marks, so that the plan can be applied."""
    run(connection, _UNMARK, {"plan_id": plan_id, **_PREFIXES})
