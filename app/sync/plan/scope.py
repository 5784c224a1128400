"""The scope of a plan of changes: the items that may differ from the ledger since an earlier plan of everything.

The rules: ``app/sync/plan/README.md``, "Plans of changes".

``find_scope`` fills two temporary tables from the log of changes, the clock, and what the plans since then left
unsettled. An item is in scope if its user is in ``touched_user``, or if it or its container is in
``touched_container``. ``find_places`` then adds the folders and documents that decide about these items. Tables are
read by index, so the time depends on the number of changes, not on the size of the directory.
"""

# ruff: noqa: S608 - SQL consists of constants of this project; data is in parameters.

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from app.foundation.database.statements import json_list, prefer_indexes, run
from app.sync.ledger.items import USER_KINDS, listed
from app.sync.plan.tables import create_temporary, drop_temporary

MAX_TOUCHED = 20_000
"""With more changes, users or containers than this, planning everything takes not much longer."""

_TABLES = ("unsettled", "touched_user", "touched_container", "touched_group", "touched_item", "place", "place_folder")

_START = """
SELECT MIN(CASE plan_id WHEN :first THEN revision END) AS revision,
  MIN(CASE plan_id WHEN :first THEN created_at END) AS created_at, COUNT(*) AS plans
FROM plan WHERE ledger_id = :ledger_id AND plan_id IN (@list(plan_ids))
"""

# After a restore the current revision may be lower.
_IS_KNOWN = """
SELECT :revision <= (SELECT MAX(revision) FROM access_revision)
  AND NOT EXISTS (SELECT 1 FROM access_revision WHERE revision > :revision AND NOT logged)
  AND NOT EXISTS (SELECT 1 FROM access_change WHERE revision > :revision AND kind = 'o')
  AND (SELECT COUNT(*) FROM access_change WHERE revision > :revision) <= :most
"""

_KEYS = "kind, organization_id, container_id, item_id"

_UNSETTLED = f"""
INSERT INTO unsettled SELECT {_KEYS} FROM (
SELECT {_KEYS} FROM plan_item WHERE plan_id IN (@list(plan_ids))
  AND status IN ('planned', 'failed', 'held', 'discarded', 'waiting', 'parked', 'skipped', 'cancelled')
UNION
SELECT {_KEYS} FROM ledger_item WHERE ledger_id = :ledger_id AND gone_at IS NOT NULL
UNION
SELECT {_KEYS} FROM ledger_item WHERE ledger_id = :ledger_id AND NOT certain
UNION
SELECT {_KEYS} FROM item_failure WHERE ledger_id = :ledger_id
UNION
SELECT {_KEYS} FROM discarded_item WHERE ledger_id = :ledger_id
) AS found LIMIT :most + 1
"""

_IS_ORGANIZATION_UNSETTLED = "SELECT EXISTS (SELECT 1 FROM unsettled WHERE kind = 'organization')"

_EXPIRED = "expires_at IS NOT NULL AND expires_at > :since AND expires_at <= :now"

# A changed group, or a group that was added to another one or removed from it, touches all users in it.
_USERS = f"""
INSERT INTO touched_user
WITH RECURSIVE inside (organization_id, group_id) AS (
  SELECT organization_id, item_id FROM access_change WHERE revision > :revision AND kind = 'g'
  UNION
  SELECT m.organization_id, m.member_group_id FROM inside i CROSS JOIN model_group_member m
  WHERE m.organization_id = i.organization_id AND m.organization_user_group_id = i.group_id AND m.member_group_id <> ''
)
SELECT user_id FROM (
  SELECT item_id AS user_id FROM access_change WHERE revision > :revision AND kind IN ('u', 'm', 'e', 'x')
  UNION
  SELECT m.user_id FROM inside i CROSS JOIN model_group_member m
  WHERE m.organization_id = i.organization_id AND m.organization_user_group_id = i.group_id AND m.user_id <> ''
  UNION
  SELECT user_id FROM model_membership WHERE {_EXPIRED}
  UNION
  SELECT user_id FROM model_grant WHERE {_EXPIRED} AND user_id <> ''
  UNION
  SELECT item_id FROM unsettled WHERE kind IN ({{user_kinds}})
) AS found LIMIT :most + 1
"""

# Whether a folder is effective, and its access type in force, decide about everything below it. A change with a detail
# is a grant to a group.
_CONTAINERS = f"""
INSERT INTO touched_container
WITH RECURSIVE below (organization_id, folder_id) AS (
  SELECT organization_id, item_id FROM access_change WHERE revision > :revision AND kind = 'f' AND detail = ''
  UNION
  SELECT f.organization_id, f.folder_id FROM below b CROSS JOIN model_folder f @by(ix_model_folder_within)
  WHERE f.organization_id = b.organization_id AND f.parent_folder_id = b.folder_id
)
SELECT kind, organization_id, item_id FROM (
  SELECT 'folder' AS kind, organization_id, folder_id AS item_id FROM below
  UNION
  SELECT 'document', d.organization_id, d.document_id
  FROM below b CROSS JOIN model_document d @by(ix_model_document_within)
  WHERE d.organization_id = b.organization_id AND d.folder_id = b.folder_id
  UNION
  SELECT CASE kind WHEN 'f' THEN 'folder' WHEN 'd' THEN 'document' ELSE 'group' END, organization_id, item_id
  FROM access_change WHERE revision > :revision AND kind IN ('f', 'd', 'g')
  UNION
  SELECT CASE folder_id WHEN '' THEN 'document' ELSE 'folder' END, organization_id, folder_id || document_id
  FROM model_grant WHERE {_EXPIRED} AND user_id = ''
  UNION
  SELECT kind, organization_id, item_id FROM unsettled WHERE kind NOT IN ({{user_kinds}})
) AS found LIMIT :most + 1
"""

