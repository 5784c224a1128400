"""Stores the members of SCIM groups. ``StoredMembers`` is the base of ``StoredResources`` (``storage.py``).

A member may be named before its resource exists. The name is then stored as *pending*, and replaced by the id when
exactly one resource has it. A change of members is a few statements, however large the group is. It also finds the
users whose memberships it may change.
"""

import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from itertools import product
from typing import Any, NamedTuple

from scim2_models import InvalidValueException
from scim2_models.path import FilterNode
from sqlalchemy import Connection, Row, Table, update

from app.access.source_tables import ScimResourceRow
from app.directory.connectors.scim.objects import GROUP, USER
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.statements import json_list, json_lists, run
from app.foundation.ids import MAX_ID_BYTES
from app.service.scim.selection import ScimMember, is_by_name, names_in, select_members

RESOURCE: Table = ScimResourceRow.__table__

_PENDING = "member"
"""The attribute under which the table ``scim_key`` has pending names. The statements below contain it, too."""

NAME_ATTRIBUTES = ("userName", "externalId")
"""The attributes by which directories name members, beside their ids."""


class ResourceChange(NamedTuple):
    """The change of a resource by a request. Its content is None if it does not exist."""

    type: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


# ``app.foundation.database.statements`` defines the markers, such as ``@list``.
#
# Without statistics, PostgreSQL takes these tables for small, and would compare each of their rows with each text of a
# list. It does not reorder subqueries for a single value, and those with a limit: they look up each text by index.

_IDS_BY_NAME = """
SELECT '', listed.value, listed.value FROM (@list(names)) AS listed
WHERE (SELECT r.type FROM scim_resource r WHERE r.source_id = :source_id AND r.resource_id = listed.value) IS NOT NULL
UNION ALL
SELECT @part(listed.value, 0), @part(listed.value, 1), found.value FROM (@list(keys)) AS listed CROSS JOIN @rows(
  SELECT k.resource_id AS value FROM scim_key k WHERE k.source_id = :source_id
  AND k.attribute = @part(listed.value, 0) AND k.value = @part(listed.value, 1) LIMIT 1000000000) AS found
"""

_GIVEN_MEMBERS = """
SELECT CAST(:group_id AS TEXT) AS group_id, listed.value AS value FROM (@list(values)) AS listed WHERE (
  SELECT m.value FROM scim_member m
  WHERE m.source_id = :source_id AND m.group_id = :group_id AND m.value = listed.value) IS NOT NULL
"""

_MEMBERS = """
SELECT listed.value AS group_id, found.value AS value FROM (@list(ids)) AS listed CROSS JOIN @rows(
  SELECT m.value FROM scim_member m
  WHERE m.source_id = :source_id AND m.group_id = listed.value ORDER BY m.value LIMIT 1000000000) AS found
"""

