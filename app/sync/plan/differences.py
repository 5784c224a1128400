"""Compares the desired state with the ledger, and writes the items of a plan.

The rules: ``app/sync/plan/README.md``, "Differences".

An item that differs becomes a row of the temporary table ``diff`` with its *aspects*. ``app.sync.plan.rules.RULES``
turns each aspect into one plan item, one operation.
"""

from sqlalchemy import Connection

from app.foundation.database.statements import json_list, json_lists, run
from app.sync.ledger.items import FINGERPRINT, IS_SELECTED, ITEM_KINDS
from app.sync.plan.deletes import find_deletes, follow_coverers, restore_after_deletes
from app.sync.plan.discards import forget_discarded, skip_discarded
from app.sync.plan.limits import hold_deletes
from app.sync.plan.rules import ASPECT_BITS, RULES
from app.sync.plan.selection import Retry, Selection
from app.sync.plan.settings import LimitSettings
from app.sync.plan.stored import Hold
from app.sync.plan.tables import analyze, create_temporary

# Columns: kind, organization_id, container_id, item_id, aspects, depth, digest, parent_id, access_type, access_role,
# disabled, via, cover_kind, cover_id, status, message, why.
_DIFFERENCES = """
INSERT INTO diff
SELECT d.kind, d.organization_id, d.container_id, d.item_id,
  -- aspects: of a new item, what the add does not set; of an unconfirmed one, everything
  CASE
    WHEN l.item_id IS NULL THEN {new}
      + CASE WHEN d.kind = 'document' AND d.access_type <> '' THEN {access} ELSE 0 END
      + CASE WHEN d.kind = 'organization' AND d.disabled THEN {disabled} ELSE 0 END
    WHEN NOT l.certain THEN {new} + CASE d.kind
      WHEN 'organization' THEN {disabled} WHEN 'folder' THEN {access}
      WHEN 'document' THEN {parent} + {access} ELSE 0 END
    ELSE
      CASE WHEN l.digest <> d.digest OR l.access_role <> d.access_role
        OR (d.kind = 'folder' AND l.parent_id <> d.parent_id) THEN {content} ELSE 0 END
      + CASE WHEN d.kind = 'document' AND l.parent_id <> d.parent_id THEN {parent} ELSE 0 END
      + CASE WHEN l.access_type <> d.access_type THEN {access} ELSE 0 END
      + CASE WHEN l.disabled <> d.disabled THEN {disabled} ELSE 0 END
  END,
  d.depth, d.digest, d.parent_id, d.access_type, d.access_role, d.disabled, d.via, '', '', 'planned', '',
  -- why: of unconfirmed items alone
  CASE WHEN NOT l.certain THEN 'sent again: it is not confirmed that the backend has it like this' ELSE '' END
FROM desired d
LEFT JOIN ledger_item l ON l.ledger_id = :ledger_id AND l.kind = d.kind AND l.organization_id = d.organization_id
  AND l.container_id = d.container_id AND l.item_id = d.item_id
WHERE l.item_id IS NULL OR NOT l.certain
  OR (d.kind <> 'group' AND (l.digest <> d.digest OR l.parent_id <> d.parent_id OR l.access_type <> d.access_type
    OR l.access_role <> d.access_role OR l.disabled <> d.disabled))
ORDER BY d.kind, d.organization_id, d.container_id, d.item_id
"""

_FAILED_BEFORE = """
UPDATE diff SET status = CASE WHEN f.parked THEN 'parked' ELSE 'waiting' END,
  message = CASE WHEN f.parked THEN 'parked after ' ELSE 'tried again from ' || @minute(f.retry_at) || ' on, after ' END
    || CAST(f.failures AS TEXT) || CASE f.failures WHEN 1 THEN ' failure: ' ELSE ' failures: ' END || f.message
FROM item_failure f
WHERE f.ledger_id = :ledger_id AND (f.parked OR f.retry_at > :now) AND diff.kind = f.kind
  AND diff.organization_id = f.organization_id AND diff.container_id = f.container_id AND diff.item_id = f.item_id
  AND f.deleting = (diff.aspects = {gone}) AND diff.cover_kind = '' AND diff.status = 'planned'
  AND f.fingerprint = {fingerprint} AND NOT ({retried})
"""

