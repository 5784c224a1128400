"""Stores the held deletes that an operator discarded, and skips them in later plans.

The rules: ``app/sync/plan/README.md``, "Discards".
"""

# ruff: noqa: S608 - SQL consists of constants of this project; data is in parameters.

from sqlalchemy import Connection

from app.foundation.database.statements import run
from app.sync.ledger.items import FINGERPRINT
from app.sync.plan.rules import ASPECT_BITS

_KEY = "kind, organization_id, container_id, item_id"

_DELETE_FINGERPRINT = FINGERPRINT.replace("{row}", "{item}") + " || '|' || {cover_kind} || '|' || {cover_id}"
"""The effect of a delete, as an SQL expression. ``{item}`` is a table with the columns of an item, ``{cover_kind}`` and
``{cover_id}`` the container whose delete covers it, or empty."""

_STORE = f"""
INSERT INTO discarded_item (ledger_id, {_KEY}, fingerprint, run_id, message)
SELECT CAST(:ledger_id AS INTEGER), p.kind, p.organization_id, p.container_id, p.item_id,
  {_DELETE_FINGERPRINT.format(item="p", cover_kind="COALESCE(c.kind, '')", cover_id="COALESCE(c.item_id, '')")},
  CAST(:run_id AS TEXT), CAST(:message AS TEXT)
FROM plan_item p LEFT JOIN plan_item c ON c.plan_id = p.plan_id AND c.ordinal = p.covered_by
WHERE p.plan_id = :plan_id AND p.status = 'held' AND p.action = 'delete'
ON CONFLICT (ledger_id, {_KEY}) DO UPDATE
SET fingerprint = excluded.fingerprint, run_id = excluded.run_id, message = excluded.message
"""

_MARK = "UPDATE plan_item SET status = 'discarded', message = :message WHERE plan_id = :plan_id AND status = 'held'"

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
UPDATE diff SET status = 'discarded', message = x.message
FROM discarded_item x
WHERE x.ledger_id = :ledger_id AND diff.aspects = {gone} AND diff.status = 'planned' AND diff.kind = x.kind
  AND diff.organization_id = x.organization_id AND diff.container_id = x.container_id AND diff.item_id = x.item_id
  AND x.fingerprint = {fingerprint}
"""

_UNCOVER = """
UPDATE diff SET cover_kind = '', cover_id = ''
FROM diff AS coverer
WHERE diff.aspects = {gone} AND diff.status = 'planned' AND diff.cover_kind <> '' AND coverer.kind = diff.cover_kind
  AND coverer.organization_id = diff.organization_id AND coverer.container_id = ''
  AND coverer.item_id = diff.cover_id AND coverer.status = 'discarded'
"""

_FINGERPRINT = _DELETE_FINGERPRINT.format(item="diff", cover_kind="diff.cover_kind", cover_id="diff.cover_id")


def discard_held(connection: Connection, *, ledger_id: int, run_id: str, plan_id: str, message: str) -> int:
    """Stores the held deletes of a plan as discarded, with a message about who decided and why. Returns their
    number."""
    parameters: dict[str, object] = {"ledger_id": ledger_id, "run_id": run_id, "plan_id": plan_id, "message": message}
    run(connection, _STORE, parameters)
    return run(connection, _MARK, parameters).rowcount


def forget_discarded(connection: Connection, parameters: dict[str, object]) -> None:
    """Removes discards of items that are desired again or no longer in the ledger."""
    run(connection, _FORGET, parameters)


def skip_discarded(connection: Connection, parameters: dict[str, object]) -> None:
    """Marks the deletes in ``diff`` that were discarded."""
    while run(connection, _SKIP, parameters, fingerprint=_FINGERPRINT, **ASPECT_BITS).rowcount:
        # Items that the discarded deletes covered are now separate deletes, which may have been discarded as such.
        if not run(connection, _UNCOVER, **ASPECT_BITS).rowcount:
            return