_DESCRIBE = """
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
        self.changes: dict[str, ResourceChange] = {}
        """Id → the change of the resource by the request."""
        self.rows: dict[str, Row[Any]] = {}
        """Id → the row of a resource that was read or changed."""
        self.affected_pairs: set[tuple[str, str]] = set()
        """Groups and users: the request may change whether the user is a member of the group."""

    @property
    def connection(self) -> Connection:
        assert self._connection is not None  # noqa: S101 - within an operation
        return self._connection

    def _run(self, statement: str, **parameters: object) -> Sequence[Any]:
        result = run(self.connection, statement, {"source_id": self.source_id, **parameters})
        return result.all() if result.returns_rows else ()

    def _run_each(self, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        parameters = [{"source_id": self.source_id, **row} for row in rows]
        if parameters:
            run(self.connection, statement, parameters)

    # Changes.

    def change_members(
        self, group_id: str, *, add: Mapping[str, ScimMember] | None = None, remove: Collection[str] = ()
    ) -> None:
        """Adds members to a group and removes some by their stored values, if that changes anything."""
        removed = self._direct_members(group_id, remove) if remove else set[str]()
        if removed:
            self.add_affected(group_id, removed)
            self._run_each(_REMOVE_MEMBER, ({"group_id": group_id, "value": value} for value in removed))
            self._remove_unused_pending(removed)
        new: Sequence[str] = ()
        if add:
            add, existing = self._resolve(add)
            new = sorted(add.keys() - self._direct_members(group_id, add))
        if add and new:
            self._run(_ADD_MEMBERS, group_id=group_id, members=json_lists(add[value] for value in new))
            pending = [[value, lookup_key(_PENDING, value)] for value in new if value not in existing]
            if pending:
                self._run(_ADD_PENDING, names=json_lists(pending))
            self.add_affected(group_id, new)
        is_created = group_id in self.changes and self.changes[group_id].before is None
        if (removed or new) and not is_created:
            self._update_resource(group_id)

    def remove_members(self, group_id: str, filters: Sequence[FilterNode]) -> None:
        """Removes the members that any of the filters selects. Raises ``InvalidValueException``."""
        names = {name for filter_ in filters for name in names_in(filter_)}
        resources, pending = self._ids_by_name(names), self._ids_by_name(names, [_PENDING])
        is_limited = all(map(is_by_name, filters))
        candidates = names.union(*resources.values(), *pending.values()) if is_limited else None
        members = {member.value: member for _, member in self.members([group_id], candidates)}
        by_name: dict[str, set[str]] = {}
        for name in names:
            ids = resources.get(name, set())
            matches = {name} if name in ids and name in members else ids & members.keys()
            if not matches and name not in members:
                matches = pending.get(name, set()) & members.keys()
            if len(matches) > 1:
                raise InvalidValueException(detail=f"members: several members have the name {name!r}: use their ids")
            by_name[name] = matches | ({name} & members.keys())
        selected = (select_members(filter_, members.keys(), members, by_name) for filter_ in filters)
        self.change_members(group_id, remove=set().union(*selected))

    def replace_members(self, group_id: str, members: Mapping[str, ScimMember]) -> None:
        members, _ = self._resolve(members)
        self.change_members(group_id, add=members, remove=self._direct_members(group_id) - members.keys())

    def _update_resource(self, resource_id: str, **values: object) -> None:
        """Increases the version of a resource, and stores further values."""
        has_id = RESOURCE.c.source_id == self.source_id, RESOURCE.c.resource_id == resource_id
        values |= {"modified": epoch_ms(self._clock()), "version": RESOURCE.c.version + 1}
        statement = update(RESOURCE).where(*has_id).values(values).returning(RESOURCE)
        self.rows[resource_id] = self.connection.execute(statement).one()

    # Lookups.

    def _direct_members(self, group_id: str, values: Iterable[str] | None = None) -> set[str]:
        """The members of a group, or those of ``values`` that are members."""
        if values is None:
            return {value for _, value in self._run(_MEMBERS, ids=json_list([group_id]))}
        return {value for _, value in self._run(_GIVEN_MEMBERS, group_id=group_id, values=json_list(values))}

    def members(self, groups: Sequence[str], values: Iterable[str] | None = None) -> Sequence[tuple[str, ScimMember]]:
        """The members, each with its group. ``values``: only these, of a single group."""
        if values is None:
            query, parameters = _MEMBERS, {"ids": json_list(groups)}
        else:
            query, parameters = _GIVEN_MEMBERS, {"group_id": groups[0], "values": json_list(values)}
        rows = self._run(_DESCRIBE.replace("{members}", query), **parameters)
        return [(group_id, ScimMember(*fields)) for group_id, *fields in rows]

    def _ids_by_name(self, names: Collection[str], attributes: Sequence[str] = NAME_ATTRIBUTES) -> dict[str, set[str]]:
        """Name → the ids of the resources that it names: by their ids, and by these attributes."""
        names_by_key: dict[tuple[str, str], list[str]] = {}
        for name in names:
            for attribute in ("", *attributes):
                key = lookup_key(attribute, name) if attribute else name
                names_by_key.setdefault((attribute, key), []).append(name)
        ids: dict[str, set[str]] = {}
        keys = json_lists(key for key in names_by_key if key[0])
        for attribute, key, resource_id in self._run(_IDS_BY_NAME, names=json_list(names), keys=keys) if names else ():
            for name in names_by_key.get((attribute, key), ()):
                ids.setdefault(name, set()).add(resource_id)
        return ids

    def _resolve(self, members: Mapping[str, ScimMember]) -> tuple[dict[str, ScimMember], AbstractSet[str]]:
        """The members by the ids of their resources, and those that exist. Others keep their names."""
        ids_by_name = self._ids_by_name(members)
        resolved = {}
        for name, member in members.items():
            ids = ids_by_name.get(name, set())
            value = next(iter(ids)) if len(ids) == 1 else name
            resolved[value] = member._replace(value=value)
        return resolved, resolved.keys() & set().union(*ids_by_name.values())

    # Pending names.

    def _resolve_pending(self, *contents: Mapping[str, Any]) -> None:
        """Replaces pending names that exactly one resource has by its id. ``contents``: those before and after."""
        names = (content.get(name) for content in contents for name in NAME_ATTRIBUTES)
        keys = {lookup_key(_PENDING, str(name)) for name in names if name}
        pending = self._run(_PENDING_NAMES, keys=json_list(keys)) if keys else ()
        ids_by_name = self._ids_by_name({name for (name,) in pending})
        unique = {name: min(ids) for name, ids in ids_by_name.items() if len(ids) == 1}
        for name, group_id in self._run(_GROUPS, ids=json_list(unique)) if unique else ():
            self.change_members(group_id, add={unique[name]: ScimMember(unique[name], "", "")}, remove=[name])

    def _remove_unused_pending(self, names: Collection[str]) -> None:
        """Removes pending names that no group has as a member."""
        pairs = json_lists([name, lookup_key(_PENDING, name)] for name in names)
        unused = self._run(_UNUSED_PENDING, names=pairs)
        self._run_each(_REMOVE_PENDING, ({"name": name, "key": key} for name, key in unused))

    # Nested groups.

    def add_affected(self, group_id: str, values: Collection[str]) -> None:
        """Adds to ``affected_pairs``: users below these values may enter or leave this group and those above."""
        self.affected_pairs.update(product(self._graph(_GROUPS, [group_id]), self.users_below(values)))

    def users_below(self, values: Collection[str]) -> Sequence[str]:
        """The users among these members, and those in the groups among them."""
        return [user for (user,) in self._run(_USERS, ids=json_list(self._graph(_MEMBERS, values)))]

    def groups_of(self, users: Collection[str]) -> set[tuple[str, str]]:
        """Each group of these users, through any number of levels, with the user."""
        graph = self._graph(_GROUPS, users)
        return {(group_id, user) for user in users for group_id in _reachable(graph, user)}

    def _graph(self, statement: str, ids: Collection[str]) -> dict[str, set[str]]:
        """These ids and all that a statement leads to, level by level: id → where it leads."""
        graph: dict[str, set[str]] = {}
        new = set(ids)
        while new:
            graph |= {id_: set() for id_ in new}
            for id_, other in self._run(statement, ids=json_list(new)):
                graph[id_].add(other)
            new = set().union(*(graph[id_] for id_ in new)) - graph.keys()
        return graph


def _reachable(graph: Mapping[str, AbstractSet[str]], start: str) -> AbstractSet[str]:
    """All that can be reached from ``start``."""
    reached, new = set[str](), {start}
    while new:
        new = set().union(*(graph[id_] for id_ in new)) - reached
        reached |= new
    return reached


def members_of(resource: Any) -> dict[str, ScimMember]:
    """The members of a group, by value. Raises ``InvalidValueException``."""
    return members_from(
        {"value": member.value, "type": member.type, "display": member.display, "$ref": member.ref}
        for member in resource.members or ()
    )


def members_from(objects: Iterable[Mapping[str, Any]]) -> dict[str, ScimMember]:
    """The members in JSON objects, by value. Raises ``InvalidValueException``."""
    members = {}
    for object_ in objects:
        fields = {name.lower(): text for name, text in object_.items()}
        value, reference, display = fields.get("value"), fields.get("$ref"), fields.get("display")
        if not value and isinstance(reference, str):
            value = reference.rstrip("/").rpartition("/")[2]
        if not isinstance(value, str) or not 0 < len(value.encode(errors="replace")) <= MAX_ID_BYTES:
            raise InvalidValueException(detail=f"members: value must be a text of 1 to {MAX_ID_BYTES} bytes")
        type_ = next((type_ for type_ in (USER, GROUP) if type_.lower() == str(fields.get("type")).lower()), "")
        members[value] = ScimMember(value, type_, display if isinstance(display, str) else "")
    return members


def lookup_key(attribute: str, value: str) -> str:
    """The form of an attribute's value by which it is looked up: exact for ``externalId``, otherwise in lower case."""
    key = value
    if attribute != "externalId":
        key = unicodedata.normalize("NFC", unicodedata.normalize("NFC", value).lower())
    data = key.encode(errors="replace")
    return key if len(data) <= MAX_ID_BYTES else f"#{blake2b(data, digest_size=16).hexdigest()}"