# Sorts keys alone, so that sorted rows are short. Rows get their numbers in this order.
_ORDER = """
INSERT INTO ordered_diff (kind, organization_id, container_id, item_id, aspect, scope)
SELECT y.kind, y.organization_id, y.container_id, y.item_id, y.aspect, y.scope
FROM (
  SELECT s.kind, s.organization_id, s.container_id, s.item_id, s.depth, r.aspect, r.phase, r.operation,
    CASE r.scope_form
      WHEN 'none' THEN '[]'
      WHEN 'disabled' THEN CASE WHEN s.disabled THEN '[true]' ELSE '[false]' END
      WHEN 'organization' THEN '[' || @json(s.organization_id) || ']'
      WHEN 'container' THEN '[' || @json(s.organization_id) || ',' || CASE s.kind
        WHEN 'folderUser' THEN '"folder"' WHEN 'documentUser' THEN '"document"' ELSE '"group"' END
        || ',' || @json(s.container_id) || ']'
      WHEN 'parent' THEN '[' || @json(s.organization_id) || ',' || @json(s.parent_id) || ']'
      WHEN 'access' THEN '[' || @json(s.organization_id) || ',' || @json(s.access_type) || ']'
      ELSE '[' || @json(s.organization_id) || ',' || @json(s.item_id) || ']'
    END AS scope
  FROM diff s CROSS JOIN rule r WHERE r.kind = s.kind AND (s.aspects & r.aspect) <> 0
) y
ORDER BY y.phase, y.operation @bytes, y.kind @bytes, y.scope @bytes, y.depth, y.organization_id @bytes,
  y.container_id @bytes, y.item_id @bytes
"""

_ITEMS = """
INSERT INTO plan_item (plan_id, ordinal, phase, action, kind, organization_id, container_id, item_id, operation, scope,
  digest, parent_id, access_type, access_role, disabled, payload, reason, covered_by, status, message, in_force,
  was)
SELECT :plan_id, n.ordinal, r.phase, r.action, s.kind, s.organization_id, s.container_id, s.item_id, r.operation,
  n.scope, s.digest, s.parent_id, s.access_type, s.access_role, s.disabled,
  -- payload: the fields of the record; those of a user for all kinds of users
  CASE WHEN NOT r.sends_payload THEN ''
    WHEN s.kind = 'organization' THEN (
      SELECT a.payload FROM model_organization a WHERE a.organization_id = s.organization_id)
    WHEN s.kind = 'folder' THEN (
      SELECT a.payload FROM model_folder a WHERE a.organization_id = s.organization_id AND a.folder_id = s.item_id)
    WHEN s.kind = 'document' THEN (
      SELECT a.payload FROM model_document a
      WHERE a.organization_id = s.organization_id AND a.document_id = s.item_id)
    WHEN s.kind = 'group' THEN (
      SELECT a.payload FROM model_group a
      WHERE a.organization_id = s.organization_id AND a.organization_user_group_id = s.item_id)
    ELSE (SELECT a.payload FROM model_user a WHERE a.user_id = s.item_id) END,
  -- reason: the sentence of the rule, and why; of deletes, and of items that nobody holds, why alone
  CASE WHEN s.why <> '' AND (r.action = 'delete' OR s.container_id = '' AND s.kind <> 'organizationUser') THEN s.why
    ELSE REPLACE(REPLACE(r.sentence, '{state}', CASE WHEN s.disabled THEN 'disabled' ELSE 'enabled' END), '{holder}',
      CASE WHEN s.kind = 'groupMember'
        THEN CASE WHEN s.via = '' THEN 'a member by name' ELSE 'a member of group ' || s.via || ', which is in it' END
        WHEN s.via = '' THEN 'the user by name' ELSE 'group ' || s.via END)
    || CASE WHEN s.why = '' THEN '' ELSE '; ' || s.why END END,
  -- covered_by, which _COVERED_BY sets
  NULL, s.status, s.message,
  -- in_force: of an add without a separate item for the access type, the state or the folder
  CASE WHEN r.operation = 'add_organizations' OR r.operation = 'add_folder' AND (s.aspects & {access}) = 0
      OR r.operation = 'add_documents' AND (s.aspects & {parent}) = 0
    THEN COALESCE((
      SELECT d.in_force FROM desired d WHERE d.kind = s.kind AND d.organization_id = s.organization_id
        AND d.container_id = s.container_id AND d.item_id = s.item_id), '')
    ELSE '' END,
  -- was: the former state as JSON, of updates of confirmed items
  CASE WHEN r.action <> 'update' THEN '' ELSE COALESCE((
    SELECT '{"parentId":' || @json(l.parent_id) || ',"accessType":' || @json(l.access_type)
      || ',"accessRole":' || @json(l.access_role) || ',"disabled":' || CASE WHEN l.disabled THEN 'true' ELSE 'false' END
      || CASE WHEN l.digest = s.digest THEN '' ELSE ',"fields":' || COALESCE((
        SELECT f.payload FROM former_payload f
        WHERE f.kind = CASE WHEN s.kind IN ('organization', 'folder', 'document') THEN s.kind ELSE 'user' END
          AND f.organization_id = CASE WHEN s.kind IN ('folder', 'document') THEN s.organization_id ELSE '' END
          AND f.item_id = s.item_id AND f.digest = l.digest), 'null') END || '}'
    FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind = s.kind AND l.organization_id = s.organization_id
      AND l.container_id = s.container_id AND l.item_id = s.item_id AND l.certain), '') END
FROM ordered_diff n CROSS JOIN diff s CROSS JOIN rule r
WHERE s.kind = n.kind AND s.organization_id = n.organization_id AND s.container_id = n.container_id
  AND s.item_id = n.item_id AND r.kind = n.kind AND r.aspect = n.aspect
ORDER BY n.ordinal
"""

