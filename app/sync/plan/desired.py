"""Computes the desired state: what the backend should contain according to the access model.

The rules: ``app/sync/plan/README.md``, "Desired".

``compute_desired`` fills the temporary table ``desired`` with set operations, one row per item. Memory does not grow
with the number of items. Its columns are those of a ledger item, and:

- ``depth``: the number of folders above a folder;
- ``in_force``: the access type in force in a folder;
- ``via``: the group through which a user has a folder, a document or a membership of an outer group. Empty if it is by
  the user's own record.
"""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection

from app.access.effective import REQUESTED_FOLDERS
from app.foundation.clock import epoch_ms
from app.foundation.database.statements import run
from app.sync.plan.scope import find_places
from app.sync.plan.selection import Selection
from app.sync.plan.tables import analyze, create_temporary

# Columns: kind, organization_id, container_id, item_id, digest, parent_id, access_type, access_role, disabled, depth,
# in_force, via.
#
# CROSS JOIN makes SQLite read the tables in the written order. PostgreSQL ignores it. Rows are inserted in the order of
# the key, so that the table is written sequentially.

_ORGANIZATIONS = """
INSERT INTO desired
SELECT 'organization', o.organization_id, '', o.organization_id, o.digest, '', '', '', o.disabled, 0, o.access_type, ''
FROM model_organization o WHERE {within}
ORDER BY o.organization_id
"""

_FOLDERS = """
INSERT INTO desired
WITH RECURSIVE tree (organization_id, folder_id, depth, own_type, in_force) AS (
  SELECT f.organization_id, f.folder_id, 0,
    CASE f.access_type WHEN '' THEN o.access_type ELSE f.access_type END,
    CASE f.access_type WHEN '' THEN o.access_type ELSE f.access_type END
  FROM model_organization o CROSS JOIN {folders}
  WHERE f.organization_id = o.organization_id AND f.parent_folder_id = '' AND NOT o.disabled AND {within}
  UNION ALL
  SELECT f.organization_id, f.folder_id, t.depth + 1, f.access_type,
    CASE f.access_type WHEN '' THEN t.in_force ELSE f.access_type END
  FROM tree t CROSS JOIN {folders}
  WHERE f.organization_id = t.organization_id AND f.parent_folder_id = t.folder_id
)
SELECT 'folder', f.organization_id, '', f.folder_id, f.digest, f.parent_folder_id, t.own_type, '', FALSE, t.depth,
  t.in_force, ''
FROM tree t CROSS JOIN model_folder f
WHERE f.organization_id = t.organization_id AND f.folder_id = t.folder_id
ORDER BY f.organization_id, f.folder_id
"""

_DOCUMENTS = """
INSERT INTO desired
SELECT 'document', d.organization_id, '', d.document_id, d.digest, d.folder_id,
  CASE WHEN d.access_type <> '' THEN d.access_type
       WHEN d.folder_id = '' THEN o.access_type
       WHEN l.access_type <> '' OR NOT l.certain THEN f.in_force
       ELSE '' END,
  '', FALSE, 0,
  CASE WHEN d.access_type <> '' THEN d.access_type WHEN d.folder_id = '' THEN o.access_type ELSE f.in_force END, ''
FROM {documents} d CROSS JOIN model_organization o
LEFT JOIN desired f ON f.kind = 'folder' AND f.organization_id = d.organization_id AND f.container_id = ''
  AND f.item_id = d.folder_id
LEFT JOIN ledger_item l ON l.ledger_id = :ledger_id AND l.kind = 'document' AND l.organization_id = d.organization_id
  AND l.container_id = '' AND l.item_id = d.document_id
WHERE o.organization_id = d.organization_id AND NOT o.disabled AND (d.folder_id = '' OR f.item_id IS NOT NULL)
  AND {within}
ORDER BY d.organization_id, d.document_id
"""

_GROUPS = """
INSERT INTO desired
SELECT 'group', g.organization_id, '', g.organization_user_group_id, g.digest, '', '', '', FALSE, 0, '', ''
FROM {groups} g CROSS JOIN model_organization o
WHERE o.organization_id = g.organization_id AND NOT o.disabled AND {within}
ORDER BY g.organization_id, g.organization_user_group_id
"""

