"""Finds the deletes of a plan: items that are in the ledger and no longer desired.

The rules: ``app/sync/plan/README.md``, "Deletes, and what goes along".

``ledger_item.gone_at`` is the time at which a plan first found an item gone. Desired contents of a deleted container
are moved in an earlier phase, which ``app.sync.plan.dependencies`` checks before the delete is sent."""

from sqlalchemy import Connection

from app.foundation.database.statements import run
from app.sync.ledger.items import CONTAINERS, USER_KINDS, Kind
from app.sync.plan.desired import containers
from app.sync.plan.reasons import why_gone
from app.sync.plan.rules import Aspect
from app.sync.plan.selection import Selection

_GONE = """
INSERT INTO step
SELECT l.kind, l.organization_id, l.container_id, l.item_id, {gone}, 0, l.digest, l.parent_id, l.access_type,
  l.access_role, l.disabled, '',
  CASE WHEN p.cover_kind <> '' THEN p.cover_kind WHEN p.kind <> '' THEN p.kind
       WHEN o.kind <> '' THEN o.kind ELSE '' END,
  CASE WHEN p.cover_kind <> '' THEN p.cover_id WHEN p.kind <> '' THEN p.item_id
       WHEN o.kind <> '' THEN o.item_id ELSE '' END,
  CASE WHEN COALESCE(l.gone_at, :now) > :grace_since THEN 'waiting' ELSE 'planned' END,
  CASE WHEN COALESCE(l.gone_at, :now) > :grace_since THEN 'kept for the grace period, until '
    || @minute(COALESCE(l.gone_at, :now) + :now - :grace_since) ELSE '' END,
  {why}
FROM {ledger}
LEFT JOIN step o ON o.kind = 'organization' AND o.organization_id = l.organization_id AND o.container_id = ''
  AND o.item_id = l.organization_id AND o.aspects = {gone} AND l.kind <> 'organization'
LEFT JOIN step p ON p.kind = '{container_kind}' AND p.organization_id = l.organization_id AND p.container_id = ''
  AND p.item_id = l.{container_column} AND p.aspects = {gone} AND (l.certain OR l.kind <> 'document')
WHERE l.ledger_id = :ledger_id AND l.kind = '{kind}' AND {within}
  AND NOT EXISTS (
    SELECT 1 FROM desired d WHERE d.kind = l.kind AND d.organization_id = l.organization_id
      AND d.container_id = l.container_id AND d.item_id = l.item_id)
  AND NOT EXISTS (
    SELECT 1 FROM model_organization a WHERE a.organization_id = l.organization_id AND a.disabled)
  AND {approved}
ORDER BY l.organization_id, l.container_id, l.item_id
"""

_WAS_HELD = """EXISTS (
    SELECT 1 FROM plan_item h WHERE h.plan_id = :approving AND h.kind = l.kind
      AND h.organization_id = l.organization_id AND h.container_id = l.container_id AND h.item_id = l.item_id
      AND h.action = 'delete' AND h.status = 'held')"""

# Downwards from each gone folder whose parent is not gone, or that may be elsewhere, as long as the folders below are
# gone and confirmed to be there.
_FOLDER_CHAINS = """
UPDATE step SET cover_kind = 'folder', cover_id = chain.top
FROM (
  WITH RECURSIVE chain (organization_id, item_id, top) AS (
    SELECT s.organization_id, s.item_id, s.item_id FROM step s CROSS JOIN ledger_item l
    WHERE s.kind = 'folder' AND s.aspects = {gone} AND s.cover_kind = '' AND l.ledger_id = :ledger_id
      AND l.kind = 'folder' AND l.organization_id = s.organization_id AND l.container_id = '' AND l.item_id = s.item_id
      AND (NOT l.certain OR NOT EXISTS (
        SELECT 1 FROM step p WHERE p.kind = 'folder' AND p.organization_id = s.organization_id
          AND p.container_id = '' AND p.item_id = s.parent_id AND p.aspects = {gone}))
    UNION ALL
    SELECT c.organization_id, c.item_id, chain.top
    FROM chain CROSS JOIN ledger_item c CROSS JOIN step s
    WHERE c.ledger_id = :ledger_id AND c.organization_id = chain.organization_id AND c.kind = 'folder'
      AND c.parent_id = chain.item_id AND c.certain AND s.kind = 'folder' AND s.organization_id = c.organization_id
      AND s.container_id = '' AND s.item_id = c.item_id AND s.aspects = {gone}
  )
  SELECT organization_id, item_id, top FROM chain WHERE item_id <> top
) AS chain
WHERE step.kind = 'folder' AND step.organization_id = chain.organization_id AND step.container_id = ''
  AND step.item_id = chain.item_id
"""

_COVERERS_WAIT = """
UPDATE step SET status = 'waiting', message = 'something in it is kept for the grace period'
FROM (
  SELECT DISTINCT cover_kind, organization_id, cover_id FROM step
  WHERE aspects = {gone} AND status = 'waiting' AND cover_kind <> ''
) AS covered
WHERE step.kind = covered.cover_kind AND step.organization_id = covered.organization_id AND step.container_id = ''
  AND step.item_id = covered.cover_id AND step.status = 'planned'
"""

