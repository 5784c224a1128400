"""Stores SCIM resources in Usher's database, and records what a request changes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import orjson
from scim2_models import (
    InvalidValueException,
    Meta,
    NotFoundException,
    PreconditionFailedException,
    Resource,
    ResourceType,
    ResponseParameters,
    ScimFilter,
    ScimProvider,
    SearchRequest,
    UniquenessException,
)
from scim2_models.path import Comparison, FilterNode, LogicalExpr, ValuePath
from scim2_models.path.expressions import CompareOperator, LogicalOperator
from scim2_server.storage import ScimStorage, SearchPage
from sqlalchemy import Connection, Row, Table, delete, func, insert, select

from app.access.source_tables import ScimKeyRow, ScimMemberRow
from app.directory.connectors.scim.objects import GROUP, USER, is_active
from app.foundation.clock import Clock, epoch_ms, from_epoch_ms
from app.foundation.database.statements import json_list
from app.service.scim.members import NAME_ATTRIBUTES, RESOURCE, ResourceChange, StoredMembers, lookup_key, members_of
from app.service.scim.selection import ScimMember

KEY: Table = ScimKeyRow.__table__
MEMBER: Table = ScimMemberRow.__table__

MAX_MEMBERS_PER_PAGE = 50_000
"""A page of a list ends before it has more members than this, but has one group at least."""

_NOT_STORED = frozenset({"id", "meta", "members", "password", "groups"})
"""The attributes that the stored content lacks."""
_KEYS = ("userName", "externalId", "displayName")
"""The attributes with a row in ``scim_key``, beside ``emails``."""

# ``app.foundation.database.statements`` defines the markers, such as ``@list``.

_COUNT_MEMBERS = """
SELECT listed.value, (SELECT COUNT(*) FROM scim_member m WHERE m.source_id = :source_id AND m.group_id = listed.value)
FROM (@list(groups)) AS listed
"""

_TAKEN = """
SELECT 1 FROM scim_key k
WHERE k.source_id = :source_id AND k.attribute = :attribute AND k.value = :value AND k.resource_id <> :resource_id
AND (SELECT r.type FROM scim_resource r WHERE r.source_id = k.source_id AND r.resource_id = k.resource_id) = 'User'
"""

_REMOVE_KEYS = (
    "DELETE FROM scim_key WHERE source_id = :source_id AND resource_id = :resource_id AND attribute <> 'member'"
)

_CONTENTS = """
SELECT listed.value, (
  SELECT r.content FROM scim_resource r WHERE r.source_id = :source_id AND r.resource_id = listed.value)