_GROUPS = """
INSERT INTO touched_group
WITH RECURSIVE inside (organization_id, group_id) AS (
  SELECT organization_id, item_id FROM touched_container WHERE kind = 'group'
  UNION
  SELECT a.organization_id, a.organization_user_group_id
  FROM touched_container c CROSS JOIN model_grant a @by(ix_model_grant_of_groups)
  WHERE c.kind <> 'group' AND a.organization_id = c.organization_id AND a.user_id = ''
    AND a.folder_id = CASE c.kind WHEN 'folder' THEN c.item_id ELSE '' END
    AND a.document_id = CASE c.kind WHEN 'folder' THEN '' ELSE c.item_id END
  UNION
  SELECT m.organization_id, m.member_group_id FROM inside i CROSS JOIN model_group_member m
  WHERE m.organization_id = i.organization_id AND m.organization_user_group_id = i.group_id AND m.member_group_id <> ''
)
SELECT organization_id, group_id FROM inside
"""

_TOUCHED = """
INSERT INTO touched_item
SELECT l.kind, l.organization_id, l.container_id, l.item_id
FROM touched_user t CROSS JOIN ledger_item l @by(ix_ledger_item_ledger_id_kind_item_id)
WHERE l.ledger_id = :ledger_id AND l.kind IN ({user_kinds}) AND l.item_id = t.user_id
UNION
SELECT l.kind, l.organization_id, l.container_id, l.item_id FROM touched_container c CROSS JOIN ledger_item l
WHERE l.ledger_id = :ledger_id AND l.kind = CASE c.kind WHEN 'group' THEN 'groupMember' ELSE c.kind || 'User' END
  AND l.organization_id = c.organization_id AND l.container_id = c.item_id
UNION
SELECT kind, organization_id, '', item_id FROM touched_container
UNION
SELECT kind, organization_id, container_id, item_id FROM ledger_item
WHERE ledger_id = :ledger_id AND kind = 'organization'
"""

_PLACES = """
INSERT INTO place
SELECT kind, organization_id, item_id FROM touched_container WHERE kind <> 'group'
UNION
SELECT CASE m.folder_id WHEN '' THEN 'document' ELSE 'folder' END, m.organization_id, m.folder_id || m.document_id
FROM touched_user t CROSS JOIN model_grant m WHERE m.user_id = t.user_id
UNION
SELECT CASE m.folder_id WHEN '' THEN 'document' ELSE 'folder' END, m.organization_id, m.folder_id || m.document_id
FROM (SELECT DISTINCT d.organization_id, d.container_id FROM desired d
  WHERE d.kind = 'groupMember' AND d.item_id IN (SELECT user_id FROM touched_user)) i
CROSS JOIN model_grant m @by(ix_model_grant_to_group)
WHERE m.organization_id = i.organization_id AND m.organization_user_group_id = i.container_id AND m.user_id = ''
UNION
SELECT CASE kind WHEN 'folderUser' THEN 'folder' ELSE 'document' END, organization_id, container_id
FROM touched_item WHERE kind IN ('folderUser', 'documentUser')
"""

_FOLDERS_OF_PLACES = """
INSERT INTO place_folder
WITH RECURSIVE above (organization_id, folder_id) AS (
  SELECT organization_id, item_id FROM place WHERE kind = 'folder'
  UNION
  SELECT d.organization_id, d.folder_id FROM place p CROSS JOIN model_document d
  WHERE p.kind = 'document' AND d.organization_id = p.organization_id AND d.document_id = p.item_id
  UNION
  SELECT f.organization_id, f.parent_folder_id FROM above a CROSS JOIN model_folder f
  WHERE f.organization_id = a.organization_id AND f.folder_id = a.folder_id
)
SELECT f.organization_id, f.parent_folder_id, f.folder_id, f.access_type FROM above a CROSS JOIN model_folder f
WHERE f.organization_id = a.organization_id AND f.folder_id = a.folder_id
"""


def find_scope(connection: Connection, parameters: Mapping[str, object], since: Sequence[str]) -> bool:
    """Fills the tables of the scope. False: it is unknown or large, so everything has to be planned.

    ``since``: the ids of a plan of everything and of the later plans. ``parameters``: ledger_id and now.
    """
    parameters = {**parameters, "first": since[0], "plan_ids": json_list(since), "most": MAX_TOUCHED}
    start = run(connection, _START, parameters).one()
    if start.plans != len(since) or start.revision is None or start.created_at > parameters["now"]:
        return False
    parameters |= {"revision": start.revision, "since": start.created_at}
    if not run(connection, _IS_KNOWN, parameters).scalar():
        return False
    # PostgreSQL does not know how few rows the temporary tables have, and would read large tables from end to end.
    prefer_indexes(connection)
    create_temporary(connection, *_TABLES)
    kinds = {"user_kinds": listed(USER_KINDS)}
    counts = [run(connection, template, parameters, **kinds).rowcount for template in (_UNSETTLED, _USERS, _CONTAINERS)]
    if max(counts) > MAX_TOUCHED or run(connection, _IS_ORGANIZATION_UNSETTLED).scalar():
        drop_temporary(connection)
        prefer_indexes(connection, on=False)
        return False
    run(connection, _GROUPS)
    run(connection, _TOUCHED, parameters, **kinds)
    return True


def find_places(connection: Connection) -> None:
    """Fills ``place`` and ``place_folder``, after the group members in ``desired``."""
    run(connection, _PLACES)
    run(connection, _FOLDERS_OF_PLACES)
