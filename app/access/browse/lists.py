"""Lists for the console (folders, members, groups, …), with keyset pagination.

``after`` is the last key of the previous page.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection

from app.access.browse.lookup import find_all, name_of, names_of
from app.access.effective import BrokenReference, find_causes
from app.access.records import Document, Folder, Group, GroupMember, Membership, Organization, User
from app.foundation.clock import from_epoch_ms
from app.foundation.database.statements import run

# Each query reads one index in its order. PostgreSQL finds it by its statistics; SQLite needs a hint.
_FOLDERS = """
SELECT folder_id FROM model_folder @by(ix_model_folder_within)
WHERE organization_id = :organization_id AND parent_folder_id = :within AND folder_id > :after
ORDER BY folder_id LIMIT :limit
"""
_DOCUMENTS = """
SELECT document_id FROM model_document @by(ix_model_document_within)
WHERE organization_id = :organization_id AND folder_id = :within AND document_id > :after
ORDER BY document_id LIMIT :limit
"""
_MEMBERS = """
SELECT user_id, access_role, expires_at FROM model_membership
WHERE organization_id = :organization_id AND user_id > :after ORDER BY user_id LIMIT :limit
"""
_GROUPS = """
SELECT organization_user_group_id FROM model_group
WHERE organization_id = :organization_id AND organization_user_group_id > :after
ORDER BY organization_user_group_id LIMIT :limit
"""
_USERS_IN = """
SELECT user_id FROM model_group_member
WHERE organization_id = :organization_id AND organization_user_group_id = :within AND user_id > :after
ORDER BY user_id LIMIT :limit
"""
_GROUPS_IN = """
SELECT member_group_id FROM model_group_member @by(sqlite_autoindex_model_group_member_1)
WHERE organization_id = :organization_id AND organization_user_group_id = :within AND user_id = ''
  AND member_group_id > :after
ORDER BY member_group_id LIMIT :limit
"""
_OUTER_GROUPS = """
SELECT organization_user_group_id
FROM model_group_member @by(ix_model_group_member_organization_id_member_group_id_organization_user_group_id)
WHERE organization_id = :organization_id AND member_group_id = :within AND organization_user_group_id > :after
ORDER BY organization_user_group_id LIMIT :limit
"""

# Each recursive query goes from one organization to the next by the index, however many rows each has.
_ORGANIZATIONS_OF = """
WITH RECURSIVE
of_membership (organization_id, number) AS (
  SELECT MIN(organization_id), 1 FROM model_membership @by(ix_model_membership_user_id_organization_id)
  WHERE user_id = :user_id AND organization_id > :after
  UNION ALL
  SELECT (
    SELECT MIN(t.organization_id)
    FROM model_membership t @by(ix_model_membership_user_id_organization_id)
    WHERE t.user_id = :user_id AND t.organization_id > of_membership.organization_id), of_membership.number + 1
  FROM of_membership WHERE of_membership.organization_id IS NOT NULL AND of_membership.number < :limit
),
of_group_member (organization_id, number) AS (
  SELECT MIN(organization_id), 1 FROM model_group_member @by(ix_model_group_member_user_id_organization_id)
  WHERE user_id = :user_id AND organization_id > :after
  UNION ALL
  SELECT (
    SELECT MIN(t.organization_id)
    FROM model_group_member t @by(ix_model_group_member_user_id_organization_id)
    WHERE t.user_id = :user_id AND t.organization_id > of_group_member.organization_id), of_group_member.number + 1
  FROM of_group_member WHERE of_group_member.organization_id IS NOT NULL AND of_group_member.number < :limit
),
of_grant (organization_id, number) AS (
  SELECT MIN(organization_id), 1
  FROM model_grant @by(ix_model_grant_user_id_organization_id_folder_id_document_id_access_role_expires_at)
  WHERE user_id = :user_id AND organization_id > :after
  UNION ALL
  SELECT (
    SELECT MIN(t.organization_id)
    FROM model_grant t
      @by(ix_model_grant_user_id_organization_id_folder_id_document_id_access_role_expires_at)
    WHERE t.user_id = :user_id AND t.organization_id > of_grant.organization_id), of_grant.number + 1
  FROM of_grant WHERE of_grant.organization_id IS NOT NULL AND of_grant.number < :limit
)
SELECT organization_id FROM (
  SELECT organization_id FROM of_membership
  UNION SELECT organization_id FROM of_group_member
  UNION SELECT organization_id FROM of_grant
) AS found WHERE organization_id IS NOT NULL ORDER BY organization_id LIMIT :limit
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEntry:
    """One row of a list."""

    kind: str
    organization_id: str
    item_id: str
    name: str = ""
    access_type: str = ""
    """The access type set on this item; empty if it is inherited, or if the kind has none."""
    disabled: bool = False
    access_role: str = ""
    """The role of a membership; empty for other kinds."""
    expires_at: datetime | None = None
    """The end of a membership; None if it does not end."""
    without_effect: str = ""
    """Why the listed record has no effect; empty if it has."""