_MEMBERSHIPS = """
INSERT INTO desired
SELECT 'organizationUser', m.organization_id, '', m.user_id, u.digest, '', '', m.access_role, FALSE, 0, '', ''
FROM model_membership m CROSS JOIN model_organization o CROSS JOIN model_user u
WHERE o.organization_id = m.organization_id AND NOT o.disabled AND u.user_id = m.user_id AND NOT u.disabled
  AND (m.expires_at IS NULL OR m.expires_at > :now) AND {within}
ORDER BY m.organization_id, m.user_id
"""

_DIRECT_MEMBERS = """
INSERT INTO desired
SELECT 'groupMember', m.organization_id, m.organization_user_group_id, m.user_id, '', '', '', '', FALSE, 0, '', ''
FROM {members} m CROSS JOIN model_organization o CROSS JOIN model_group g CROSS JOIN model_user u
WHERE o.organization_id = m.organization_id AND NOT o.disabled AND g.organization_id = m.organization_id
  AND g.organization_user_group_id = m.organization_user_group_id AND u.user_id = m.user_id AND NOT u.disabled
  AND m.user_id <> '' AND {within}
ORDER BY m.organization_id, m.organization_user_group_id, m.user_id
ON CONFLICT DO NOTHING
"""

# Upwards from every group with members. Cycles end because rows are distinct.
_NESTED_MEMBERS = """
INSERT INTO desired
WITH RECURSIVE inside (organization_id, group_id, inner_id) AS (
  SELECT DISTINCT organization_id, container_id, container_id FROM desired WHERE kind = 'groupMember'
  UNION
  SELECT up.organization_id, up.organization_user_group_id, i.inner_id
  FROM inside i CROSS JOIN model_group_member up CROSS JOIN model_group g
  WHERE up.organization_id = i.organization_id AND up.member_group_id = i.group_id
    AND g.organization_id = up.organization_id AND g.organization_user_group_id = up.organization_user_group_id
)
SELECT 'groupMember', i.organization_id, i.group_id, m.item_id, '', '', '', '', FALSE, 0, '', MIN(i.inner_id)
FROM inside i CROSS JOIN desired m
WHERE i.group_id <> i.inner_id AND m.kind = 'groupMember' AND m.organization_id = i.organization_id
  AND m.container_id = i.inner_id
GROUP BY i.organization_id, i.group_id, m.item_id
ON CONFLICT DO NOTHING
"""

# In a selection of users, `desired` has no folders and documents. `container` has the effective ones on which the users
# have grants, their own or through groups, and those in which the ledger has them.
_CONTAINERS_OF_USERS = """
INSERT INTO container
WITH RECURSIVE place (organization_id, folder_id, document_id) AS MATERIALIZED (
  SELECT m.organization_id, m.folder_id, m.document_id FROM model_grant m WHERE {within}
  UNION
  SELECT m.organization_id, m.folder_id, m.document_id
  FROM (SELECT DISTINCT organization_id, container_id FROM desired WHERE kind = 'groupMember') i
  CROSS JOIN model_grant m @by(ix_model_grant_to_group)
  WHERE m.organization_id = i.organization_id AND m.organization_user_group_id = i.container_id AND m.user_id = ''
  UNION
  SELECT l.organization_id, CASE l.kind WHEN 'folderUser' THEN l.container_id ELSE '' END,
    CASE l.kind WHEN 'folderUser' THEN '' ELSE l.container_id END
  FROM (@list(user_ids)) AS selected CROSS JOIN ledger_item l @by(ix_ledger_item_ledger_id_kind_item_id)
  WHERE l.ledger_id = :ledger_id AND l.kind IN ('folderUser', 'documentUser') AND l.item_id = selected.value
),
lies (kind, organization_id, item_id, folder_id) AS MATERIALIZED (
  SELECT 'folder', p.organization_id, p.folder_id, p.folder_id FROM place p WHERE p.folder_id <> ''
  UNION ALL
  SELECT 'document', p.organization_id, p.document_id, (
    SELECT d.folder_id FROM model_document d
    WHERE d.organization_id = p.organization_id AND d.document_id = p.document_id)
  FROM place p WHERE p.folder_id = ''
),
requested_folder (organization_id, folder_id) AS (SELECT organization_id, folder_id FROM lies WHERE folder_id <> ''),
{requested_folders}
SELECT p.kind, p.organization_id, '', p.item_id
FROM lies p CROSS JOIN model_organization o
WHERE o.organization_id = p.organization_id AND NOT o.disabled AND (p.folder_id = '' OR (p.organization_id, p.folder_id)
  IN (SELECT e.organization_id, e.folder_id FROM effective_folder e))
"""

