"""Stores the members of groups, and finds the users whose memberships a request may change.

A change of members is a few statements, however large the group is.
"""

import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from itertools import product
from typing import Any

from scim2_models import InvalidValueException
from scim2_models.path import FilterNode
from sqlalchemy import Connection, Row, Table, update

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

# Without statistics, PostgreSQL takes these tables for small, and would compare each of their rows with each text of a
# list. It does not reorder subqueries for a single value, and those with a limit: they look up each text by index.

_NAMED = """
SELECT '', listed.value, listed.value FROM (@list(names)) AS listed
WHERE (SELECT r.type FROM scim_resource r WHERE r.source_id = :source_id AND r.resource_id = listed.value) IS NOT NULL
UNION ALL
SELECT @part(listed.value, 0), @part(listed.value, 1), found.value FROM (@list(keys)) AS listed CROSS JOIN @rows(
  SELECT k.resource_id AS value FROM scim_key k WHERE k.source_id = :source_id
  AND k.attribute = @part(listed.value, 0) AND k.value = @part(listed.value, 1) LIMIT 1000000000) AS found
"""

_STATED = """
SELECT CAST(:group_id AS TEXT) AS group_id, listed.value AS value FROM (@list(values)) AS listed WHERE (
  SELECT m.value FROM scim_member m
  WHERE m.source_id = :source_id AND m.group_id = :group_id AND m.value = listed.value) IS NOT NULL
"""

_MEMBERS = """
SELECT listed.value AS group_id, found.value AS value FROM (@list(ids)) AS listed CROSS JOIN @rows(
  SELECT m.value FROM scim_member m
  WHERE m.source_id = :source_id AND m.group_id = listed.value ORDER BY m.value LIMIT 1000000000) AS found
"""

_DESCRIBED = """
SELECT m.group_id, m.value,
  COALESCE((SELECT r.type FROM scim_resource r WHERE r.source_id = :source_id AND r.resource_id = m.value), (
    SELECT s.type FROM scim_member s
    WHERE s.source_id = :source_id AND s.group_id = m.group_id AND s.value = m.value)),
  (SELECT s.display FROM scim_member s WHERE s.source_id = :source_id AND s.group_id = m.group_id AND s.value = m.value)
FROM ({members}) AS m
"""

_ADD_MEMBERS = """
INSERT INTO scim_member (source_id, group_id, value, type, display)
SELECT :source_id, :group_id, @part(listed.value, 0), @part(listed.value, 1), @part(listed.value, 2)
FROM (@list(members)) AS listed
"""

_REMOVE_MEMBER = "DELETE FROM scim_member WHERE source_id = :source_id AND group_id = :group_id AND value = :value"

_ADD_PENDING = """
INSERT INTO scim_key (source_id, attribute, value, resource_id)
SELECT :source_id, 'member', @part(listed.value, 1), @part(listed.value, 0) FROM (@list(names)) AS listed
WHERE true ON CONFLICT DO NOTHING
"""

_UNUSED_PENDING = """
SELECT @part(listed.value, 0), @part(listed.value, 1) FROM (@list(names)) AS listed
WHERE (
  SELECT k.value FROM scim_key k WHERE k.source_id = :source_id AND k.attribute = 'member'
  AND k.value = @part(listed.value, 1) AND k.resource_id = @part(listed.value, 0)) IS NOT NULL
AND (
  SELECT m.value FROM scim_member m WHERE m.source_id = :source_id AND m.value = @part(listed.value, 0) LIMIT 1) IS NULL
"""

_REMOVE_PENDING = """
DELETE FROM scim_key
WHERE source_id = :source_id AND attribute = 'member' AND value = :key AND resource_id = :name
"""

_PENDING_NAMES = """
SELECT found.value FROM (@list(keys)) AS listed CROSS JOIN @rows(
  SELECT k.resource_id AS value FROM scim_key k
  WHERE k.source_id = :source_id AND k.attribute = 'member' AND k.value = listed.value LIMIT 1000000000) AS found
"""

_GROUPS = """
SELECT listed.value, found.value FROM (@list(ids)) AS listed CROSS JOIN @rows(
  SELECT m.group_id AS value FROM scim_member m
  WHERE m.source_id = :source_id AND m.value = listed.value LIMIT 1000000000) AS found
"""