_COVERED_BY = """
UPDATE plan_item SET covered_by = coverer.ordinal,
  reason = 'goes along with ' || coverer.kind || ' ' || coverer.item_id || ', which is gone from the directory'
FROM diff s CROSS JOIN plan_item AS coverer
WHERE s.aspects = {gone} AND s.cover_kind <> '' AND coverer.plan_id = :plan_id AND coverer.kind = s.cover_kind
  AND coverer.organization_id = s.organization_id AND coverer.container_id = '' AND coverer.item_id = s.cover_id
  AND coverer.action = 'delete' AND plan_item.plan_id = :plan_id AND plan_item.kind = s.kind
  AND plan_item.organization_id = s.organization_id AND plan_item.container_id = s.container_id
  AND plan_item.item_id = s.item_id
"""


def find_diffs(
    connection: Connection,
    parameters: dict[str, object],
    selection: Selection,
    limits: LimitSettings | None,
    retry: Retry | None,
    *,
    store_gone: bool,
) -> tuple[Hold, ...]:
    """Fills ``diff`` with the differences between ``desired`` and the ledger, and returns the holds of the limits."""
    create_temporary(connection, "diff")
    if parameters["approving"] is None:
        analyze(connection, "diff", rows=run(connection, _DIFFERENCES, parameters, **ASPECT_BITS).rowcount)
    deletes = find_deletes(connection, parameters, selection, store_gone=store_gone)
    if store_gone:
        forget_discarded(connection, parameters)
    _postpone_failed(connection, parameters, retry)
    if not deletes:
        return ()
    if limits is not None:
        skip_discarded(connection, parameters)
    follow_coverers(connection)
    holds = hold_deletes(connection, parameters, limits) if limits else ()
    if restore_after_deletes(connection):
        _postpone_failed(connection, parameters, retry)
    return holds


def _postpone_failed(connection: Connection, parameters: dict[str, object], retry: Retry | None) -> None:
    retried = "FALSE"
    if retry is not None:
        parameters = parameters | {
            "retry_kinds": json_list(retry.kinds or ITEM_KINDS),
            "selected_items": json_lists(retry.items),
        }
        is_selected = IS_SELECTED.replace("{row}", "f") if retry.items else "TRUE"
        retried = f"f.kind IN (@list(retry_kinds)) AND {is_selected}"
    fingerprint = FINGERPRINT.replace("{row}", "diff")
    run(connection, _FAILED_BEFORE, parameters, fingerprint=fingerprint, retried=retried, **ASPECT_BITS)


def write_items(connection: Connection, parameters: dict[str, object]) -> None:
    """Writes the items of the plan from ``diff``."""
    create_temporary(connection, "rule", "ordered_diff")
    run(
        connection,
        "INSERT INTO rule VALUES (:kind, :aspect, :action, :phase, :operation, :scope_form, :sentence, :payload)",
        [
            {
                "kind": rule.kind.value,
                "aspect": int(rule.aspect),
                "action": rule.action.value,
                "phase": int(rule.phase),
                "operation": rule.operation,
                "scope_form": rule.scope.value,
                "sentence": rule.reason,
                "payload": rule.sends_payload,
            }
            for rule in RULES
        ],
    )
    run(connection, _ORDER)
    run(connection, _ITEMS, parameters, **ASPECT_BITS)
    covered: int = run(connection, "SELECT COUNT(*) FROM diff WHERE cover_kind <> ''").scalar_one()
    if covered:
        # Another plan that is made at the same time waits for the end of this one.
        analyze(connection, "plan_item", rows=covered)
        run(connection, _COVERED_BY, parameters, **ASPECT_BITS)