_OWN_GRANTS = """
INSERT INTO desired
SELECT c.kind || 'User', c.organization_id, c.item_id, m.user_id, u.digest, '', '', m.access_role, FALSE, 0, '', ''
FROM {containers} c CROSS JOIN model_grant m CROSS JOIN model_user u
WHERE c.kind IN ('document', 'folder') AND m.organization_id = c.organization_id
  AND m.folder_id = CASE c.kind WHEN 'folder' THEN c.item_id ELSE '' END
  AND m.document_id = CASE c.kind WHEN 'folder' THEN '' ELSE c.item_id END
  AND m.user_id <> '' AND (m.expires_at IS NULL OR m.expires_at > :now) AND u.user_id = m.user_id AND NOT u.disabled
ORDER BY c.kind, c.organization_id, c.item_id, m.user_id
ON CONFLICT DO NOTHING
"""

# From the users' grants: a container may have grants to many other users.
_OWN_GRANTS_OF_USERS = """
INSERT INTO desired
WITH own AS MATERIALIZED (
  SELECT m.organization_id, m.folder_id, m.document_id, m.user_id, m.access_role FROM model_grant m
  WHERE (m.expires_at IS NULL OR m.expires_at > :now) AND {within}
)
SELECT c.kind || 'User', c.organization_id, c.item_id, g.user_id, u.digest, '', '', g.access_role, FALSE, 0, '', ''
FROM own g CROSS JOIN {containers} c CROSS JOIN model_user u
WHERE c.kind = CASE g.folder_id WHEN '' THEN 'document' ELSE 'folder' END AND c.organization_id = g.organization_id
  AND c.container_id = '' AND c.item_id = g.folder_id || g.document_id AND u.user_id = g.user_id AND NOT u.disabled
ORDER BY c.kind, c.organization_id, c.item_id, g.user_id
"""

_GROUP_GRANTS = """
INSERT INTO desired
WITH granted AS MATERIALIZED (
  SELECT c.kind || 'User' AS kind, a.organization_id, c.item_id AS container_id,
    a.organization_user_group_id AS group_id, a.access_role
  FROM (SELECT DISTINCT organization_id, container_id FROM desired WHERE kind = 'groupMember') i
  CROSS JOIN model_grant a @by(ix_model_grant_to_group)
  CROSS JOIN {containers} c
  WHERE a.organization_id = i.organization_id AND a.organization_user_group_id = i.container_id AND a.user_id = ''
    AND (a.expires_at IS NULL OR a.expires_at > :now)
    AND c.kind = CASE a.folder_id WHEN '' THEN 'document' ELSE 'folder' END
    AND c.organization_id = a.organization_id AND c.container_id = '' AND c.item_id = a.folder_id || a.document_id
)
SELECT g.kind, g.organization_id, g.container_id, g.user_id, u.digest, '', '',
  CASE WHEN g.editors IS NULL THEN 'viewer' ELSE 'editor' END, FALSE, 0, '', COALESCE(g.editors, g.viewers)
FROM (
  SELECT granted.kind, granted.organization_id, granted.container_id, m.item_id AS user_id,
    MIN(CASE granted.access_role WHEN 'editor' THEN granted.group_id END) AS editors, MIN(granted.group_id) AS viewers
  FROM granted CROSS JOIN desired m
  WHERE m.kind = 'groupMember' AND m.organization_id = granted.organization_id AND m.container_id = granted.group_id
    AND {touched}
  GROUP BY granted.kind, granted.organization_id, granted.container_id, m.item_id
) g CROSS JOIN model_user u WHERE u.user_id = g.user_id
ON CONFLICT DO NOTHING
"""

# A condition is on the table that a statement reads first, to use its index.
_CONTAINERS = ((_ORGANIZATIONS, "o"), (_FOLDERS, "o"), (_DOCUMENTS, "d"), (_GROUPS, "g"))
_EVERYTHING = {
    "folders": "model_folder f @by(ix_model_folder_within)",
    "documents": "model_document",
    "groups": "model_group",
    "touched": "TRUE",
}

