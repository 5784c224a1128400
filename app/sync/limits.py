"""How much may a plan delete without being asked?

Deletes are tallied per kind within each organization; organizations themselves across the ledger. Over
``delete_count``, or over ``delete_percent`` of what the ledger holds of that kind there (when that is at least 10
items), all deletes of that kind and organization are held. To the count of folders and of organizations everything
below them is added. Deletes that wait or are parked do not count.

An item that goes along with another's delete counts among its own kind, too. When its kind is held, the deletes that
would take it along are held as well, all of their kind and organization, and with a held delete everything that it
covers.
"""

from sqlalchemy import Connection

from app.store.plans import MAX_HOLDS, Hold
from app.store.statements import run
from app.sync.deletes import follow_coverers
from app.sync.kinds import Aspect
from app.sync.settings import LimitSettings

_TALLY_TABLE = """
CREATE TEMPORARY TABLE tally (
  kind TEXT NOT NULL,
  organization_id TEXT NOT NULL,
  own INTEGER NOT NULL,
  below INTEGER NOT NULL,
  ledger BIGINT,
  reason TEXT NOT NULL,
  PRIMARY KEY (kind, organization_id)
) @keyed
"""

_PAIR_TABLE = """
CREATE TEMPORARY TABLE covered_pair (
  kind TEXT NOT NULL,
  organization_id TEXT NOT NULL,
  cover_kind TEXT NOT NULL,
  cover_organization_id TEXT NOT NULL,
  items INTEGER NOT NULL,
  PRIMARY KEY (kind, organization_id, cover_kind)
) @keyed
"""

_PAIRS = """
INSERT INTO covered_pair
SELECT kind, organization_id, cover_kind, CASE cover_kind WHEN 'organization' THEN '' ELSE organization_id END, COUNT(*)
FROM step WHERE aspects = {gone} AND status = 'planned' AND cover_kind <> ''
GROUP BY kind, organization_id, cover_kind
"""

_TALLY = """
INSERT INTO tally
SELECT own.kind, own.organization_id, own.items,
  COALESCE((
    SELECT SUM(c.items) FROM covered_pair c
    WHERE c.cover_kind = own.kind AND c.kind <> own.kind AND c.cover_organization_id = own.organization_id
      AND own.kind IN ('folder', 'organization')), 0),
  NULL, ''
FROM (
  SELECT kind, CASE kind WHEN 'organization' THEN '' ELSE organization_id END AS organization_id, COUNT(*) AS items
  FROM step WHERE aspects = {gone} AND status = 'planned' GROUP BY 1, 2
) own
"""

# Below 10 items the percentage does not count, so few deletes need no counting of the ledger.
_COUNT_LEDGER = """
UPDATE tally SET ledger = CASE tally.kind
  WHEN 'organization' THEN (
    SELECT COUNT(*) FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind = 'organization')
  ELSE (
    SELECT COUNT(*) FROM ledger_item l
    WHERE l.ledger_id = :ledger_id AND l.kind = tally.kind AND l.organization_id = tally.organization_id) END
WHERE {which}
"""

_NEEDS_PERCENT = "own * 100 > :percent * 10"

_OVER = """
UPDATE tally SET reason = CASE
  WHEN own + below > :count THEN CAST(own + below AS TEXT) || ' deletes, the limit is ' || CAST(:count AS TEXT)
    || CASE WHEN below > 0 THEN ' (with what is below them)' ELSE '' END
  ELSE CAST(own AS TEXT) || ' of ' || CAST(ledger AS TEXT) || ' would be deleted, the limit is '
    || CAST(:percent_text AS TEXT) || ' %' END
WHERE own + below > :count OR (ledger >= 10 AND own * 100 > :percent * ledger)
"""

_SPREAD = """
UPDATE tally SET reason = 'would take along what is held: ' || found.kind
FROM (
  SELECT c.cover_kind, c.cover_organization_id, MIN(c.kind) AS kind
  FROM covered_pair c CROSS JOIN tally t
  WHERE t.kind = c.kind AND t.organization_id = c.organization_id AND t.reason <> ''
  GROUP BY c.cover_kind, c.cover_organization_id
) AS found
WHERE tally.kind = found.cover_kind AND tally.organization_id = found.cover_organization_id AND tally.reason = ''
"""

_HOLD = """
UPDATE step SET status = 'held', message = (
  SELECT t.reason FROM tally t WHERE t.kind = step.kind
    AND t.organization_id = CASE step.kind WHEN 'organization' THEN '' ELSE step.organization_id END)
WHERE aspects = {gone} AND status = 'planned' AND EXISTS (
  SELECT 1 FROM tally t WHERE t.kind = step.kind AND t.reason <> ''
    AND t.organization_id = CASE step.kind WHEN 'organization' THEN '' ELSE step.organization_id END)
"""

_HOLDS = """
SELECT kind, organization_id, own + below, ledger, reason FROM tally WHERE reason <> ''
ORDER BY organization_id @bytes, kind @bytes LIMIT :limit
"""


def hold_deletes(connection: Connection, ledger_id: int, limits: LimitSettings) -> tuple[Hold, ...]:
    """Marks the deletes in ``step`` that are over a limit as held, and gives the numbers (the first ``MAX_HOLDS``)."""
    gone = str(int(Aspect.GONE))
    percent = limits.delete_percent
    parameters: dict[str, object] = {
        "ledger_id": ledger_id,
        "count": limits.delete_count,
        "percent": percent,
        "percent_text": f"{percent:g}",
        "limit": MAX_HOLDS,
    }
    for template in (_TALLY_TABLE, _PAIR_TABLE, _PAIRS, _TALLY):
        run(connection, template, parameters, gone=gone)
    run(connection, _COUNT_LEDGER, parameters, which=_NEEDS_PERCENT)
    if not run(connection, _OVER, parameters).rowcount:
        return ()
    while run(connection, _SPREAD, parameters).rowcount:
        pass
    run(connection, _COUNT_LEDGER, parameters, which="reason <> '' AND ledger IS NULL")
    run(connection, _HOLD, parameters, gone=gone)
    follow_coverers(connection)
    return tuple(
        Hold(kind=kind, organization_id=organization_id, deletes=deletes, ledger=ledger, reason=reason)
        for kind, organization_id, deletes, ledger, reason in run(connection, _HOLDS, parameters)
    )
