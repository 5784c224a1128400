"""Reads lists of folders, members, groups and organizations for the console, with keyset pagination.

``after`` is the last key of the previous page.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Protocol

from sqlalchemy import Connection

from app.access.browse.lookup import find_all, find_names, name_of
from app.access.effective import BrokenReference, find_causes
from app.access.records import Document, Folder, Group, GroupMember, Membership, Organization, Record, User
from app.access.search import search
from app.foundation.database.statements import json_list, run

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
SELECT user_id FROM model_membership
WHERE organization_id = :organization_id AND user_id > :after ORDER BY user_id LIMIT :limit
"""
_GROUPS = """
SELECT organization_user_group_id FROM model_group
WHERE organization_id = :organization_id AND organization_user_group_id > :after
ORDER BY organization_user_group_id LIMIT :limit
"""
# The existing groups that are in a group at any depth, and itself. UNION ends cycles.
_INSIDE = """
WITH RECURSIVE inside (group_id) AS (
  SELECT CAST(:within AS VARCHAR)
  UNION
  SELECT m.member_group_id FROM inside i CROSS JOIN model_group_member m @by(sqlite_autoindex_model_group_member_1)
  CROSS JOIN model_group g
  WHERE m.organization_id = :organization_id AND m.organization_user_group_id = i.group_id AND m.user_id = ''
    AND g.organization_id = m.organization_id AND g.organization_user_group_id = m.member_group_id
)"""
_USERS_IN = f"""{_INSIDE}
SELECT DISTINCT member.value FROM inside i CROSS JOIN @rows(
  SELECT m.user_id AS value FROM model_group_member m
  WHERE m.organization_id = :organization_id AND m.organization_user_group_id = i.group_id AND m.user_id > :after
  ORDER BY m.user_id LIMIT :limit
) AS member ORDER BY member.value LIMIT :limit
"""  # noqa: S608 - constants
_GROUP_OF_EACH = f"""{_INSIDE}
SELECT m.user_id, COALESCE(
  MIN(CASE WHEN m.organization_user_group_id = :within THEN m.organization_user_group_id END),
  MIN(m.organization_user_group_id))
FROM (@list(users)) AS requested CROSS JOIN model_group_member m
  @by(ix_model_group_member_organization_id_user_id_organization_user_group_id) CROSS JOIN inside i
WHERE m.organization_id = :organization_id AND m.user_id = requested.value AND m.organization_user_group_id = i.group_id
GROUP BY m.user_id
"""  # noqa: S608 - constants
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