_USERS = """
SELECT listed.value FROM (@list(ids)) AS listed WHERE (
  SELECT r.type FROM scim_resource r WHERE r.source_id = :source_id AND r.resource_id = listed.value) = 'User'
"""


class StoredMembers:
    """The members of one source's groups, in an open transaction."""

    def __init__(self, source_id: int, clock: Clock, connection: Connection | None = None) -> None:
        self.source_id = source_id
        self._clock = clock
        self._connection = connection
        self.changed: dict[str, Changed] = {}
        """By id: the resources that the request changes."""
        self.rows: dict[str, Row[Any]] = {}
        """By id: the rows of resources that were read or changed."""
        self.pairs: set[tuple[str, str]] = set()
        """Groups and users: the request may change whether the user is a member of the group."""

    @property
    def connection(self) -> Connection:
        assert self._connection is not None  # noqa: S101 - within an operation
        return self._connection

    def _run(self, statement: str, **parameters: object) -> Sequence[Any]:
        result = run(self.connection, statement, {"source_id": self.source_id, **parameters})
        return result.all() if result.returns_rows else ()

    def _run_each(self, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        """Executes a statement for each of these parameters."""
        of_source = [{"source_id": self.source_id, **row} for row in rows]
        if of_source:
            run(self.connection, statement, of_source)

    def change_members(
        self, group_id: str, *, add: Mapping[str, Member] | None = None, remove: Collection[str] = ()
    ) -> None:
        """Adds members to a group and removes some by their stored values, if that changes anything."""
        changed = False
        if remove:
            gone = self._stated(group_id, remove)
            if gone:
                self.note_pairs([group_id], gone)
                self._run_each(_REMOVE_MEMBER, ({"group_id": group_id, "value": value} for value in gone))
                self._remove_pending(gone)
                changed = True
        if add:
            add, existing = self._resolved(add)
            new = sorted(add.keys() - self._stated(group_id, add))
            if new:
                rows = json_lists([value, *add[value][1:]] for value in new)
                self._run(_ADD_MEMBERS, group_id=group_id, members=rows)
                pending = [[value, key_of(_PENDING, value)] for value in new if value not in existing]
                if pending:
                    self._run(_ADD_PENDING, names=json_lists(pending))
                self.note_pairs([group_id], new)
                changed = True
        if changed and not self._is_new(group_id):
            self._touch(group_id)

    def remove_members(self, group_id: str, filters: Sequence[FilterNode]) -> None:
        """Removes the members that any of the filters selects. Raises ``InvalidValueException``."""
        names = {name for one in filters for name in names_in(one)}
        resources, pending = self._named(names), self._named(names, _PENDING)
        is_listed = all(map(is_by_name, filters))
        listed = names.union(*resources.values(), *pending.values()) if is_listed else None
        members = {found[0]: found for _, found in self.described([group_id], listed)}
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
        members, _ = self._resolved(members)
        self.change_members(group_id, add=members, remove=self._stated(group_id) - members.keys())

    def _is_new(self, resource_id: str) -> bool:
        return resource_id in self.changed and self.changed[resource_id][1] is None

    def _touch(self, resource_id: str, **values: object) -> None:
        of_id = RESOURCE.c.source_id == self.source_id, RESOURCE.c.resource_id == resource_id
        values |= {"modified": epoch_ms(self._clock()), "version": RESOURCE.c.version + 1}
        changed = update(RESOURCE).where(*of_id).values(values).returning(RESOURCE)
        self.rows[resource_id] = self.connection.execute(changed).one()

    def _stated(self, group_id: str, values: Iterable[str] | None = None) -> set[str]:
        """The members of a group, or those of ``values`` that are members."""
        if values is None:
            return {value for _, value in self._run(_MEMBERS, ids=json_list([group_id]))}
        return {value for _, value in self._run(_STATED, group_id=group_id, values=json_list(values))}

    def described(self, groups: Sequence[str], values: Iterable[str] | None = None) -> Sequence[tuple[str, Member]]:
        """The members, each with its group; ``values``: only these, of a single group."""
        if values is None:
            query, parameters = _MEMBERS, {"ids": json_list(groups)}
        else:
            query, parameters = _STATED, {"group_id": groups[0], "values": json_list(values)}
        rows = self._run(_DESCRIBED.replace("{members}", query), **parameters)
        return [(group_id, (value, type_, display)) for group_id, value, type_, display in rows]

    def _named(self, names: Collection[str], *attributes: str) -> dict[str, set[str]]:
        """Name → the ids of the resources that it names: by their ids, and by these attributes."""
        attributes = attributes or ("userName", "externalId")
        names_of: dict[tuple[str, str], list[str]] = {}
        for name in names:
            for attribute in ("", *attributes):
                names_of.setdefault((attribute, key_of(attribute, name) if attribute else name), []).append(name)
        found: dict[str, set[str]] = {}
        keys = json_lists(key for key in names_of if key[0])
        for attribute, key, resource_id in self._run(_NAMED, names=json_list(names), keys=keys) if names else ():
            for name in names_of.get((attribute, key), ()):
                found.setdefault(name, set()).add(resource_id)
        return found

    def _resolved(self, members: Mapping[str, Member]) -> tuple[dict[str, Member], AbstractSet[str]]:
        """The members by the ids of resources, and those that exist. Another one keeps its name."""
        resources = self._named(members)
        resolved = {}
        for name, (_, type_, display) in members.items():
            ids = resources.get(name, set())
            value = next(iter(ids)) if len(ids) == 1 else name
            resolved[value] = value, type_, display
        return resolved, resolved.keys() & set().union(*resources.values())

    def _bind(self, *contents: Mapping[str, Any]) -> None:
        """Lets groups name resources by their ids that they named in other ways, if exactly one has the name now.

        ``contents``: those of a resource before and after the request.
        """
        names = (content.get(name) for content in contents for name in ("userName", "externalId"))
        keys = {key_of(_PENDING, str(name)) for name in names if name}
        pending = self._run(_PENDING_NAMES, keys=json_list(keys)) if keys else ()
        bound = {name: ids for name, ids in self._named({name for (name,) in pending}).items() if len(ids) == 1}
        for name, group_id in self._run(_GROUPS, ids=json_list(bound)) if bound else ():
            self.change_members(group_id, add={one: (one, "", "") for one in bound[name]}, remove=[name])

    def _remove_pending(self, names: Collection[str]) -> None:
        """Removes the keys of these names, if no group has a member of this name."""
        pairs = json_lists([name, key_of(_PENDING, name)] for name in names)
        unused = self._run(_UNUSED_PENDING, names=pairs)
        self._run_each(_REMOVE_PENDING, ({"name": name, "key": key} for name, key in unused))

    def note_pairs(self, groups: Collection[str], values: Collection[str]) -> None:
        """Notes that users below these values may enter or leave these groups and those above."""
        above, _ = self._walk(_GROUPS, groups)
        self.pairs.update(product(above, self.users_below(values)))

    def users_below(self, values: Collection[str]) -> Sequence[str]:
        """The users among these members, and those in the groups among them."""
        below, _ = self._walk(_MEMBERS, values)
        return [user for (user,) in self._run(_USERS, ids=json_list(below))]

    def groups_of(self, users: Collection[str]) -> set[tuple[str, str]]:
        """Each group of these users, through any number of levels, with the user."""
        _, groups = self._walk(_GROUPS, users)
        return {(group_id, user) for user in users for group_id in _reached(groups, user)}

    def _walk(self, statement: str, ids: Collection[str]) -> tuple[set[str], dict[str, set[str]]]:
        """These ids and all that a statement leads to, level by level; and where it leads from each."""
        found, new = set(ids), set(ids)
        leads: dict[str, set[str]] = {}
        while new:
            for one, other in self._run(statement, ids=json_list(new)):
                leads.setdefault(one, set()).add(other)
            new = set().union(*(leads.get(one, ()) for one in new)) - found
            found |= new
        return found, leads


def _reached(leads: Mapping[str, AbstractSet[str]], start: str) -> AbstractSet[str]:
    """All that can be reached from ``start``."""
    found, new = set[str](), {start}
    while new:
        new = set().union(*(leads.get(one, ()) for one in new)) - found
        found |= new
    return found


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
