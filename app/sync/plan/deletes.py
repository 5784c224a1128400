"""Finds the deletes of a plan: items that are in the ledger and no longer desired.

The rules: ``app/sync/plan/README.md``, "Deletes, and what goes along".

``ledger_item.gone_at`` is the time at which a plan first found an item gone. Desired contents of a deleted container
are moved in an earlier phase, which ``app.sync.plan.dependencies`` checks before the delete is sent.

``app.foundation.database.statements`` explains ``@minute`` and ``@list``.
"""

from sqlalchemy import Connection

from app.foundation.database.statements import run
from app.sync.ledger.items import CONTAINERS, USER_KINDS, Kind
from app.sync.plan.desired import containers
from app.sync.plan.rules import ASPECT_BITS
from app.sync.plan.selection import Selection
from app.sync.plan.tables import analyze

_USER = """
    WHEN NOT EXISTS (SELECT 1 FROM model_user u WHERE u.user_id = l.item_id)
      THEN 'the user is no longer in the directory'
    WHEN EXISTS (SELECT 1 FROM model_user u WHERE u.user_id = l.item_id AND u.disabled)
      THEN 'the user is disabled in the directory'
    WHEN NOT EXISTS (SELECT 1 FROM model_organization a WHERE a.organization_id = l.organization_id)
      THEN 'the organization is no longer in the directory'"""

_GROUP = """
    WHEN NOT EXISTS (
      SELECT 1 FROM model_group g
      WHERE g.organization_id = l.organization_id AND g.organization_user_group_id = l.container_id)
      THEN 'the group is no longer in the directory'"""
_CONTAINER = """
    WHEN NOT EXISTS (
      SELECT 1 FROM {containers} c WHERE c.kind = '{container}' AND c.organization_id = l.organization_id
        AND c.container_id = '' AND c.item_id = l.container_id)
      THEN 'the {container} is no longer in the directory'"""

_EXPIRED_MEMBERSHIP = """(
    SELECT 'the membership expired on ' || @minute(m.expires_at)
    FROM model_membership m WHERE m.organization_id = l.organization_id AND m.user_id = l.item_id
      AND m.expires_at <= :now)"""

# The user's own grant comes first, as in decisions.
_EXPIRED_GRANT = """(
    SELECT 'the grant to the user expired on ' || @minute(g.expires_at)
    FROM model_grant g WHERE g.organization_id = l.organization_id AND g.folder_id = {folder}
      AND g.document_id = {document} AND g.user_id = l.item_id AND g.organization_user_group_id = ''
      AND g.expires_at <= :now), (
    SELECT 'the grant to group ' || g.organization_user_group_id || ' expired on '
      || @minute(g.expires_at)
    FROM model_grant g CROSS JOIN desired m
    WHERE g.organization_id = l.organization_id AND g.folder_id = {folder} AND g.document_id = {document}
      AND g.user_id = '' AND g.expires_at <= :now
      AND m.kind = 'groupMember' AND m.organization_id = g.organization_id
      AND m.container_id = g.organization_user_group_id AND m.item_id = l.item_id
    ORDER BY g.expires_at DESC, g.organization_user_group_id LIMIT 1)"""


def _why_gone(kind: Kind, containers: str) -> str:
    """The expression for an item ``l`` of the ledger that is not desired. It uses the parameter ``now``.

    ``containers``: the table with the effective folders and documents (``app.sync.plan.desired.containers``)."""
    if kind not in USER_KINDS:
        return "''"
    cases = _USER
    expired = _EXPIRED_MEMBERSHIP if kind is Kind.ORGANIZATION_USER else "NULL"
    container = CONTAINERS.get(kind)
    if container is Kind.GROUP:
        cases += _GROUP
    elif container is not None:
        cases += _CONTAINER.format(containers=containers, container=container.value)
        in_folder = container is Kind.FOLDER
        expired = _EXPIRED_GRANT.format(
            folder="l.container_id" if in_folder else "''", document="''" if in_folder else "l.container_id"
        )
    return f"CASE {cases} ELSE COALESCE({expired}, '') END"


# A time in the future was stored while the clock was ahead.
_GONE_SINCE = "CASE WHEN l.gone_at < :now THEN l.gone_at ELSE :now END"

