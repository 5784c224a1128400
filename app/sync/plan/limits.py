"""The limits: how much a plan may delete without an operator's approval.

The rules: ``app/sync/plan/README.md``, "Limits".
"""

from sqlalchemy import Connection

from app.foundation.database.statements import run
from app.sync.plan.deletes import follow_coverers
from app.sync.plan.rules import ASPECT_BITS
from app.sync.plan.settings import LimitSettings
from app.sync.plan.stored import MAX_HOLDS, Hold

_TALLY_TABLE = """
CREATE TEMPORARY TABLE tally (
  kind TEXT NOT NULL, organization_id TEXT NOT NULL,
  own INTEGER NOT NULL, below INTEGER NOT NULL, ledger BIGINT, reason TEXT NOT NULL,
  PRIMARY KEY (kind, organization_id)
) @keyed
"""

_PAIR_TABLE = """
CREATE TEMPORARY TABLE covered_pair (
  kind TEXT NOT NULL, organization_id TEXT NOT NULL, cover_kind TEXT NOT NULL, cover_organization_id TEXT NOT NULL,
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

# The percentage does not apply below 10 items, so few deletes need no count of the ledger.
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

NOUNS = {
    "organization": ("organization", "organizations"),
    "folder": ("folder", "folders"),
    "document": ("document", "documents"),
    "group": ("group", "groups"),
    "organizationUser": ("organization user", "organization users"),
    "folderUser": ("folder user", "folder users"),
    "documentUser": ("document user", "document users"),
    "groupMember": ("group member", "group members"),
}
"""Kind → singular and plural."""


def noun_of(kind: str, number: int = 2) -> str:
    """The noun for a number of items of a kind."""
    one, many = NOUNS.get(kind, (kind, kind))
    return one if number == 1 else many


def _noun(kind: str, number: str) -> str:
    """An SQL expression for the noun. ``kind`` and ``number`` are columns."""
    cases = " ".join(
        f"WHEN '{name}' THEN CASE {number} WHEN 1 THEN '{one}' ELSE '{many}' END" for name, (one, many) in NOUNS.items()
    )
    return f"CASE {kind} {cases} END"


# The sentence is for an operator who approves deletes: it separates items of the kind from covered ones.
_OVER = """
UPDATE tally SET reason = CASE
  WHEN own + below > :count THEN CAST(own AS TEXT) || ' ' || {own_noun}
    || CASE below WHEN 0 THEN '' ELSE ' and ' || CAST(below AS TEXT) || CASE below WHEN 1 THEN ' item' ELSE ' items' END
      || ' in ' || CASE own WHEN 1 THEN 'it' ELSE 'them' END END
    || ' would be deleted' || CASE below WHEN 0 THEN '' ELSE ', ' || CAST(own + below AS TEXT) || ' in all' END
    || ', over sync.limits.delete_count (' || CAST(:count AS TEXT) || ')'
  ELSE CAST(own AS TEXT) || ' of ' || CAST(ledger AS TEXT) || ' ' || {ledger_noun}
    || ' would be deleted, over sync.limits.delete_percent (' || CAST(:percent_text AS TEXT) || ' %)'
  END || '{what_to_do}'
WHERE own + below > :count OR (ledger >= 10 AND own * 100 > :percent * ledger)
"""

_ASK_FOR_ORGANIZATIONS = """
UPDATE tally SET reason = CAST(own AS TEXT) || ' ' || {own_noun}
  || CASE below WHEN 0 THEN '' ELSE ' and ' || CAST(below AS TEXT) || CASE below WHEN 1 THEN ' item' ELSE ' items' END
    || ' in ' || CASE own WHEN 1 THEN 'it' ELSE 'them' END END
  || ' would be deleted; deleting an organization always asks, whatever sync.limits allow{what_to_do}'
WHERE kind = 'organization' AND reason = ''
"""

_SPREAD = """
UPDATE tally SET reason = CAST(tally.own AS TEXT) || ' ' || {own_noun} || ' would take along '
  || CAST(found.items AS TEXT) || ' ' || {found_noun} || ' that '
  || CASE found.items WHEN 1 THEN 'is' ELSE 'are' END || ' held' || '{what_to_do}'
FROM (
  SELECT cover_kind, cover_organization_id, kind, items, ROW_NUMBER() OVER (
      PARTITION BY cover_kind, cover_organization_id ORDER BY items DESC, kind @bytes
    ) AS nth
  FROM (
    SELECT c.cover_kind, c.cover_organization_id, c.kind, SUM(c.items) AS items
    FROM covered_pair c CROSS JOIN tally t
    WHERE t.kind = c.kind AND t.organization_id = c.organization_id AND t.reason <> ''
    GROUP BY c.cover_kind, c.cover_organization_id, c.kind
  ) AS held
) AS found
WHERE found.nth = 1 AND tally.kind = found.cover_kind
  AND tally.organization_id = found.cover_organization_id AND tally.reason = ''
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
SELECT kind, organization_id, own AS deletes, below AS contained, ledger AS in_ledger, reason
FROM tally WHERE reason <> ''
ORDER BY organization_id @bytes, kind @bytes LIMIT :limit
"""


def hold_deletes(connection: Connection, parameters: dict[str, object], limits: LimitSettings) -> tuple[Hold, ...]:
    """Marks deletes in ``step`` over a limit as held. Returns the first ``MAX_HOLDS`` holds."""
    parameters = parameters | {
        "count": limits.delete_count,
        "percent": limits.delete_percent,
        "percent_text": f"{limits.delete_percent:g}",
        "limit": MAX_HOLDS,
    }
    for template in (_TALLY_TABLE, _PAIR_TABLE, _PAIRS, _TALLY):
        run(connection, template, parameters, **ASPECT_BITS)
    run(connection, _COUNT_LEDGER, parameters, which=_NEEDS_PERCENT)
    words = {
        "own_noun": _noun("tally.kind", "tally.own"),
        "ledger_noun": _noun("tally.kind", "tally.ledger"),
        "found_noun": _noun("found.kind", "found.items"),
        "what_to_do": ": approve or discard the run that holds them",
    }
    held = run(connection, _OVER, parameters, **words).rowcount
    while held and run(connection, _SPREAD, parameters, **words).rowcount:
        pass
    held += run(connection, _ASK_FOR_ORGANIZATIONS, **words).rowcount
    if not held:
        return ()
    run(connection, _COUNT_LEDGER, parameters, which="reason <> '' AND ledger IS NULL")
    run(connection, _HOLD, parameters, **ASPECT_BITS)
    follow_coverers(connection)
    return tuple(Hold(**row._asdict()) for row in run(connection, _HOLDS, parameters))
