"""The limits: how much a plan may delete without an operator's approval.

The rules: ``app/sync/plan/README.md``, "Limits".
"""

from typing import Any

from sqlalchemy import Connection, Row

from app.foundation.database.statements import run
from app.foundation.text import are
from app.sync.ledger.items import noun_of
from app.sync.plan.deletes import follow_coverers
from app.sync.plan.rules import ASPECT_BITS
from app.sync.plan.settings import LimitSettings
from app.sync.plan.stored import MAX_HOLDS, Hold
from app.sync.plan.tables import create_temporary

# The columns of `tally`. `own`: deletes of the kind; `below`: items of other kinds that they cover; `ledger`: items of
# the kind in the ledger, NULL until counted; `exceeded`: the `limit` of their `Hold`, empty if they are not held;
# `held_kind`, `held_items`: held items that they cover; `reason`: why they are held.

_PAIRS = """
INSERT INTO covered_pair
SELECT kind, organization_id, cover_kind, CASE cover_kind WHEN 'organization' THEN '' ELSE organization_id END, COUNT(*)
FROM diff WHERE aspects = {gone} AND status = 'planned' AND cover_kind <> ''
GROUP BY kind, organization_id, cover_kind
"""

_TALLY = """
INSERT INTO tally
SELECT own.kind, own.organization_id, own.items,
  COALESCE((
    SELECT SUM(c.items) FROM covered_pair c
    WHERE c.cover_kind = own.kind AND c.kind <> own.kind AND c.cover_organization_id = own.organization_id
      AND own.kind IN ('folder', 'organization')), 0),
  NULL, '', '', 0, ''
FROM (
  SELECT kind, CASE kind WHEN 'organization' THEN '' ELSE organization_id END AS organization_id, COUNT(*) AS items
  FROM diff WHERE aspects = {gone} AND status = 'planned' GROUP BY 1, 2
) own
"""

_COUNT_LEDGER = """
UPDATE tally SET ledger = CASE tally.kind
  WHEN 'organization' THEN (
    SELECT COUNT(*) FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind = 'organization')
  ELSE (
    SELECT COUNT(*) FROM ledger_item l
    WHERE l.ledger_id = :ledger_id AND l.kind = tally.kind AND l.organization_id = tally.organization_id) END
WHERE {which}
"""

_MIN_LEDGER = 10
"""The percentage applies to kinds with at least that many items in the ledger of an organization."""

# With fewer items in the ledger the percentage does not apply, so few deletes need no count of the ledger.
_NEEDS_PERCENT = "own * 100 > :percent * :min_ledger"

_OVER = """
UPDATE tally SET exceeded = CASE WHEN own + below > :count THEN 'delete_count' ELSE 'delete_percent' END
WHERE own + below > :count OR (ledger >= :min_ledger AND own * 100 > :percent * ledger)
"""

_ASK_FOR_ORGANIZATIONS = "UPDATE tally SET exceeded = 'organization' WHERE kind = 'organization' AND exceeded = ''"

_SPREAD = """
UPDATE tally SET exceeded = 'covers_held', held_kind = found.kind, held_items = found.items
FROM (
  SELECT cover_kind, cover_organization_id, kind, items, ROW_NUMBER() OVER (
      PARTITION BY cover_kind, cover_organization_id ORDER BY items DESC, kind @bytes
    ) AS nth
  FROM (
    SELECT c.cover_kind, c.cover_organization_id, c.kind, SUM(c.items) AS items
    FROM covered_pair c CROSS JOIN tally t
    WHERE t.kind = c.kind AND t.organization_id = c.organization_id AND t.exceeded <> ''
    GROUP BY c.cover_kind, c.cover_organization_id, c.kind
  ) AS held
) AS found
WHERE found.nth = 1 AND tally.kind = found.cover_kind
  AND tally.organization_id = found.cover_organization_id AND tally.exceeded = ''
"""

_HELD = """
SELECT kind, organization_id, own, below, ledger, exceeded, held_kind, held_items
FROM tally WHERE exceeded <> '' ORDER BY organization_id @bytes, kind @bytes
"""

_SET_REASON = "UPDATE tally SET reason = :reason WHERE kind = :kind AND organization_id = :organization_id"

_HOLD = """
UPDATE diff SET status = 'held', message = t.reason FROM tally t
WHERE diff.aspects = {gone} AND diff.status = 'planned' AND t.exceeded <> '' AND t.kind = diff.kind
  AND t.organization_id = CASE diff.kind WHEN 'organization' THEN '' ELSE diff.organization_id END
"""


def hold_deletes(connection: Connection, parameters: dict[str, object], limits: LimitSettings) -> tuple[Hold, ...]:
    """Marks deletes in ``diff`` over a limit as held. Returns the first ``MAX_HOLDS`` holds."""
    values = {"count": limits.delete_count, "percent": limits.delete_percent, "min_ledger": _MIN_LEDGER}
    parameters = parameters | values
    create_temporary(connection, "tally", "covered_pair")
    run(connection, _PAIRS, **ASPECT_BITS)
    run(connection, _TALLY, **ASPECT_BITS)
    run(connection, _COUNT_LEDGER, parameters, which=_NEEDS_PERCENT)
    held = run(connection, _OVER, parameters).rowcount
    while held and run(connection, _SPREAD).rowcount:
        pass
    held += run(connection, _ASK_FOR_ORGANIZATIONS).rowcount
    if not held:
        return ()
    run(connection, _COUNT_LEDGER, parameters, which="exceeded <> '' AND ledger IS NULL")
    holds = [_hold(row, limits) for row in run(connection, _HELD)]
    reasons = [{"kind": hold.kind, "organization_id": hold.organization_id, "reason": hold.reason} for hold in holds]
    run(connection, _SET_REASON, reasons)
    run(connection, _HOLD, parameters, **ASPECT_BITS)
    follow_coverers(connection)
    return tuple(holds[:MAX_HOLDS])


def _hold(row: Row[*tuple[Any, ...]], limits: LimitSettings) -> Hold:
    allowed = {"delete_count": limits.delete_count, "delete_percent": limits.delete_percent}
    return Hold(
        kind=row.kind,
        organization_id=row.organization_id,
        deletes=row.own,
        contained=row.below,
        in_ledger=row.ledger,
        limit=row.exceeded,
        allowed=allowed.get(row.exceeded),
        reason=f"{_reason(row, limits)}: approve the deletes, or keep the items in the backend",
    )


def _reason(row: Row[*tuple[Any, ...]], limits: LimitSettings) -> str:
    """The sentence for an operator who approves deletes. It separates items of the kind from covered ones."""
    own = f"{row.own} {noun_of(row.kind, row.own)}"
    if row.exceeded == "covers_held":
        held = f"{row.held_items} {noun_of(row.held_kind, row.held_items)}"
        return f"{own} would take along {held} that {are(row.held_items)} held"
    if row.exceeded == "delete_percent":
        of = f"{row.ledger} {noun_of(row.kind, row.ledger)}"
        return f"{row.own} of {of} would be deleted, over sync.limits.delete_percent ({limits.delete_percent:g} %)"
    if row.below:
        own += f" and {row.below} {'item' if row.below == 1 else 'items'} in {'it' if row.own == 1 else 'them'}"
    if row.exceeded == "organization":
        return f"{own} would be deleted; deleting an organization always asks, whatever sync.limits allow"
    total = f", {row.own + row.below} in all" if row.below else ""
    return f"{own} would be deleted{total}, over sync.limits.delete_count ({limits.delete_count})"
