"""Lists of the access model, page by page: each is one range of an index, in its order, begun after a key."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row

from app.access.browse.lookup import find_all, name_of, names_of
from app.access.effective import BrokenReference, find_causes
from app.access.records import Document, Folder, Group, GroupMember, Membership, Organization, User
from app.foundation.clock import from_epoch_ms
from app.foundation.database.statements import run

# In every text: the range, then the order of the same index. What PostgreSQL finds by its statistics SQLite is told.
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
_GROUPS_AROUND = """
SELECT organization_user_group_id
FROM model_group_member @by(ix_model_group_member_organization_id_member_group_id_organization_user_group_id)
WHERE organization_id = :organization_id AND member_group_id = :within AND organization_user_group_id > :after
ORDER BY organization_user_group_id LIMIT :limit
"""

# From one organization to the next by the index, however many rows each has.
_MET = """{name} (organization_id, number) AS (
  SELECT MIN(organization_id), 1 FROM {table} @by({index}) WHERE user_id = :user_id AND organization_id > :after
  UNION ALL
  SELECT (SELECT MIN(t.organization_id) FROM {table} t @by({index}) WHERE t.user_id = :user_id
    AND t.organization_id > {name}.organization_id), {name}.number + 1
  FROM {name} WHERE {name}.organization_id IS NOT NULL AND {name}.number < :limit
)"""
_OF_USERS = (
    ("a", "model_membership", "ix_model_membership_user_id_organization_id"),
    ("b", "model_group_member", "ix_model_group_member_user_id_organization_id"),
    ("c", "model_grant", "ix_model_grant_user_id_organization_id_folder_id_document_id_access_role_expires_at"),
)
_ORGANIZATIONS_OF = f"""
WITH RECURSIVE {", ".join(_MET.format(name=name, table=table, index=index) for name, table, index in _OF_USERS)}
SELECT organization_id FROM (
  SELECT organization_id FROM a UNION SELECT organization_id FROM b UNION SELECT organization_id FROM c
) met WHERE organization_id IS NOT NULL ORDER BY organization_id LIMIT :limit
"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEntry:
    """One row of a list."""

    kind: str
    organization_id: str
    item_id: str
    name: str = ""
    access_type: str = ""
    """Of its own; empty: inherited, or it has none."""
    disabled: bool = False
    access_role: str = ""
    """Of a membership."""
    expires_at: datetime | None = None
    """When it ends; None: never."""
    without_effect: str = ""
    """Why the listed record has no effect; empty: it has."""


def contents(
    connection: Connection, organization_id: str, folder_id: str, *, after: Sequence[str], limit: int
) -> list[ListEntry]:
    """What lies directly in a folder (empty: at the top): folders, then documents. ``after``: kind and id."""
    kind, last = after or ("folder", "")
    found: list[ListEntry] = []
    asked = {"organization_id": organization_id, "within": folder_id, "limit": limit}
    if kind == "folder":
        ids = [row[0] for row in run(connection, _FOLDERS, {**asked, "after": last})]
        found += _named(connection, Folder, _Listed(Folder.kind, organization_id), ids)
        last = ""
    if len(found) < limit:
        left = {**asked, "after": last, "limit": limit - len(found)}
        ids = [row[0] for row in run(connection, _DOCUMENTS, left)]
        found += _named(connection, Document, _Listed(Document.kind, organization_id), ids)
    return found


def members(connection: Connection, organization_id: str, *, after: str, limit: int) -> list[ListEntry]:
    """The members of an organization."""
    asked = {"organization_id": organization_id, "after": after, "limit": limit}
    rows = run(connection, _MEMBERS, asked).all()
    return _with_roles(connection, organization_id, rows)


def groups(connection: Connection, organization_id: str, *, after: str, limit: int) -> list[ListEntry]:
    """The groups of an organization."""
    asked = {"organization_id": organization_id, "after": after, "limit": limit}
    ids = [row[0] for row in run(connection, _GROUPS, asked)]
    return _named(connection, Group, _Listed(Group.kind, organization_id), ids)


def users_in(connection: Connection, organization_id: str, group_id: str, *, after: str, limit: int) -> list[ListEntry]:
    """The users who are in a group themselves."""
    asked = {"organization_id": organization_id, "within": group_id, "after": after, "limit": limit}
    ids = [row[0] for row in run(connection, _USERS_IN, asked)]
    return _named(connection, User, _Listed(GroupMember.kind, organization_id, (group_id,), ("",)), ids)


def groups_in(
    connection: Connection, organization_id: str, group_id: str, *, after: str, limit: int
) -> list[ListEntry]:
    """The groups that are in a group themselves."""
    asked = {"organization_id": organization_id, "within": group_id, "after": after, "limit": limit}
    ids = [row[0] for row in run(connection, _GROUPS_IN, asked)]
    return _named(connection, Group, _Listed(GroupMember.kind, organization_id, (group_id, "")), ids)


def groups_around(
    connection: Connection, organization_id: str, group_id: str, *, after: str, limit: int
) -> list[ListEntry]:
    """The groups in which a group is itself."""
    asked = {"organization_id": organization_id, "within": group_id, "after": after, "limit": limit}
    ids = [row[0] for row in run(connection, _GROUPS_AROUND, asked)]
    return _named(connection, Group, _Listed(GroupMember.kind, organization_id, (), ("", group_id)), ids)


def organizations_of(connection: Connection, user_id: str, *, after: str, limit: int) -> list[ListEntry]:
    """The organizations in which a user is a member, in a group, or has a grant; without a role where no member."""
    asked = {"user_id": user_id, "after": after, "limit": limit}
    ids = [row[0] for row in run(connection, _ORGANIZATIONS_OF, asked)]
    names = names_of(connection, Organization, [("", one) for one in ids])
    roles = find_all(connection, Membership, [(one, user_id) for one in ids])
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
    """A stored moment; None stays None."""
    return None if value is None else from_epoch_ms(value)


class _Listed(NamedTuple):
    """The records that a list consists of, which are not always those that it names: members of a group, say."""

    kind: str
    organization_id: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """What the key has before and after the id of an entry."""

    def key(self, item_id: str) -> tuple[str, ...]:
        return (self.organization_id, *self.before, item_id, *self.after)


def _named(
    connection: Connection,
    of: type[Folder] | type[Document] | type[Group] | type[User],
    listed: _Listed,
    ids: Sequence[str],
) -> list[ListEntry]:
    """The rows of a page: their names and whether they are effective are looked up by primary key, for these alone."""
    within = "" if of is User else listed.organization_id
    found = find_all(connection, of, [(within, one) for one in ids])
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


def _with_roles(connection: Connection, organization_id: str, rows: Sequence[Row[Any]]) -> list[ListEntry]:
    listed = _Listed(Membership.kind, organization_id)
    return [
        replace(one, access_role=row.access_role, expires_at=moment(row.expires_at))
        for one, row in zip(_named(connection, User, listed, [row.user_id for row in rows]), rows, strict=True)
    ]
