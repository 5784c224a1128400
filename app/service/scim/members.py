"""Stores the members of groups, and finds the users whose memberships a request may change.

A change of members is a few statements, however large the group is.
"""

import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from scim2_models import InvalidValueException
from scim2_models.path import FilterNode
from sqlalchemy import Connection, Table, update

from app.access.source_tables import ScimResourceRow
from app.directory.connectors.scim.objects import GROUP, USER
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.statements import json_list, json_lists, run
from app.service.scim.selection import Member, is_by_name, names_in, selected

RESOURCE: Table = ScimResourceRow.__table__

_MAX_KEY_BYTES = 512

Changed = tuple[str, dict[str, Any] | None, dict[str, Any] | None]
"""The type of a resource, and its content before and after the request; None: it does not exist."""

_PENDING = "member"
"""The attribute under which ``scim_key`` has the names of members that do not exist yet."""

_NAMED = """
SELECT @part(listed.value, 0), r.resource_id FROM (@list(names)) AS listed
CROSS JOIN scim_resource r WHERE r.source_id = :source_id AND r.resource_id = @part(listed.value, 0)
UNION
SELECT @part(listed.value, 0), k.resource_id FROM (@list(names)) AS listed
CROSS JOIN scim_key k
WHERE k.source_id = :source_id AND k.attribute = @part(listed.value, 1) AND k.value = @part(listed.value, 2)
"""

_DESCRIBED = """
SELECT m.value, COALESCE(r.type, m.type), m.display
FROM scim_member m LEFT JOIN scim_resource r ON r.source_id = m.source_id AND r.resource_id = m.value
WHERE m.source_id = :source_id AND m.group_id = :group_id
"""

_STATED = "SELECT value FROM scim_member WHERE source_id = :source_id AND group_id = :group_id"

_ADD_MEMBERS = """
INSERT INTO scim_member (source_id, group_id, value, type, display)
SELECT :source_id, :group_id, @part(listed.value, 0), @part(listed.value, 1), @part(listed.value, 2)
FROM (@list(members)) AS listed
"""

_REMOVE_MEMBERS = """
DELETE FROM scim_member WHERE source_id = :source_id AND group_id = :group_id AND value IN (@list(values))
"""

_ADD_PENDING = """
INSERT INTO scim_key (source_id, attribute, value, resource_id)
SELECT :source_id, :attribute, @part(listed.value, 1), @part(listed.value, 0) FROM (@list(names)) AS listed
WHERE NOT EXISTS (
  SELECT 1 FROM scim_resource r WHERE r.source_id = :source_id AND r.resource_id = @part(listed.value, 0))
ON CONFLICT DO NOTHING
"""

_REMOVE_PENDING = """
DELETE FROM scim_key WHERE source_id = :source_id AND attribute = :attribute AND resource_id IN (@list(names))
AND NOT EXISTS (
  SELECT 1 FROM scim_member m WHERE m.source_id = scim_key.source_id AND m.value = scim_key.resource_id)
"""

_BIND = """
SELECT m.group_id, m.value FROM (@list(keys)) AS listed
CROSS JOIN scim_key k CROSS JOIN scim_member m
WHERE k.source_id = :source_id AND k.attribute = :attribute AND k.value = listed.value
AND m.source_id = :source_id AND m.value = k.resource_id
"""

_ABOVE = """
WITH RECURSIVE above (id) AS (
  SELECT listed.value FROM (@list(ids)) AS listed
  UNION
  SELECT m.group_id FROM above JOIN scim_member m ON m.source_id = :source_id AND m.value = above.id
)
SELECT id FROM above
"""

_USERS_BELOW = """
WITH RECURSIVE below (id) AS (
  SELECT listed.value FROM (@list(ids)) AS listed
  UNION
  SELECT m.value FROM below JOIN scim_member m ON m.source_id = :source_id AND m.group_id = below.id
)
SELECT r.resource_id FROM below JOIN scim_resource r ON r.source_id = :source_id AND r.resource_id = below.id
WHERE r.type = 'User'
"""

