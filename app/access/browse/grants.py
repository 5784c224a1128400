"""Lists grants for pages: those that apply to a folder or document, and those of a user or a group.

Each grant is listed with a nearer grant of the same holder that decides instead, if there is one.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, TypeVar

from sqlalchemy import Connection, Row

from app.access.browse.lookup import IdInOrganization, find_all, find_names
from app.access.decision.decide import is_active
from app.access.effective import find_causes
from app.access.record_tables import record_of
from app.access.records import Document, Folder, Grant, Group, User
from app.foundation.clock import from_epoch_ms
from app.foundation.database.statements import json_list, json_lists, run

MAX_GROUPS = 1_000
"""The maximum number of groups of a user whose grants are read."""

Item = TypeVar("Item")


class ResourceIds(NamedTuple):
    """A folder or a document. The other id is empty."""

    folder_id: str = ""
    document_id: str = ""


class _GrantIds(NamedTuple):
    """A grant in an organization: a folder or a document, and a user or a group. The other ids are empty."""

    folder_id: str
    document_id: str
    user_id: str = ""
    group_id: str = ""


_COLUMNS = "g.folder_id, g.document_id, g.user_id, g.organization_user_group_id, g.access_role, g.expires_at"

_ON_LEVEL = """
SELECT {columns} FROM model_grant g
WHERE g.organization_id = :organization_id AND g.folder_id = :folder_id AND g.document_id = :document_id
  AND (g.user_id, g.organization_user_group_id) > (:user_id, :group_id)
ORDER BY g.user_id, g.organization_user_group_id LIMIT :limit
"""
_LEVELS_WITH_GRANTS = """
SELECT requested.value FROM (@list(levels)) AS requested WHERE EXISTS (
  SELECT 1 FROM model_grant g WHERE g.organization_id = :organization_id
    AND g.folder_id = @part(requested.value, 0) AND g.document_id = @part(requested.value, 1))
"""
_OF_USER = """
SELECT {columns}
FROM model_grant g @by(ix_model_grant_user_id_organization_id_folder_id_document_id_access_role_expires_at)
WHERE g.user_id = :user_id AND g.organization_id = :organization_id
  AND (g.folder_id, g.document_id) > (:folder_id, :document_id)
ORDER BY g.folder_id, g.document_id LIMIT :limit
"""
_OF_GROUP = """
SELECT {columns} FROM model_grant g @by(ix_model_grant_to_group)
WHERE g.organization_id = :organization_id AND g.organization_user_group_id = :group_id AND g.user_id = ''
  AND (g.folder_id, g.document_id) > (:folder_id, :document_id)
ORDER BY g.folder_id, g.document_id LIMIT :limit
"""
_GROUPS_WITH_GRANTS = """
SELECT requested.value FROM (@list(groups)) AS requested WHERE EXISTS (
  SELECT 1 FROM model_grant g @by(ix_model_grant_to_group)
  WHERE g.organization_id = :organization_id AND g.organization_user_group_id = requested.value AND g.user_id = '')
"""
_EXACT = """
SELECT {columns} FROM (@list(keys)) AS requested CROSS JOIN model_grant g
WHERE g.organization_id = :organization_id AND g.folder_id = @part(requested.value, 0)
  AND g.document_id = @part(requested.value, 1) AND g.user_id = @part(requested.value, 2)
  AND g.organization_user_group_id = @part(requested.value, 3)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantEntry:
    """A grant, with the names of its holder and its folder or document."""

    organization_id: str
    resource_kind: Literal["folder", "document"]
    resource_id: str
    resource_name: str
    holder_kind: Literal["user", "group"]
    holder_id: str
    holder_name: str
    access_role: str
    expires_at: datetime | None
    nearer: Grant | None = None
    """A grant of the same holder on a nearer level, which decides instead. For a grant of a user's group, it may also
    be the user's own grant on the same level."""
    without_effect: str = ""
    """Why the grant has no effect. Empty if it has an effect."""

    def is_active(self, now: datetime) -> bool:
        """Whether the grant has not expired."""
        return self.expires_at is None or self.expires_at > now


