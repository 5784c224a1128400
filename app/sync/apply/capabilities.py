"""Records which operations the backend supports, and which items need the others.

The rules: ``app/sync/apply/README.md``, "What the backend lacks".

The table of these items is called ``untold_item``, and its column ``plain`` contains whether an item was sent without
its role or access type.

In a preview the items of a missing operation are ``skipped``, with a message that begins with ``_UNSUPPORTED_MARK``.
Before the plan is applied they become ``planned`` again, because the backend may have the operation by then.
"""

# ruff: noqa: S608 - SQL consists of constants of this module; data is in parameters.

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from threading import Lock
from typing import Literal

from sqlalchemy import Connection, Engine

from app.client.errors import ClientError
from app.contract import operations as contract
from app.contract.operation import Tier
from app.foundation.database.engine import reading, writing
from app.foundation.database.statements import run
from app.sync.apply.requests import BackendWrites
from app.sync.ledger.ledger import increment_revision
from app.sync.plan.rules import RULES


@dataclass
class Capabilities:
    """The operations that a run has found the backend to have or to lack. Threads may share it."""

    mode: Literal["auto", "core", "extended"]
    present: set[str] = field(default_factory=set, init=False)
    """Operations that the backend has, as a response proved."""
    missing: set[str] = field(default_factory=set, init=False)
    """Operations that the backend was found not to have."""
    missing_with_roles: set[str] = field(default_factory=set, init=False)
    """Operations whose path with roles and access types it was found not to have."""
    unsupported_items: Counter[str] = field(default_factory=Counter, init=False)
    """Operation → the number of items that cannot be sent without it."""
    _lock: Lock = field(default_factory=Lock, init=False)

    def is_unsupported(self, operation: str) -> bool:
        """Whether the operation must not be called."""
        is_extended = contract.by_name(operation).tier is Tier.EXTENDED
        return is_extended and (self.mode == "core" or operation in self.missing)

    def are_roles_unsupported(self, operation: str) -> bool:
        """Whether the operation's path with roles and access types must not be called."""
        return self.mode == "core" or operation in self.missing_with_roles

    def any_roles_unsupported(self) -> bool:
        """Whether some items are sent without roles and access types."""
        return self.mode == "core" or bool(self.missing_with_roles)

    def count_unsupported_items(self, operation: str, number: int) -> None:
        """Counts items that cannot be sent without the operation."""
        with self._lock:
            self.unsupported_items[operation] += number


_UNSUPPORTED_MARK = "unsupported: "
_ALONE_MARK = "goes by itself: "

_CONSEQUENCES = {
    "add_organizations": "it is created with its first user",
    "add_documents": "it is created with its first user",
    "add_groups": "it is created with its first member",
    "delete_organizations": "it is emptied and left behind",
    "delete_folder": "it is emptied and left behind",
}
"""The operation that the backend lacks → its effect on an item, in a preview."""

_SKIP = """
UPDATE plan_item SET status = 'skipped', message = :message
WHERE plan_id = :plan_id AND status = 'planned' AND operation = :operation
"""

# Items that a delete covers are deleted one by one if their container is left behind.
_DELETE_ALONE = f"""
UPDATE plan_item SET message = '{_ALONE_MARK}' || c.kind || ' ' || c.item_id || ' is left behind'
FROM plan_item AS c
WHERE plan_item.plan_id = :plan_id AND plan_item.status = 'planned' AND plan_item.covered_by = c.ordinal
  AND c.plan_id = :plan_id AND c.status = 'skipped' AND c.message LIKE '{_UNSUPPORTED_MARK}%'
"""

_PLAN_AGAIN = f"""
UPDATE plan_item SET status = 'planned', message = ''
WHERE plan_id = :plan_id AND (
  status = 'skipped' AND message LIKE '{_UNSUPPORTED_MARK}%' OR status = 'planned' AND message LIKE '{_ALONE_MARK}%')
"""