# Goes from one organization to the next by the index, however many rows each has.
_ORGANIZATIONS_IN = """
of_{table} (organization_id, number) AS (
  SELECT MIN(organization_id), 1 FROM model_{table} @by({index}) WHERE user_id = :user_id AND organization_id > :after
  UNION ALL
  SELECT (
    SELECT MIN(t.organization_id) FROM model_{table} t @by({index})
    WHERE t.user_id = :user_id AND t.organization_id > of_{table}.organization_id), of_{table}.number + 1
  FROM of_{table} WHERE of_{table}.organization_id IS NOT NULL AND of_{table}.number < :limit
)"""
_BY_USER = {
    "membership": "ix_model_membership_user_id_organization_id",
    "group_member": "ix_model_group_member_user_id_organization_id",
    "grant": "ix_model_grant_user_id_organization_id_folder_id_document_id_access_role_expires_at",
}
_ORGANIZATIONS_OF = f"""
WITH RECURSIVE {",".join(_ORGANIZATIONS_IN.format(table=table, index=index) for table, index in _BY_USER.items())}
SELECT organization_id FROM ({" UNION ".join(f"SELECT organization_id FROM of_{table}" for table in _BY_USER)})
AS of_user WHERE organization_id IS NOT NULL ORDER BY organization_id LIMIT :limit
"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEntry:
    """One row of a list."""

    kind: str
    organization_id: str
    item_id: str
    name: str = ""
    access_type: str = ""
    """The access type set on this item. Empty if it is inherited, or if the kind has none."""
    disabled: bool = False
    access_role: str = ""
    """The role of a membership. Empty for other kinds."""
    expires_at: datetime | None = None
    """The end of a membership. None if it does not end."""
    within: str = ""
    """The id of the folder that a folder or document is in, or of the group that a user is directly in."""
    without_effect: str = ""
    """Why the listed record has no effect. Empty if it has an effect."""


class ReadIds(Protocol):
    """Returns the ids of a page, in their order."""

    def __call__(self, *, after: str, limit: int) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class RecordList:
    """A list of records of one kind."""

    kind: str
    organization_id: str
    ids: ReadIds
    rows: Callable[[Sequence[str]], list[ListEntry]]
    """The rows of these ids."""
    among: Callable[[Sequence[str]], Sequence[str]]
    """Those of these ids that are in the list."""


def contents(
    connection: Connection, organization_id: str, folder_id: str, *, after: Sequence[str], limit: int
) -> list[ListEntry]:
    """The folders, then the documents, directly in a folder (empty: at the top). ``after``: the kind and id of the last
    entry."""
    kind, last = after or ("folder", "")
    entries: list[ListEntry] = []
    page = {"organization_id": organization_id, "within": folder_id}
    if kind == "folder":
        ids = run(connection, _FOLDERS, {**page, "after": last, "limit": limit}).scalars().all()
        entries += _entries(connection, Folder, organization_id, ids)
        last = ""
    if len(entries) < limit:
        ids = run(connection, _DOCUMENTS, {**page, "after": last, "limit": limit - len(entries)}).scalars().all()
        entries += _entries(connection, Document, organization_id, ids)
    return entries


def contents_found(connection: Connection, organization_id: str, text: str, *, limit: int) -> list[ListEntry]:
    """The first folders and documents of an organization that the search for a text finds."""
    entries: list[ListEntry] = []
    for of in (Folder, Document):
        hits = search(connection, text, of.kind, limit - len(entries), organization_id=organization_id)
        entries += _entries(connection, of, organization_id, [hit.item_id for hit in hits])
    return entries


def members(connection: Connection, organization_id: str) -> RecordList:
    """The members of an organization."""

    def rows(ids: Sequence[str]) -> list[ListEntry]:
        memberships = find_all(connection, Membership, [(organization_id, user_id) for user_id in ids])
        entries = []
        for user in _entries(connection, User, organization_id, ids, listed=Membership):
            membership = memberships[organization_id, user.item_id]
            entries.append(replace(user, access_role=membership.access_role, expires_at=membership.expires_at))
        return entries

    def among(ids: Sequence[str]) -> list[str]:
        return [key[1] for key in find_all(connection, Membership, [(organization_id, user_id) for user_id in ids])]

    return RecordList(User.kind, organization_id, _ids(connection, _MEMBERS, organization_id), rows, among)


def groups(connection: Connection, organization_id: str) -> RecordList:
    """The groups of an organization."""
    rows = partial(_entries, connection, Group, organization_id)
    # The search finds only groups of this organization, and all of them are in the list.
    return RecordList(Group.kind, organization_id, _ids(connection, _GROUPS, organization_id), rows, list)


def users_in(connection: Connection, organization_id: str, group_id: str) -> RecordList:
    """The users in a group, directly or through groups in it. ``within`` is the group of which they are a direct
    member: this one if possible, otherwise the first by id."""

    def find_groups(ids: Sequence[str]) -> dict[str, str]:
        parameters = {"organization_id": organization_id, "within": group_id, "users": json_list(ids)}
        return dict(run(connection, _GROUP_OF_EACH, parameters).all())

    def rows(ids: Sequence[str]) -> list[ListEntry]:
        within = find_groups(ids)
        keys = {user_id: (organization_id, within[user_id], user_id, "") for user_id in ids}
        broken = find_causes(connection, GroupMember.kind, keys.values())
        return [
            replace(
                user,
                within=within[user.item_id],
                without_effect=broken[key].sentence if (key := keys[user.item_id]) in broken else "",
            )
            for user in _entries(connection, User, organization_id, ids)
        ]

    def among(ids: Sequence[str]) -> list[str]:
        return list(find_groups(ids))

    return RecordList(User.kind, organization_id, _ids(connection, _USERS_IN, organization_id, group_id), rows, among)


def _ids(connection: Connection, query: str, organization_id: str, within: str = "") -> ReadIds:
    def ids(*, after: str, limit: int) -> Sequence[str]:
        page = {"organization_id": organization_id, "within": within, "after": after, "limit": limit}
        return run(connection, query, page).scalars().all()

    return ids


def groups_in(
    connection: Connection, organization_id: str, group_id: str, *, after: str, limit: int
) -> list[ListEntry]:
    """The groups that are direct members of a group."""
    ids = _ids(connection, _GROUPS_IN, organization_id, group_id)(after=after, limit=limit)
    keys = {inner_id: (organization_id, group_id, "", inner_id) for inner_id in ids}
    return _entries(connection, Group, organization_id, ids, listed=GroupMember, listed_keys=keys)


def outer_groups(
    connection: Connection, organization_id: str, group_id: str, *, after: str, limit: int
) -> list[ListEntry]:
    """The groups of which a group is a direct member."""
    ids = _ids(connection, _OUTER_GROUPS, organization_id, group_id)(after=after, limit=limit)
    keys = {outer_id: (organization_id, outer_id, "", group_id) for outer_id in ids}
    return _entries(connection, Group, organization_id, ids, listed=GroupMember, listed_keys=keys)


def find_organizations(connection: Connection, user_id: str, *, after: str, limit: int) -> list[ListEntry]:
    """The organizations in which a user is a member, in a group, or has a grant. Non-members have no role."""
    page = {"user_id": user_id, "after": after, "limit": limit}
    ids = run(connection, _ORGANIZATIONS_OF, page).scalars().all()
    names = find_names(connection, Organization, [("", organization_id) for organization_id in ids])
    roles = find_all(connection, Membership, [(organization_id, user_id) for organization_id in ids])
    entries = []
    for organization_id in ids:
        membership = roles.get((organization_id, user_id))
        entries.append(
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
    return entries


def _entries(
    connection: Connection,
    of: type[Folder] | type[Document] | type[Group] | type[User],
    organization_id: str,
    ids: Sequence[str],
    *,
    listed: type[Record] | None = None,
    listed_keys: Mapping[str, tuple[str, ...]] | None = None,
) -> list[ListEntry]:
    """The entries of a page, with names and effect, which are looked up by primary key.

    ``listed``: the class of the listed records, if the names are those of other records: a list of group members has
    the names of users. ``listed_keys``: id → the key of the listed record, if it is not organization and id.
    """
    within = "" if of is User else organization_id
    keys = listed_keys or {item_id: (organization_id, item_id) for item_id in ids}
    records = find_all(connection, of, [(within, item_id) for item_id in ids])
    broken = find_causes(connection, (listed or of).kind, keys.values())
    entries = []
    for item_id, key in keys.items():
        record = records.get((within, item_id))
        entries.append(
            ListEntry(
                kind=of.kind,
                organization_id=organization_id,
                item_id=item_id,
                name="" if record is None else name_of(record),
                access_type=str(getattr(record, "access_type", None) or ""),
                disabled=bool(getattr(record, "disabled", False)),
                within=str(getattr(record, "folder_id" if of is Document else "parent_folder_id", None) or ""),
                without_effect=broken[key].sentence if key in broken else "",
            )
        )
    return entries
