"""Stores the members of groups, and finds the users whose memberships a request may change.

A change of members is a few statements, however large the group is.
"""

import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import orjson
from scim2_models import InvalidValueException
from sqlalchemy import Connection, Table, update

from app.access.source_tables import ScimResourceRow
from app.directory.connectors.scim.objects import GROUP, USER
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.statements import json_list, json_lists, run

RESOURCE: Table = ScimResourceRow.__table__

_MAX_KEY_BYTES = 512

Member = tuple[str, str, str]
"""The value, type and display name of a member."""

Changed = tuple[str, dict[str, Any] | None, dict[str, Any] | None]
"""The type of a resource, and its content before and after the request; None: it does not exist."""

_RESOLVED = """
SELECT listed.value, (SELECT CASE WHEN COUNT(DISTINCT k.resource_id) = 1 THEN MIN(k.resource_id) END FROM scim_key k
  WHERE k.source_id = :source_id AND k.attribute IN ('userName', 'externalId') AND k.value = @part(listed.value, 1))
FROM (@list(values)) AS listed
WHERE NOT EXISTS (
  SELECT 1 FROM scim_resource r WHERE r.source_id = :source_id AND r.resource_id = @part(listed.value, 0))
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

_BIND = """
SELECT group_id, value FROM scim_member WHERE source_id = :source_id AND value IN (@list(names))
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
        """Adds and removes members of a group, if that changes anything."""
        changed = False
        if remove:
            gone = self._stated(group_id, [*remove, *self._resolved({value: (value, "", "") for value in remove})])
            if gone:
                self.note_pairs([group_id], gone)
                self._run(_REMOVE_MEMBERS, group_id=group_id, values=json_list(sorted(gone)))
                changed = True
        if add:
            add = self._resolved(add)
            new = add.keys() - self._stated(group_id, add)
            if new:
                rows = json_lists([value, *add[value][1:]] for value in sorted(new))
                self._run(_ADD_MEMBERS, group_id=group_id, members=rows)
                self.note_pairs([group_id], new)
                changed = True
        if changed and not self._is_new(group_id):
            self._touch(group_id)

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

    def _resolved(self, members: Mapping[str, Member]) -> dict[str, Member]:
        """The members by the ids of resources. A member that does not exist yet keeps its name."""
        names = json_lists([value, key_of(value)] for value in members)
        ids = {orjson.loads(name)[0]: found for name, found in self._run(_RESOLVED, values=names) if found is not None}
        if not ids:
            return dict(members)
        named = ((ids.get(value, value), member) for value, member in members.items())
        return {value: (value, type_, display) for value, (_, type_, display) in named}

    def _bind(self, resource_id: str, type_: str, content: Mapping[str, Any]) -> None:
        """Lets groups that named a resource before it existed name it by its id."""
        if type_ != USER:
            return
        names = {str(content[name]) for name in ("userName", "externalId") if content.get(name)} - {resource_id}
        for group_id, value in self._run(_BIND, names=json_list(sorted(names))):
            if self._resolved({value: (value, "", "")}).keys() == {resource_id}:
                self.change_members(group_id, add={resource_id: (resource_id, USER, "")}, remove=[value])

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


def key_of(value: str) -> str:
    """The form of a value by which it is looked up."""
    key = unicodedata.normalize("NFC", unicodedata.normalize("NFC", value).lower())
    data = key.encode(errors="replace")
    return key if len(data) <= _MAX_KEY_BYTES else f"#{blake2b(data, digest_size=16).hexdigest()}"