_GROUPS_OF = """
WITH RECURSIVE above (user_id, group_id) AS (
  SELECT m.value, m.group_id FROM (@list(users)) AS listed
  CROSS JOIN scim_member m WHERE m.source_id = :source_id AND m.value = listed.value
  UNION
  SELECT above.user_id, m.group_id FROM above
  JOIN scim_member m ON m.source_id = :source_id AND m.value = above.group_id
)
SELECT user_id, group_id FROM above
"""


class StoredMembers:
    """The members of one source's groups, in an open transaction."""

    def __init__(self, source_id: int, clock: Clock, connection: Connection | None = None) -> None:
        self.source_id = source_id
        self._clock = clock
        self._connection = connection
        self.changed: dict[str, Changed] = {}
        """By id: the resources that the request changes."""
        self.pairs: set[tuple[str, str]] = set()
        """Groups and users: the request may change whether the user is a member of the group."""

    @property
    def connection(self) -> Connection:
        assert self._connection is not None  # noqa: S101 - within an operation
        return self._connection

    def _run(self, statement: str, **parameters: object) -> Sequence[Any]:
        result = run(self.connection, statement, {"source_id": self.source_id, **parameters})
        return result.all() if result.returns_rows else ()

    def change_members(
        self, group_id: str, *, add: Mapping[str, Member] | None = None, remove: Collection[str] = ()
    ) -> None:
        """Adds members to a group and removes some by their stored values, if that changes anything."""
        changed = False
        if remove:
            gone = self._stated(group_id, remove)
            if gone:
                self.note_pairs([group_id], gone)
                self._run(_REMOVE_MEMBERS, group_id=group_id, values=json_list(sorted(gone)))
                self._remove_pending(gone)
                changed = True
        if add:
            add = self._resolved(add)
            new = sorted(add.keys() - self._stated(group_id, add))
            if new:
                rows = json_lists([value, *add[value][1:]] for value in new)
                self._run(_ADD_MEMBERS, group_id=group_id, members=rows)
                names = json_lists([value, key_of(_PENDING, value)] for value in new)
                self._run(_ADD_PENDING, attribute=_PENDING, names=names)
                self.note_pairs([group_id], new)
                changed = True
        if changed and not self._is_new(group_id):
            self._touch(group_id)

    def remove_members(self, group_id: str, filters: Sequence[FilterNode]) -> None:
        """Removes the members that any of the filters selects. Raises ``InvalidValueException``."""
        names = {name for one in filters for name in names_in(one)}
        resources, pending = self._named(names), self._named(names, _PENDING)
        listed = names.union(*resources.values(), *pending.values()) if all(map(is_by_name, filters)) else None
        rows = self._run(
            _DESCRIBED if listed is None else f"{_DESCRIBED} AND m.value IN (@list(values))",
            group_id=group_id,
            values=json_list(sorted(listed or ())),
        )
        members = {value: (value, type_, display) for value, type_, display in rows}
        named: dict[str, set[str]] = {}
        for name in names:
            of_name = resources.get(name, set())
            found = {name} if name in of_name and name in members else of_name & members.keys()
            if not found and name not in members:
                found = pending.get(name, set()) & members.keys()
            if len(found) > 1:
                raise InvalidValueException(detail=f"members: several members have the name {name!r}: use their ids")
            named[name] = found | ({name} & members.keys())
        self.change_members(group_id, remove=set().union(*(selected(one, members, named) for one in filters)))

    def replace_members(self, group_id: str, members: Mapping[str, Member]) -> None:
        """Leaves a group with these members alone."""
        members = self._resolved(members)
        self.change_members(group_id, add=members, remove=self._stated(group_id) - members.keys())

    def _is_new(self, resource_id: str) -> bool:
        return resource_id in self.changed and self.changed[resource_id][1] is None

    def _touch(self, resource_id: str, **values: object) -> None:
        of_id = RESOURCE.c.source_id == self.source_id, RESOURCE.c.resource_id == resource_id
        values |= {"modified": epoch_ms(self._clock()), "version": RESOURCE.c.version + 1}
        self.connection.execute(update(RESOURCE).where(*of_id).values(values))

    def _stated(self, group_id: str, values: Iterable[str] | None = None) -> set[str]:
        """The members of a group, or those of ``values`` that are members."""
        if values is None:
            return {value for (value,) in self._run(_STATED, group_id=group_id)}
        listed = f"{_STATED} AND value IN (@list(values))"
        return {value for (value,) in self._run(listed, group_id=group_id, values=json_list(values))}

    def _named(self, names: Iterable[str], *attributes: str) -> dict[str, set[str]]:
        """Name → the ids of the resources that it names: by their ids, and by these attributes."""
        attributes = attributes or ("userName", "externalId")
        listed = json_lists([name, one, key_of(one, name)] for name in sorted(names) for one in attributes)
        found: dict[str, set[str]] = {}
        for name, resource_id in self._run(_NAMED, names=listed):
            found.setdefault(name, set()).add(resource_id)
        return found

    def _resolved(self, members: Mapping[str, Member]) -> dict[str, Member]:
        """The members by the ids of resources. A member that does not exist yet keeps its name."""
        resources = self._named(members)
        resolved = {}
        for name, (_, type_, display) in members.items():
            ids = resources.get(name, set())
            value = next(iter(ids)) if len(ids) == 1 else name
            resolved[value] = value, type_, display
        return resolved

    def _bind(self, *contents: Mapping[str, Any]) -> None:
        """Lets groups name resources by their ids that they named in other ways, if exactly one has the name now.

        ``contents``: those of a resource before and after the request.
        """
        names = (content.get(name) for content in contents for name in ("userName", "externalId"))
        keys = {key_of(_PENDING, str(name)) for name in names if name}
        stated = self._run(_BIND, attribute=_PENDING, keys=json_list(sorted(keys)))
        resources = self._named({name for _, name in stated}) if stated else {}
        for group_id, name in stated:
            ids = resources.get(name, ())
            if len(ids) == 1:
                self.change_members(group_id, add={one: (one, "", "") for one in ids}, remove=[name])

    def _remove_pending(self, names: Collection[str]) -> None:
        """Removes the keys of these names, if no group has a member of this name."""
        self._run(_REMOVE_PENDING, attribute=_PENDING, names=json_list(sorted(names)))

    def note_pairs(self, groups: Collection[str], values: Collection[str]) -> None:
        """Notes that users below these values may enter or leave these groups and those above."""
        above = [group_id for (group_id,) in self._run(_ABOVE, ids=json_list(sorted(groups)))]
        self.pairs.update((group_id, user) for user in self.users_below(values) for group_id in above)

    def users_below(self, values: Collection[str]) -> Sequence[str]:
        """The users among these members, and those in the groups among them."""
        return [user for (user,) in self._run(_USERS_BELOW, ids=json_list(sorted(values)))]

    def groups_of(self, users: Collection[str]) -> set[tuple[str, str]]:
        """Each group of these users, through any number of levels, with the user."""
        return {(group_id, user) for user, group_id in self._run(_GROUPS_OF, users=json_list(sorted(users)))}


