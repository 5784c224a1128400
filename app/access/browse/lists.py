"""Lists for the console (folders, members, groups, …), with keyset pagination.

``after`` is the last key of the previous page.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

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


ListName = Literal["groups", "users_in", "groups_in", "outer_groups"]

_Listed = tuple[str, tuple[str, ...], tuple[str, ...]]
"""The kind of the listed records, and the parts of their keys before and after the id of the entry."""

_LISTS: Mapping[ListName, tuple[str, type[Group] | type[User], Callable[[str], _Listed]]] = {
    "groups": (_GROUPS, Group, lambda _: (Group.kind, (), ())),
    "users_in": (_USERS_IN, User, lambda group_id: (GroupMember.kind, (group_id,), ("",))),
    "groups_in": (_GROUPS_IN, Group, lambda group_id: (GroupMember.kind, (group_id, ""), ())),
    "outer_groups": (_OUTER_GROUPS, Group, lambda group_id: (GroupMember.kind, (), ("", group_id))),
}
"""Name → the query of the ids, the kind that is shown, and the records that are listed, in a group."""


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


def members(connection: Connection, organization_id: str, *, after: str, limit: int) -> list[ListEntry]:
    """The members of an organization."""
    page = {"organization_id": organization_id, "after": after, "limit": limit}
    rows = run(connection, _MEMBERS, page).all()
    ids = [row.user_id for row in rows]
    users = _entries(connection, User, organization_id, ids, listed=(Membership.kind, (), ()))
    return [
        replace(user, access_role=row.access_role, expires_at=moment(row.expires_at))
        for user, row in zip(users, rows, strict=True)
    ]


def listed(
    connection: Connection, name: ListName, organization_id: str, group_id: str = "", *, after: str, limit: int
) -> list[ListEntry]:
    """The groups of an organization; of a group, its direct members (users or groups), or the groups around it."""
    query, shown, listed_as = _LISTS[name]
    page = {"organization_id": organization_id, "within": group_id, "after": after, "limit": limit}
    ids = run(connection, query, page).scalars().all()
    return _entries(connection, shown, organization_id, ids, listed=listed_as(group_id))


def organizations_of(connection: Connection, user_id: str, *, after: str, limit: int) -> list[ListEntry]:
    """The organizations in which a user is a member, in a group, or has a grant; non-members have no role."""
    page = {"user_id": user_id, "after": after, "limit": limit}
    ids = run(connection, _ORGANIZATIONS_OF, page).scalars().all()
    names = names_of(connection, Organization, [("", organization_id) for organization_id in ids])
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


def moment(value: int | None) -> datetime | None:
    """A stored time; None stays None."""
    return None if value is None else from_epoch_ms(value)


def _entries(
    connection: Connection,
    of: type[Folder] | type[Document] | type[Group] | type[User],
    organization_id: str,
    ids: Sequence[str],
    *,
    listed: _Listed | None = None,
) -> list[ListEntry]:
    """The entries of a page, with names and effect, which are looked up by primary key.

    ``listed``: the listed records, if they are not those whose names are shown: a list of group members shows the names
    of users.
    """
    kind, before, after = listed or (of.kind, (), ())
    within = "" if of is User else organization_id
    keys = {item_id: (organization_id, *before, item_id, *after) for item_id in ids}
    records = find_all(connection, of, [(within, item_id) for item_id in ids])
    broken = find_causes(connection, kind, keys.values())
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
                without_effect=broken[key].sentence if key in broken else "",
            )
        )
    return entries