def grants_on_levels(
    connection: Connection,
    organization_id: str,
    levels: Sequence[ResourceIds],
    *,
    after: Sequence[str],
    limit: int,
    now: datetime,
) -> list[GrantEntry]:
    """The grants on these levels, nearest first: on each level those of groups, then those of users.

    ``after``: the folder, document, user and group of the last entry.
    """
    parameters = {"organization_id": organization_id, "levels": json_lists(levels)}
    with_grants = {tuple(json.loads(level)) for level in run(connection, _LEVELS_WITH_GRANTS, parameters).scalars()}
    last = _GrantIds(*after) if after else None
    begin = None if last is None else ResourceIds(last.folder_id, last.document_id)
    rows: list[Row[Any]] = []
    # The level of the cursor may have lost its grants since the last page.
    for level in (level for level in starting_at(levels, begin) if level in with_grants):
        key = last if last is not None and level == begin else _GrantIds(*level)
        page = {**parameters, **key._asdict(), "limit": limit - len(rows)}
        rows += run(connection, _ON_LEVEL, page, columns=_COLUMNS)
        if len(rows) >= limit:
            break
    levels = [level for level in levels if level in with_grants]
    nearer_levels = [levels[: levels.index(ResourceIds(row.folder_id, row.document_id))] for row in rows]
    keys = [
        [_GrantIds(*level, row.user_id, row.organization_user_group_id) for level in nearer]
        for row, nearer in zip(rows, nearer_levels, strict=True)
    ]
    return _entries(connection, organization_id, rows, _first_active(connection, organization_id, keys, now))


def grants_of_user(
    connection: Connection, organization_id: str, user_id: str, *, after: Sequence[str], limit: int
) -> list[GrantEntry]:
    """A user's own grants in an organization: those on documents, then those on folders. ``after``: the folder and
    document of the last entry."""
    last = ResourceIds(*after)
    parameters = {"organization_id": organization_id, "user_id": user_id, "limit": limit, **last._asdict()}
    return _entries(connection, organization_id, run(connection, _OF_USER, parameters, columns=_COLUMNS).all(), {})


def grants_of_groups(
    connection: Connection, organization_id: str, groups: Sequence[str], *, after: Sequence[str], limit: int
) -> list[GrantEntry]:
    """The grants of these groups, group by group in this order. ``after``: the group, folder and document of the last
    entry."""
    rows = _read_grants_of_groups(connection, organization_id, groups, after, limit)
    return _entries(connection, organization_id, rows, {})


def grants_through_groups(
    connection: Connection,
    organization_id: str,
    user_id: str,
    groups: Sequence[str],
    *,
    after: Sequence[str],
    limit: int,
    now: datetime,
) -> list[GrantEntry]:
    """As ``grants_of_groups`` for the groups of a user, whose own active grants on the same levels are ``nearer``."""
    rows = _read_grants_of_groups(connection, organization_id, groups, after, limit)
    keys = [[_GrantIds(row.folder_id, row.document_id, user_id)] for row in rows]
    return _entries(connection, organization_id, rows, _first_active(connection, organization_id, keys, now))


def _read_grants_of_groups(
    connection: Connection, organization_id: str, groups: Sequence[str], after: Sequence[str], limit: int
) -> list[Row[Any]]:
    parameters: dict[str, object] = {"organization_id": organization_id, "groups": json_list(groups)}
    with_grants = set(run(connection, _GROUPS_WITH_GRANTS, parameters).scalars())
    last_group = after[0] if after else None
    rows: list[Row[Any]] = []
    # The group of the cursor may have lost its grants since the last page.
    for group_id in (group for group in starting_at(groups, last_group) if group in with_grants):
        last = ResourceIds(*after[1:]) if group_id == last_group else ResourceIds()
        page = {**parameters, **last._asdict(), "group_id": group_id, "limit": limit - len(rows)}
        rows += run(connection, _OF_GROUP, page, columns=_COLUMNS)
        if len(rows) >= limit:
            break
    return rows