def members_of(resource: Any) -> dict[str, Member]:
    """The members of a group, by value. Raises ``InvalidValueException``."""
    return members_from(
        {"value": one.value, "type": one.type, "display": one.display, "$ref": one.ref}
        for one in resource.members or ()
    )


def members_from(objects: Iterable[object]) -> dict[str, Member]:
    """The same from JSON objects."""
    members = {}
    for one in objects:
        fields = {name.lower(): text for name, text in one.items()} if isinstance(one, dict) else {"value": one}
        value, reference = fields.get("value"), fields.get("$ref")
        if not value and isinstance(reference, str):
            value = reference.rstrip("/").rpartition("/")[2]
        if not isinstance(value, str) or not 0 < len(value.encode(errors="replace")) <= _MAX_KEY_BYTES:
            raise InvalidValueException(detail=f"members: value must be a text of 1 to {_MAX_KEY_BYTES} bytes")
        type_, display = fields.get("type"), fields.get("display")
        type_ = next((known for known in (USER, GROUP) if str(type_).lower() == known.lower()), "")
        members[value] = value, type_, display if isinstance(display, str) else ""
    return members


def key_of(attribute: str, value: str) -> str:
    """The form of an attribute's value by which it is looked up: exact for ``externalId``, otherwise in lower case."""
    key = value
    if attribute != "externalId":
        key = unicodedata.normalize("NFC", unicodedata.normalize("NFC", value).lower())
    data = key.encode(errors="replace")
    return key if len(data) <= _MAX_KEY_BYTES else f"#{blake2b(data, digest_size=16).hexdigest()}"