FROM (@list(ids)) AS listed
"""


def keeps_members(parameters: ResponseParameters[Any] | None) -> bool:
    """Whether a response has the members of groups."""
    if parameters is None:
        return True
    included, excluded = (
        {str(path).rpartition(":")[2].lower().partition("[")[0] for path in paths or ()}
        for paths in (parameters.attributes, parameters.excluded_attributes)
    )
    return any(name.partition(".")[0] == "members" for name in included) if included else "members" not in excluded


class StoredResources(StoredMembers, ScimStorage):
    """The resources of one source, in an open transaction."""

    def __init__(
        self,
        provider: ScimProvider,
        source_id: int,
        *,
        new_id: Callable[[], str],
        clock: Clock,
        connection: Connection | None = None,
    ) -> None:
        super().__init__(source_id, clock, connection)
        self._provider = provider
        self._new_id = new_id

    # Reading.

    def get(
        self,
        resource_type: ResourceType,
        resource_id: str,
        *,
        response_parameters: ResponseParameters[Any] | None = None,
    ) -> Resource[Any]:
        return self.load(resource_type, resource_id, with_members=keeps_members(response_parameters))

    def load(self, resource_type: ResourceType, resource_id: str, *, with_members: bool) -> Resource[Any]:
        """A resource, perhaps with its members. Raises ``NotFoundException``."""
        return self._resources([self._row(resource_type, resource_id)], with_members=with_members)[0]

    def search(
        self,
        resource_types: list[ResourceType],
        search_request: SearchRequest[Any],
        *,
        position: Any = None,  # noqa: ARG002 - of cursors, which are not supported
    ) -> SearchPage:
        types = [str(type_.name) for type_ in resource_types]
        of_types = RESOURCE.c.source_id == self.source_id, RESOURCE.c.type.in_(types)
        with_members = keeps_members(search_request)
        of_request = select(RESOURCE).where(*of_types)
        in_order = of_request.order_by(RESOURCE.c.created, RESOURCE.c.resource_id)
        start = search_request.start_index_0 or 0
        if search_request.filter is None and search_request.sort_by is None:
            total = self.connection.execute(select(func.count()).select_from(RESOURCE).where(*of_types)).scalar_one()
            page = in_order.offset(start).limit(search_request.count)
            rows = self._within_limit(self.connection.execute(page).all(), with_members=with_members)
            return SearchPage(total, self._resources(rows, with_members=with_members))
        candidates = None if search_request.filter is None else self._candidates(search_request.filter.ast)
        if candidates is None:
            rows = self.connection.execute(in_order).all()
        else:
            # Sorted here: for an order, SQLite reads all resources of the type from an index.
            few = self.connection.execute(of_request.where(RESOURCE.c.resource_id.in_(candidates)))
            rows = sorted(few, key=lambda row: (row.created, row.resource_id))
        matches = self._matching(rows, search_request.filter)
        if search_request.sort_by is not None:
            matches = search_request.sort(matches)
        stop = None if search_request.count is None else start + search_request.count
        by_id = {row.resource_id: row for row in rows}
        rows = self._within_limit([by_id[resource.id] for resource in matches[start:stop]], with_members=with_members)
        return SearchPage(len(matches), self._resources(rows, with_members=with_members))

    def _matching(self, rows: Sequence[Row[Any]], scim_filter: ScimFilter[Any] | None) -> list[Resource[Any]]:
        if scim_filter is None:
            return self._resources(rows, with_members=False)
        with_members = "members" in str(scim_filter).lower()
        matches = []
        for row in rows:
            (resource,) = self._resources([row], with_members=with_members)
            # The filter of a search at the root is bound to no type.
            bound: type[ScimFilter[Any]] = ScimFilter.__class_getitem__(type(resource))
            if (scim_filter if scim_filter.models else bound(str(scim_filter))).match(resource):
                matches.append(resource)
        return matches

    def _candidates(self, node: FilterNode) -> set[str] | None:
        """The ids of the resources that may match a filter, by index. None: all."""
        if isinstance(node, LogicalExpr):
            parts = [self._candidates(term) for term in node.terms]
            if node.op == LogicalOperator.and_:
                limited = [part for part in parts if part is not None]
                return set.intersection(*limited) if limited else None
            return None if any(part is None for part in parts) else set().union(*(part or () for part in parts))
        if isinstance(node, ValuePath) and node.attr_path.attr.lower() in ("emails", "members"):
            inner = node.val_filter
            is_and = isinstance(inner, LogicalExpr) and inner.op == LogicalOperator.and_
            terms = inner.terms if isinstance(inner, LogicalExpr) and is_and else (inner,)
            equal = (term for term in terms if isinstance(term, Comparison) and str(term.attr_path).lower() == "value")
            return next((self._equal(node.attr_path.attr, term) for term in equal), None)
        if isinstance(node, Comparison) and node.attr_path.sub_attr in (None, "value"):
            return self._equal(node.attr_path.attr, node)
        return None

    def _equal(self, attribute: str, node: Comparison) -> set[str] | None:
        if node.op != CompareOperator.eq or not isinstance(node.value, str):
            return None
        name = attribute.lower()
        if name == "id":
            return {node.value}
        if name == "members":
            of_value = MEMBER.c.source_id == self.source_id, MEMBER.c.value == node.value
            return set(self.connection.execute(select(MEMBER.c.group_id).where(*of_value)).scalars())
        key = next((key for key in (*_KEYS, "emails") if key.lower() == name), None)
        if key is None:
            return None
        value = lookup_key(key, node.value)
        of_key = KEY.c.source_id == self.source_id, KEY.c.attribute == key, KEY.c.value == value
        return set(self.connection.execute(select(KEY.c.resource_id).where(*of_key)).scalars())

    def _within_limit(self, rows: Sequence[Row[Any]], *, with_members: bool) -> Sequence[Row[Any]]:
        """The first rows, which together have few enough members."""
        groups = [row.resource_id for row in rows if row.type == GROUP] if with_members else []
        if not groups:
            return rows
        counts = dict(self._run(_COUNT_MEMBERS, groups=json_list(groups)))
        members = 0
        for position, row in enumerate(rows):
            members += counts.get(row.resource_id, 0)
            if position and members > MAX_MEMBERS_PER_PAGE:
                return rows[:position]
        return rows

    def _row(self, resource_type: ResourceType, resource_id: str) -> Row[Any]:
        row = self.rows.get(resource_id)
        if row is None:
            of_id = RESOURCE.c.source_id == self.source_id, RESOURCE.c.resource_id == resource_id
            row = self.connection.execute(select(RESOURCE).where(*of_id)).first()
        if row is None or row.type != resource_type.name:
            raise NotFoundException(detail=f"there is no {resource_type.name} with this id")
        self.rows[resource_id] = row
        return row

    def _resources(self, rows: Sequence[Row[Any]], *, with_members: bool) -> list[Resource[Any]]:
        members: dict[str, list[dict[str, str]]] = {}
        groups = [row.resource_id for row in rows if row.type == GROUP] if with_members else []
        for group_id, member in self.members(groups) if groups else ():
            members.setdefault(group_id, []).append(_member_object(member))
        resources = []
        for row in rows:
            model: Any = self._provider.model_for(row.type)
            content = orjson.loads(row.content)
            if row.resource_id in members:
                content["members"] = members[row.resource_id]
            resource = model.model_validate(content)
            resource.id = row.resource_id
            resource.meta = _meta(row.type, row.created, row.modified, row.version)
            resources.append(resource)
        return resources

    # Writing.

    def create(self, resource_type: ResourceType, resource: Resource[Any]) -> Resource[Any]:
        content, type_ = _content(resource), str(resource_type.name)
        self._require_unique("", type_, {}, content)
        resource_id, now = self._new_id(), epoch_ms(self._clock())
        row = {"source_id": self.source_id, "resource_id": resource_id, "type": type_, "created": now, "modified": now}
        text = orjson.dumps(content).decode()
        self.connection.execute(insert(RESOURCE).values(**row, version=1, content=text))
        self._add_keys(resource_id, _keys(type_, content))
        self._record_change(resource_id, ResourceChange(type_, None, content))
        self._resolve_pending(content)
        if type_ == GROUP:
            self.change_members(resource_id, add=members_of(resource))
        created = resource.model_copy(deep=True)
        created.id, created.meta = resource_id, _meta(type_, now, now, 1)
        return created

    def update(
        self, resource_type: ResourceType, resource: Resource[Any], *, expected_version: str | None = None
    ) -> Resource[Any]:
        members = members_of(resource) if resource_type.name == GROUP else None
        self.update_parts(resource_type, resource, members, expected_version=expected_version)
        return self.get(resource_type, str(resource.id))

    def update_parts(
        self,
        resource_type: ResourceType,
        resource: Resource[Any],
        members: Mapping[str, ScimMember] | None,
        *,
        expected_version: str | None = None,
    ) -> None:
        """Stores the attributes of a resource, and its ``members``. None: they stay."""
        resource_id, type_ = str(resource.id), str(resource_type.name)
        row = self._row(resource_type, resource_id)
        _require_version(row, expected_version)
        before, content = orjson.loads(row.content), _content(resource)
        if type_ == USER and "active" not in content and not is_active(before):
            # A removed attribute has no value. Users are active again only if the directory states it.
            content["active"] = None
        if content != before:
            self._require_unique(resource_id, type_, before, content)
            old, new = _keys(type_, before), _keys(type_, content)
            if old != new:
                self._run(_REMOVE_KEYS, resource_id=resource_id)
                self._add_keys(resource_id, new)
            self._record_change(resource_id, ResourceChange(type_, before, content))
            self._resolve_pending(before, content)
        if members is not None:
            self.replace_members(resource_id, members)
        if content != before:
            self._update_resource(resource_id, content=orjson.dumps(content).decode())

    def delete(self, resource_type: ResourceType, resource_id: str, *, expected_version: str | None = None) -> None:
        row = self._row(resource_type, resource_id)
        _require_version(row, expected_version)
        self.add_affected(resource_id, [resource_id])
        before = orjson.loads(row.content)
        self._record_change(resource_id, ResourceChange(row.type, before, None))
        del self.rows[resource_id]
        for table in (RESOURCE, KEY):
            of_id = table.c.source_id == self.source_id, table.c.resource_id == resource_id
            self.connection.execute(delete(table).where(*of_id))
        names = self._direct_members(resource_id)
        for column in (MEMBER.c.group_id, MEMBER.c.value):
            self.connection.execute(delete(MEMBER).where(MEMBER.c.source_id == self.source_id, column == resource_id))
        self._remove_unused_pending(names)
        self._resolve_pending(before)

    def _require_unique(
        self, resource_id: str, type_: str, before: Mapping[str, Any], content: Mapping[str, Any]
    ) -> None:
        if type_ != USER:
            return
        if not content.get("userName"):
            raise InvalidValueException(detail="userName: is empty")
        for name in NAME_ATTRIBUTES:
            value = content.get(name)
            # Users who have the same value already can still be changed, as to deactivate one.
            if value and value != before.get(name):
                key = {"attribute": name, "value": lookup_key(name, str(value))}
                if self._run(_TAKEN, **key, resource_id=resource_id):
                    raise UniquenessException(detail=f"another User has this {name}")

    def _add_keys(self, resource_id: str, keys: Collection[tuple[str, str]]) -> None:
        if keys:
            of_resource = {"source_id": self.source_id, "resource_id": resource_id}
            rows = [{**of_resource, "attribute": attribute, "value": value} for attribute, value in sorted(keys)]
            self.connection.execute(insert(KEY), rows)

    # Changes of the request.

    def _record_change(self, resource_id: str, change: ResourceChange) -> None:
        first = self.changes.get(resource_id, change)
        self.changes[resource_id] = change._replace(before=first.before)

    def contents(self, ids: Collection[str]) -> dict[str, dict[str, Any]]:
        rows = self._run(_CONTENTS, ids=json_list(sorted(ids)))
        return {resource_id: orjson.loads(content) for resource_id, content in rows if content is not None}


def _keys(type_: str, content: Mapping[str, Any]) -> set[tuple[str, str]]:
    emails = [email.get("value") for email in content.get("emails", ())]
    values = [(name, content.get(name)) for name in _KEYS] + [("emails", email) for email in emails]
    return {
        (name, lookup_key(name, value))
        for name, value in values
        if isinstance(value, str) and (type_ == USER or name != "userName")
    }


def _content(resource: Resource[Any]) -> dict[str, Any]:
    return {name: value for name, value in resource.model_dump().items() if name not in _NOT_STORED}


def _meta(type_: str, created: int, modified: int, version: int) -> Meta:
    return Meta(
        resource_type=type_,
        created=from_epoch_ms(created),
        last_modified=from_epoch_ms(modified),
        version=f'W/"{version}"',
    )


def _member_object(member: ScimMember) -> dict[str, str]:
    fields = {"type": member.type, "$ref": member.type and f"{member.type}s/{member.value}", "display": member.display}
    return {"value": member.value} | {name: text for name, text in fields.items() if text}


def _require_version(row: Row[Any], expected: str | None) -> None:
    if expected is not None and expected != f'W/"{row.version}"':
        raise PreconditionFailedException