def contents(
    connection: Connection, organization_id: str, folder_id: str, *, after: Sequence[str], limit: int
) -> list[ListEntry]:
    """The folders, then the documents, directly in a folder (empty: at the top). ``after``: the kind and id of the last
    entry."""
    kind, last = after or ("folder", "")
    found: list[ListEntry] = []
    page = {"organization_id": organization_id, "within": folder_id}
    if kind == "folder":
        ids = run(connection, _FOLDERS, {**page, "after": last, "limit": limit}).scalars().all()
        found += _entries(connection, Folder, _Listed(Folder.kind, organization_id), ids)
        last = ""
    if len(found) < limit:
        ids = run(connection, _DOCUMENTS, {**page, "after": last, "limit": limit - len(found)}).scalars().all()
        found += _entries(connection, Document, _Listed(Document.kind, organization_id), ids)
    return found


def members(connection: Connection, organization_id: str, *, after: str, limit: int) -> list[ListEntry]:
    """The members of an organization."""
    page = {"organization_id": organization_id, "after": after, "limit": limit}
    rows = run(connection, _MEMBERS, page).all()
    users = _entries(connection, User, _Listed(Membership.kind, organization_id), [row.user_id for row in rows])
    return [
        replace(user, access_role=row.access_role, expires_at=moment(row.expires_at))
        for user, row in zip(users, rows, strict=True)
    ]


def groups(connection: Connection, organization_id: str, *, after: str, limit: int) -> list[ListEntry]:
    """The groups of an organization."""
    ids = run(connection, _GROUPS, {"organization_id": organization_id, "after": after, "limit": limit}).scalars()
    return _entries(connection, Group, _Listed(Group.kind, organization_id), ids.all())


def users_in(connection: Connection, organization_id: str, group_id: str, *, after: str, limit: int) -> list[ListEntry]:
    """The users who are direct members of a group."""
    page = {"organization_id": organization_id, "within": group_id, "after": after, "limit": limit}
    listed = _Listed(GroupMember.kind, organization_id, (group_id,), ("",))
    return _entries(connection, User, listed, run(connection, _USERS_IN, page).scalars().all())


def groups_in(
    connection: Connection, organization_id: str, group_id: str, *, after: str, limit: int
) -> list[ListEntry]:
    """The groups that are direct members of a group."""
    page = {"organization_id": organization_id, "within": group_id, "after": after, "limit": limit}
    listed = _Listed(GroupMember.kind, organization_id, (group_id, ""))
    return _entries(connection, Group, listed, run(connection, _GROUPS_IN, page).scalars().all())


def outer_groups(
    connection: Connection, organization_id: str, group_id: str, *, after: str, limit: int
) -> list[ListEntry]:
    """The groups of which a group is a direct member."""
    page = {"organization_id": organization_id, "within": group_id, "after": after, "limit": limit}
    listed = _Listed(GroupMember.kind, organization_id, (), ("", group_id))
    return _entries(connection, Group, listed, run(connection, _OUTER_GROUPS, page).scalars().all())


def organizations_of(connection: Connection, user_id: str, *, after: str, limit: int) -> list[ListEntry]:
    """The organizations in which a user is a member, in a group, or has a grant; non-members have no role."""
    page = {"user_id": user_id, "after": after, "limit": limit}
    ids = run(connection, _ORGANIZATIONS_OF, page).scalars().all()
    names = names_of(connection, Organization, [("", organization_id) for organization_id in ids])
    roles = find_all(connection, Membership, [(organization_id, user_id) for organization_id in ids])
    found = []
    for organization_id in ids:
        membership = roles.get((organization_id, user_id))
        found.append(
            ListEntry(
                kind="organization",
                organization_id=organization_id,
                item_id=organization_id,
                name=names.get(("", organization_id), ""),
                access_role="" if membership is None else membership.access_role,
                expires_at=None if membership is None else membership.expires_at,
                without_effect="" if ("", organization_id) in names else BrokenReference.ORGANIZATION.sentence,
            )
        )
    return found


def moment(value: int | None) -> datetime | None:
    """A stored time; None stays None."""
    return None if value is None else from_epoch_ms(value)


class _Listed(NamedTuple):
    """The records that a list contains. They may differ from those whose names it shows: a list of group members shows
    the names of users."""

    kind: str
    organization_id: str
    key_prefix: tuple[str, ...] = ()
    """The parts of the key between the organization and the id of the entry."""
    key_suffix: tuple[str, ...] = ()
    """The parts of the key after the id of the entry."""

    def key(self, item_id: str) -> tuple[str, ...]:
        return (self.organization_id, *self.key_prefix, item_id, *self.key_suffix)


def _entries(
    connection: Connection,
    of: type[Folder] | type[Document] | type[Group] | type[User],
    listed: _Listed,
    ids: Sequence[str],
) -> list[ListEntry]:
    """The entries of a page, with names and effect, which are looked up by primary key."""
    within = "" if of is User else listed.organization_id
    found = find_all(connection, of, [(within, item_id) for item_id in ids])
    broken = find_causes(connection, listed.kind, map(listed.key, ids))
    entries = []
    for item_id in ids:
        record = found.get((within, item_id))
        why = broken.get(listed.key(item_id))
        entries.append(
            ListEntry(
                kind=of.kind,
                organization_id=listed.organization_id,
                item_id=item_id,
                name="" if record is None else name_of(record),
                access_type=str(getattr(record, "access_type", None) or ""),
                disabled=bool(getattr(record, "disabled", False)),
                without_effect="" if why is None else why.sentence,
            )
        )
    return entries