_GONE = """
INSERT INTO diff
SELECT l.kind, l.organization_id, l.container_id, l.item_id, {gone}, 0, l.digest, l.parent_id, l.access_type,
  l.access_role, l.disabled, '',
  -- cover_kind and cover_id: what covers the container, or else the container, or else the organization, if it is gone
  CASE WHEN p.cover_kind <> '' THEN p.cover_kind WHEN p.kind <> '' THEN p.kind
       WHEN o.kind <> '' THEN o.kind ELSE '' END,
  CASE WHEN p.cover_kind <> '' THEN p.cover_id WHEN p.kind <> '' THEN p.item_id
       WHEN o.kind <> '' THEN o.item_id ELSE '' END,
  -- status and message
  CASE WHEN {since} > :grace_since THEN 'waiting' ELSE 'planned' END,
  CASE WHEN {since} > :grace_since THEN 'kept for the grace period, until '
    || @minute({since} + :now - :grace_since) ELSE '' END,
  {why}
FROM {ledger}
LEFT JOIN diff o ON o.kind = 'organization' AND o.organization_id = l.organization_id AND o.container_id = ''
  AND o.item_id = l.organization_id AND o.aspects = {gone} AND l.kind <> 'organization'
LEFT JOIN diff p ON p.kind = '{container_kind}' AND p.organization_id = l.organization_id AND p.container_id = ''
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
UPDATE diff SET cover_kind = 'folder', cover_id = chain.top
FROM (
  WITH RECURSIVE chain (organization_id, item_id, top) AS (
    SELECT s.organization_id, s.item_id, s.item_id FROM diff s CROSS JOIN ledger_item l
    WHERE s.kind = 'folder' AND s.aspects = {gone} AND s.cover_kind = '' AND l.ledger_id = :ledger_id
      AND l.kind = 'folder' AND l.organization_id = s.organization_id AND l.container_id = '' AND l.item_id = s.item_id
      AND (NOT l.certain OR NOT EXISTS (
        SELECT 1 FROM diff p WHERE p.kind = 'folder' AND p.organization_id = s.organization_id
          AND p.container_id = '' AND p.item_id = s.parent_id AND p.aspects = {gone}))
    UNION ALL
    SELECT c.organization_id, c.item_id, chain.top
    FROM chain CROSS JOIN ledger_item c CROSS JOIN diff s
    WHERE c.ledger_id = :ledger_id AND c.organization_id = chain.organization_id AND c.kind = 'folder'
      AND c.parent_id = chain.item_id AND c.certain AND s.kind = 'folder' AND s.organization_id = c.organization_id
      AND s.container_id = '' AND s.item_id = c.item_id AND s.aspects = {gone}
  )
  SELECT organization_id, item_id, top FROM chain WHERE item_id <> top
) AS chain
WHERE diff.kind = 'folder' AND diff.organization_id = chain.organization_id AND diff.container_id = ''
  AND diff.item_id = chain.item_id
"""

_COVERERS_WAIT = """
UPDATE diff SET status = 'waiting', message = 'something in it is kept for the grace period'
FROM (
  SELECT DISTINCT cover_kind, organization_id, cover_id FROM diff
  WHERE aspects = {gone} AND status = 'waiting' AND cover_kind <> ''
) AS covered
WHERE diff.kind = covered.cover_kind AND diff.organization_id = covered.organization_id AND diff.container_id = ''
  AND diff.item_id = covered.cover_id AND diff.status = 'planned'
"""

_FOLLOW = """
UPDATE diff SET status = coverer.status, message = coverer.message
FROM diff AS coverer
WHERE diff.aspects = {gone} AND diff.cover_kind <> '' AND coverer.kind = diff.cover_kind
  AND coverer.organization_id = diff.organization_id AND coverer.container_id = ''
  AND coverer.item_id = diff.cover_id AND coverer.status <> diff.status
"""

# All of these rows exist: this is an update by key, for which SQLite starts from `diff`.
_MARK_GONE = """
INSERT INTO ledger_item (ledger_id, kind, organization_id, container_id, item_id, digest, parent_id, access_type,
  access_role, disabled, certain, gone_at)
SELECT l.ledger_id, l.kind, l.organization_id, l.container_id, l.item_id, l.digest, l.parent_id, l.access_type,
  l.access_role, l.disabled, l.certain, :now
FROM diff s CROSS JOIN ledger_item l
WHERE s.aspects = {gone} AND l.ledger_id = :ledger_id AND l.kind = s.kind AND l.organization_id = s.organization_id
  AND l.container_id = s.container_id AND l.item_id = s.item_id
  AND (l.gone_at IS NULL OR l.gone_at > :now)
ON CONFLICT (ledger_id, kind, organization_id, container_id, item_id) DO UPDATE SET gone_at = excluded.gone_at
"""