def mark_unsupported(connection: Connection, plan_id: str, capabilities: Capabilities) -> dict[str, int]:
    """Marks the items of a preview that the backend does not support. Returns operation → number of items."""
    why = "backend.operations is core" if capabilities.mode == "core" else "the backend lacks it"
    marked: dict[str, int] = {}
    for operation in dict.fromkeys(rule.operation for rule in RULES):
        if not capabilities.is_unsupported(operation):
            continue
        consequence = f"; {_CONSEQUENCES[operation]}" if operation in _CONSEQUENCES else ""
        message = f"{_UNSUPPORTED_MARK}{contract.by_name(operation).title} ({why}){consequence}"
        parameters: dict[str, object] = {"plan_id": plan_id, "operation": operation, "message": message}
        if number := run(connection, _SKIP, parameters).rowcount:
            marked[operation] = number
    if marked:
        # It reads every item of the plan.
        run(connection, _DELETE_ALONE, {"plan_id": plan_id})
    return marked


def plan_unsupported_again(connection: Connection, plan_id: str) -> None:
    """Removes the marks, so that the plan can be applied."""
    run(connection, _PLAN_AGAIN, {"plan_id": plan_id})


_MISSING_OPERATIONS = "SELECT DISTINCT operation, plain FROM untold_item WHERE ledger_id = :ledger_id ORDER BY 1, 2"

_ANY_ORGANIZATION = """
SELECT item_id FROM ledger_item
WHERE ledger_id = :ledger_id AND kind = 'organization' AND certain ORDER BY item_id LIMIT 1
"""

_OF_OPERATION = "u.ledger_id = :ledger_id AND u.operation = :operation AND u.plain = :without_roles"

_RESTORE_LEFT_BEHIND = f"""
INSERT INTO ledger_item (ledger_id, kind, organization_id, container_id, item_id, digest, parent_id, access_type,
  access_role, disabled, certain, gone_at)
SELECT u.ledger_id, u.kind, u.organization_id, u.container_id, u.item_id, '', '', '', '', FALSE, FALSE,
  CAST(NULL AS BIGINT)
FROM untold_item u WHERE {_OF_OPERATION}
ON CONFLICT (ledger_id, kind, organization_id, container_id, item_id) DO UPDATE SET certain = FALSE
"""

_UNCONFIRM = f"""
UPDATE ledger_item SET certain = FALSE {{changes}}
WHERE ledger_id = :ledger_id AND EXISTS (
  SELECT 1 FROM untold_item u WHERE {_OF_OPERATION} AND u.kind = ledger_item.kind
    AND u.organization_id = ledger_item.organization_id AND u.container_id = ledger_item.container_id
    AND u.item_id = ledger_item.item_id)
"""


def probe_missing(engine: Engine, ledger_id: int, backend: BackendWrites, *, probe_all: bool, random: Random) -> None:
    """Probes one operation that the backend lacked before, or all of them. If the backend has it now, the items that
    needed it become unconfirmed, and what was left behind is in the ledger again."""
    with reading(engine) as connection:
        missing = list(run(connection, _MISSING_OPERATIONS, {"ledger_id": ledger_id}))
        organization_id = run(connection, _ANY_ORGANIZATION, {"ledger_id": ledger_id}).scalar()
    if organization_id is None:
        return
    random.shuffle(missing)
    for operation, without_roles in missing:
        try:
            # Items were written without roles because the backend lacked the path with roles.
            exists = backend.has_operation(operation, organization_id, with_roles=bool(without_roles))
        except ClientError:
            return
        if exists:
            with writing(engine) as connection:
                _restore(connection, ledger_id, operation, without_roles=bool(without_roles))
        elif not probe_all:
            return


def _restore(connection: Connection, ledger_id: int, operation: str, *, without_roles: bool) -> None:
    parameters = {"ledger_id": ledger_id, "operation": operation, "without_roles": without_roles}
    # Access types of documents have an operation of their own. '?' differs from every type.
    changes = ", access_type = '?'" if operation == "update_document_access" else ""
    restore = _RESTORE_LEFT_BEHIND if operation.startswith("delete_") else _UNCONFIRM
    run(connection, restore, parameters, changes=changes)
    run(connection, f"DELETE FROM untold_item AS u WHERE {_OF_OPERATION}", parameters)
    increment_revision(connection, ledger_id)