# The rows of an item in scope must be complete: of a touched user all groups, of a touched container all users.
_IN_SCOPE = {
    "folders": "place_folder f",
    "documents": """(SELECT a.* FROM place p CROSS JOIN model_document a
      WHERE p.kind = 'document' AND a.organization_id = p.organization_id AND a.document_id = p.item_id)""",
    "groups": """(SELECT a.* FROM touched_container c CROSS JOIN model_group a WHERE c.kind = 'group'
      AND a.organization_id = c.organization_id AND a.organization_user_group_id = c.item_id)""",
    "touched": """(m.item_id IN (SELECT user_id FROM touched_user)
      OR (granted.kind, granted.organization_id, granted.container_id) IN (
        SELECT c.kind || 'User', c.organization_id, c.item_id FROM touched_container c))""",
}
_MEMBERS_OF_GROUPS = """(SELECT a.* FROM touched_group t CROSS JOIN model_group_member a
  WHERE a.organization_id = t.organization_id AND a.organization_user_group_id = t.item_id)"""
_TOUCHED_CONTAINERS = """(SELECT a.* FROM touched_container t CROSS JOIN desired a WHERE a.kind = t.kind
  AND a.organization_id = t.organization_id AND a.container_id = '' AND a.item_id = t.item_id)"""


def compute_desired(connection: Connection, *, ledger_id: int, now: datetime, selection: Selection) -> None:
    """Creates and fills ``desired``. The caller drops it (``drop_temporary``).

    The selection determines the statements and their order:

    - **Everything, or organizations**: containers (organizations, folders, documents, groups), members, grants.
    - **Users**: their members, the containers on which they may have grants, grants. Only the user kinds are in
      ``desired``, and all of them are read by index.
    - **In scope** of changes: members of touched users and groups, the places of touched items, the containers at these
      places, grants of touched users and on touched containers. Some items out of scope are in ``desired``, too.
    """
    parameters = {"ledger_id": ledger_id, "now": epoch_ms(now), **selection.parameters}
    create_temporary(connection, "desired")
    if selection.in_scope:
        _add_members(connection, parameters, selection)
        find_places(connection)
        _add_containers(connection, parameters, selection, **_IN_SCOPE)
    else:
        if not selection.user_ids:
            _add_containers(connection, parameters, selection, **_EVERYTHING)
        _add_members(connection, parameters, selection)
        analyze(connection, "desired")
    within = selection.condition("m.organization_id", "m.user_id")
    if selection.user_ids:
        create_temporary(connection, "container")
        run(connection, _CONTAINERS_OF_USERS, parameters, within=within, requested_folders=REQUESTED_FOLDERS)
    if selection.user_ids or selection.in_scope:
        run(connection, _OWN_GRANTS_OF_USERS, parameters, within=within, containers=containers(selection))
    if not selection.user_ids:
        run(connection, _OWN_GRANTS, parameters, containers=_TOUCHED_CONTAINERS if selection.in_scope else "desired")
    touched = (_IN_SCOPE if selection.in_scope else _EVERYTHING)["touched"]
    run(connection, _GROUP_GRANTS, parameters, containers=containers(selection), touched=touched)
    analyze(connection, "desired")


def _add_containers(
    connection: Connection, parameters: Mapping[str, object], selection: Selection, **tables: str
) -> None:
    for template, alias in _CONTAINERS:
        run(connection, template, parameters, within=selection.condition(f"{alias}.organization_id"), **tables)
        if template is _FOLDERS and not selection.in_scope:
            analyze(connection, "desired")


def _add_members(connection: Connection, parameters: Mapping[str, object], selection: Selection) -> None:
    within = selection.condition("m.organization_id", "m.user_id")
    run(connection, _MEMBERSHIPS, parameters, within=within)
    run(connection, _DIRECT_MEMBERS, parameters, within=within, members="model_group_member")
    if selection.in_scope:
        within = selection.condition("m.organization_id")
        run(connection, _DIRECT_MEMBERS, parameters, within=within, members=_MEMBERS_OF_GROUPS)
    run(connection, _NESTED_MEMBERS)


def containers(selection: Selection) -> str:
    """The table with the effective folders and documents of the selection."""
    return "container" if selection.user_ids else "desired"