def starting_at(items: Sequence[Item], first: Item | None) -> Sequence[Item]:
    """The items from ``first`` on: all of them if it is None, and none if it is not among them."""
    if first is None:
        return items
    return items[items.index(first) :] if first in items else []


def group_grants_on(
    connection: Connection, organization_id: str, level: ResourceIds, groups: Iterable[str]
) -> dict[str, Grant]:
    """Group → its grant on exactly this folder or document, in the order of the groups."""
    keys = {group: _GrantIds(*level, group_id=group) for group in islice(groups, MAX_GROUPS)}
    grants = _exact(connection, organization_id, keys.values())
    return {group: grants[key] for group, key in keys.items() if key in grants}


def _first_active(
    connection: Connection, organization_id: str, keys: Sequence[Sequence[_GrantIds]], now: datetime
) -> dict[int, Grant]:
    """Number of the row → the first active grant with one of the row's keys."""
    grants = _exact(connection, organization_id, chain.from_iterable(keys))
    nearer: dict[int, Grant] = {}
    for number, keys_of_row in enumerate(keys):
        of_row = (grants[key] for key in keys_of_row if key in grants)
        active = next((grant for grant in of_row if is_active(grant, now)), None)
        if active is not None:
            nearer[number] = active
    return nearer


def _exact(connection: Connection, organization_id: str, keys: Iterable[_GrantIds]) -> dict[_GrantIds, Grant]:
    """The grants with exactly these keys."""
    requested = sorted(set(keys))
    if not requested:
        return {}
    parameters = {"organization_id": organization_id, "keys": json_lists(requested)}
    rows = run(connection, _EXACT, parameters, columns=f"g.organization_id, {_COLUMNS}")
    return {
        _GrantIds(row.folder_id, row.document_id, row.user_id, row.organization_user_group_id): record_of(Grant, row)
        for row in rows
    }


def _find_names(
    connection: Connection, organization_id: str, rows: Sequence[Row[Any]], users: Iterable[User]
) -> dict[str, dict[IdInOrganization, str]]:
    """Kind → organization and id → the name of a record that the rows name."""

    def keys(column: str) -> set[IdInOrganization]:
        return {(organization_id, getattr(row, column)) for row in rows if getattr(row, column)}

    return {
        "folder": find_names(connection, Folder, keys("folder_id")),
        "document": find_names(connection, Document, keys("document_id")),
        "group": find_names(connection, Group, keys("organization_user_group_id")),
        "user": {(organization_id, user.user_id): user.name for user in users},
    }


def _entries(
    connection: Connection, organization_id: str, rows: Sequence[Row[Any]], nearer: Mapping[int, Grant]
) -> list[GrantEntry]:
    users = find_all(connection, User, {("", row.user_id) for row in rows if row.user_id}).values()
    names = _find_names(connection, organization_id, rows, users)
    disabled = {user.user_id for user in users if user.disabled}
    grant_keys = [
        (organization_id, row.folder_id, row.document_id, row.user_id, row.organization_user_group_id) for row in rows
    ]
    causes = find_causes(connection, Grant.kind, grant_keys)
    entries = []
    for number, row in enumerate(rows):
        cause = causes.get(grant_keys[number])
        resource: Literal["folder", "document"] = "folder" if row.folder_id else "document"
        holder: Literal["user", "group"] = "user" if row.user_id else "group"
        resource_id = row.folder_id or row.document_id
        holder_id = row.user_id or row.organization_user_group_id
        entries.append(
            GrantEntry(
                organization_id=organization_id,
                resource_kind=resource,
                resource_id=resource_id,
                resource_name=names[resource].get((organization_id, resource_id), ""),
                holder_kind=holder,
                holder_id=holder_id,
                holder_name=names[holder].get((organization_id, holder_id), ""),
                access_role=row.access_role,
                expires_at=None if row.expires_at is None else from_epoch_ms(row.expires_at),
                nearer=nearer.get(number),
                without_effect=cause.sentence if cause else "the user is disabled" if row.user_id in disabled else "",
            )
        )
    return entries
