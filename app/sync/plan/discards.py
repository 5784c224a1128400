"""Discarded deletes: deletes that an operator refused, and that later plans leave alone.

The rules: ``app/sync/plan/README.md``, "Discards".
"""

# ruff: noqa: S608 - SQL consists of constants of this project; data is in parameters.

from sqlalchemy import Connection

from app.foundation.database.statements import run
from app.sync.ledger.ledger import FINGERPRINT
from app.sync.plan.rules import Aspect

_KEY = "kind, organization_id, container_id, item_id"

DELETE_FINGERPRINT = FINGERPRINT.replace("{row}", "{item}") + " || '|' || {cover_kind} || '|' || {cover_id}"
"""The effect of a delete, as an SQL expression. ``{item}`` is a table with the columns of an item, ``{cover_kind}`` and
``{cover_id}`` the container whose delete covers it, or empty."""

_STORE = f"""
INSERT INTO discarded_item (ledger_id, {_KEY}, fingerprint, run_id, message)
SELECT CAST(:ledger_id AS INTEGER), p.kind, p.organization_id, p.container_id, p.item_id,
  {DELETE_FINGERPRINT.format(item="p", cover_kind="COALESCE(c.kind, '')", cover_id="COALESCE(c.item_id, '')")},
  CAST(:run_id AS TEXT), CAST(:message AS TEXT)
FROM plan_item p LEFT JOIN plan_item c ON c.plan_id = p.plan_id AND c.ordinal = p.covered_by
WHERE p.plan_id = :plan_id AND p.status = 'held' AND p.action = 'delete'
ON CONFLICT (ledger_id, {_KEY}) DO UPDATE
SET fingerprint = excluded.fingerprint, run_id = excluded.run_id, message = excluded.message
"""

_MARK = "UPDATE plan_item SET status = 'discarded', message = :message WHERE plan_id = :plan_id AND status = 'held'"


def discard_held(connection: Connection, *, ledger_id: int, run_id: str, plan_id: str, message: str) -> int:
    """Stores the held deletes of a plan as discarded, with a message about who decided and why. Returns their
    number."""
    parameters: dict[str, object] = {"ledger_id": ledger_id, "run_id": run_id, "plan_id": plan_id, "message": message}
    run(connection, _STORE, parameters)
    return run(connection, _MARK, parameters).rowcount


_FORGET = """
DELETE FROM discarded_item WHERE ledger_id = :ledger_id AND (
  EXISTS (
    SELECT 1 FROM desired d WHERE d.kind = discarded_item.kind AND d.organization_id = discarded_item.organization_id
      AND d.container_id = discarded_item.container_id AND d.item_id = discarded_item.item_id)
  OR NOT EXISTS (
    SELECT 1 FROM ledger_item l WHERE l.ledger_id = discarded_item.ledger_id AND l.kind = discarded_item.kind
      AND l.organization_id = discarded_item.organization_id AND l.container_id = discarded_item.container_id
      AND l.item_id = discarded_item.item_id))
"""

_SKIP = """
UPDATE step SET status = 'discarded', message = x.message
FROM discarded_item x
WHERE x.ledger_id = :ledger_id AND step.aspects = {gone} AND step.status = 'planned' AND step.kind = x.kind
  AND step.organization_id = x.organization_id AND step.container_id = x.container_id AND step.item_id = x.item_id
  AND x.fingerprint = {fingerprint}
"""

_UNCOVER = """
UPDATE step SET cover_kind = '', cover_id = ''
FROM step AS coverer
WHERE step.aspects = {gone} AND step.status = 'planned' AND step.cover_kind <> '' AND coverer.kind = step.cover_kind
  AND coverer.organization_id = step.organization_id AND coverer.container_id = ''
  AND coverer.item_id = step.cover_id AND coverer.status = 'discarded'
"""

_GONE = str(int(Aspect.GONE))
_FINGERPRINT = DELETE_FINGERPRINT.format(item="step", cover_kind="step.cover_kind", cover_id="step.cover_id")


def forget_discarded(connection: Connection, ledger_id: int) -> None:
    """Removes discards of items that are desired again or no longer in the ledger."""
    run(connection, _FORGET, {"ledger_id": ledger_id})


def skip_discarded(connection: Connection, ledger_id: int) -> None:
    """Marks the deletes in ``step`` that were discarded."""
    while run(connection, _SKIP, {"ledger_id": ledger_id}, gone=_GONE, fingerprint=_FINGERPRINT).rowcount:
        # Items that the discarded deletes covered are now separate deletes, which may have been discarded as such.
        if not run(connection, _UNCOVER, gone=_GONE).rowcount:
            return