_MARK_DESIRED = """
UPDATE ledger_item SET gone_at = NULL
WHERE ledger_id = :ledger_id AND gone_at IS NOT NULL AND EXISTS (
  SELECT 1 FROM desired d WHERE d.kind = ledger_item.kind AND d.organization_id = ledger_item.organization_id
    AND d.container_id = ledger_item.container_id AND d.item_id = ledger_item.item_id)
"""

_RESTORE = """
INSERT INTO diff
SELECT d.kind, d.organization_id, d.container_id, d.item_id, {restored}, d.depth, d.digest, d.parent_id, d.access_type,
  d.access_role, d.disabled, d.via, '', '', 'planned', '', ''
FROM desired d
WHERE d.kind IN ('folderUser', 'documentUser', 'groupMember') AND EXISTS (
  SELECT 1 FROM diff s WHERE s.kind = 'organizationUser' AND s.organization_id = d.organization_id
    AND s.container_id = '' AND s.item_id = d.item_id AND s.aspects = {gone} AND s.status = 'planned')
ORDER BY d.kind, d.organization_id, d.container_id, d.item_id
ON CONFLICT (kind, organization_id, container_id, item_id) DO UPDATE SET aspects = {restored}
"""


def find_deletes(
    connection: Connection, parameters: dict[str, object], selection: Selection, *, store_gone: bool
) -> int:
    """Adds items that are gone to ``diff``, with their coverers and whether they wait. Returns their number.

    ``store_gone``: stores ``gone_at``. ``parameters``: ledger_id, now and grace_since (epoch milliseconds), those of
    the selection, and approving: the id of a plan, of which only the held deletes are found, or None.
    """
    number = 0
    for kind in USER_KINDS if selection.user_ids else Kind:
        gone = run(
            connection,
            _GONE,
            parameters,
            kind=kind,
            container_kind=Kind.FOLDER if kind is Kind.DOCUMENT else CONTAINERS.get(kind, ""),
            container_column="parent_id" if kind is Kind.DOCUMENT else "container_id",
            since=_GONE_SINCE,
            why=_why_gone(kind, containers(selection)),
            ledger=_ledger(selection),
            within=_within(selection),
            approved=_WAS_HELD if parameters["approving"] is not None else "TRUE",
            **ASPECT_BITS,
        ).rowcount
        number += gone
        analyze(connection, "diff", rows=gone)
        if kind is Kind.FOLDER and number:
            run(connection, _FOLDER_CHAINS, parameters, **ASPECT_BITS)
    if store_gone:
        run(connection, _MARK_DESIRED, parameters)
        if number:
            run(connection, _MARK_GONE, parameters, **ASPECT_BITS)
    if number:
        run(connection, _COVERERS_WAIT, **ASPECT_BITS)
        follow_coverers(connection)
    return number


def follow_coverers(connection: Connection) -> None:
    """Copies the status of coverers to the items that they cover."""
    run(connection, _FOLLOW, **ASPECT_BITS)


def restore_after_deletes(connection: Connection) -> int:
    """Adds the entries again that the deletes of organization users remove. Returns their number.

    The backend removes such a user from all folders, documents and groups of the organization. Other adds and updates
    of the user's entries move to the same later phase."""
    return run(connection, _RESTORE, **ASPECT_BITS).rowcount


_IS_TOUCHED = """k.kind = l.kind AND k.organization_id = l.organization_id AND k.container_id = l.container_id
  AND k.item_id = l.item_id"""


def _ledger(selection: Selection) -> str:
    """The tables of the search. It begins with the selected users or items, to read only these."""
    if selection.in_scope:
        return "touched_item k CROSS JOIN ledger_item l"
    return "(@list(user_ids)) AS selected CROSS JOIN ledger_item l" if selection.user_ids else "ledger_item l"


def _within(selection: Selection) -> str:
    if selection.in_scope:
        return f"{_IS_TOUCHED} AND {selection.condition('l.organization_id')}"
    if not selection.user_ids:
        return selection.condition("l.organization_id")
    if not selection.organization_ids:
        return "l.item_id = selected.value"
    # The empty text keeps SQLite from using the index of organizations instead of users.
    return "l.item_id = selected.value AND l.organization_id || '' IN (@list(organization_ids))"