_FOLLOW = """
UPDATE step SET status = coverer.status, message = coverer.message
FROM step AS coverer
WHERE step.aspects = {gone} AND step.cover_kind <> '' AND coverer.kind = step.cover_kind
  AND coverer.organization_id = step.organization_id AND coverer.container_id = ''
  AND coverer.item_id = step.cover_id AND coverer.status <> step.status
"""

# All of these rows exist: this is an update by key, for which SQLite starts from `step`.
_MARK_GONE = """
INSERT INTO ledger_item (ledger_id, kind, organization_id, container_id, item_id, digest, parent_id, access_type,
  access_role, disabled, certain, gone_at)
SELECT l.ledger_id, l.kind, l.organization_id, l.container_id, l.item_id, l.digest, l.parent_id, l.access_type,
  l.access_role, l.disabled, l.certain, :now
FROM step s CROSS JOIN ledger_item l
WHERE s.aspects = {gone} AND l.ledger_id = :ledger_id AND l.kind = s.kind AND l.organization_id = s.organization_id
  AND l.container_id = s.container_id AND l.item_id = s.item_id AND l.gone_at IS NULL
ON CONFLICT (ledger_id, kind, organization_id, container_id, item_id) DO UPDATE SET gone_at = excluded.gone_at
"""

_MARK_DESIRED = """
UPDATE ledger_item SET gone_at = NULL
WHERE ledger_id = :ledger_id AND gone_at IS NOT NULL AND EXISTS (
  SELECT 1 FROM desired d WHERE d.kind = ledger_item.kind AND d.organization_id = ledger_item.organization_id
    AND d.container_id = ledger_item.container_id AND d.item_id = ledger_item.item_id)
"""

_RESTORE = """
INSERT INTO step
SELECT d.kind, d.organization_id, d.container_id, d.item_id, {restored}, d.depth, d.digest, d.parent_id, d.access_type,
  d.access_role, d.disabled, d.via, '', '', 'planned', '', ''
FROM desired d
WHERE d.kind IN ('folderUser', 'documentUser', 'groupMember') AND EXISTS (
  SELECT 1 FROM step s WHERE s.kind = 'organizationUser' AND s.organization_id = d.organization_id
    AND s.container_id = '' AND s.item_id = d.item_id AND s.aspects = {gone} AND s.status = 'planned')
ORDER BY d.kind, d.organization_id, d.container_id, d.item_id
ON CONFLICT (kind, organization_id, container_id, item_id) DO UPDATE SET aspects = {restored}
"""

_GONE_BIT = str(int(Aspect.GONE))


def find_deletes(
    connection: Connection, parameters: dict[str, object], selection: Selection, *, approving: bool, store_gone: bool
) -> int:
    """Adds items that are gone to ``step``, with their coverers and whether they wait. Returns their number.

    ``approving``: only those that the plan of the parameter ``approving`` held. ``store_gone``: stores ``gone_at``.
    ``parameters``: ledger_id, now and grace_since (epoch milliseconds), organization_ids and user_ids (JSON lists), and
    approving (the id of a plan).
    """
    found = 0
    for kind in USER_KINDS if selection.user_ids else Kind:
        found += run(
            connection,
            _GONE,
            parameters,
            gone=_GONE_BIT,
            kind=kind.value,
            container_kind=_container_kind(kind),
            container_column="parent_id" if kind is Kind.DOCUMENT else "container_id",
            why=why_gone(kind, containers(selection)),
            ledger=_ledger(selection),
            within=_within(selection),
            approved=_WAS_HELD if approving else "TRUE",
        ).rowcount
        if kind is Kind.FOLDER and found:
            run(connection, _FOLDER_CHAINS, parameters, gone=_GONE_BIT)
    if store_gone:
        run(connection, _MARK_DESIRED, parameters)
        if found:
            run(connection, _MARK_GONE, parameters, gone=_GONE_BIT)
    if found:
        run(connection, _COVERERS_WAIT, gone=_GONE_BIT)
        follow_coverers(connection)
    return found


def follow_coverers(connection: Connection) -> None:
    """Copies the status of coverers to the items that they cover."""
    run(connection, _FOLLOW, gone=_GONE_BIT)


def restore_after_deletes(connection: Connection) -> int:
    """Adds the entries again that the deletes of organization users remove. Returns their number.

    The backend removes such a user from all folders, documents and groups of the organization. Other adds and updates
    of the user's entries move to the same later phase."""
    return run(connection, _RESTORE, gone=_GONE_BIT, restored=str(int(Aspect.RESTORED))).rowcount


def _container_kind(kind: Kind) -> str:
    container = Kind.FOLDER if kind is Kind.DOCUMENT else CONTAINERS.get(kind)
    return container.value if container else ""


def _ledger(selection: Selection) -> str:
    """The tables of the search. It begins with the selected users, to read only their items."""
    return "(@list(user_ids)) AS wanted CROSS JOIN ledger_item l" if selection.user_ids else "ledger_item l"


def _within(selection: Selection) -> str:
    if not selection.user_ids:
        return "l.organization_id IN (@list(organization_ids))" if selection.organization_ids else "TRUE"
    if not selection.organization_ids:
        return "l.item_id = wanted.value"
    # The empty text keeps SQLite from using the index of organizations instead of users.
    return "l.item_id = wanted.value AND l.organization_id || '' IN (@list(organization_ids))"
