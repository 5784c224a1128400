"""Changes of a group's members, which are separated from the other operations of a PATCH."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scim2_models import Group, InvalidFilterException, InvalidPathException, InvalidValueException, PatchOperation
from scim2_models.path import AttrPath, FilterNode, PathNode, ValuePath

from app.service.scim.members import members_from
from app.service.scim.selection import ScimMember, check_filter, count_comparisons, name_filter

_MAX_COMPARISONS = 100
"""The maximum of comparisons of a PATCH with each member of a group."""

_GROUP_SCHEMA = Group.__schema__.lower()
_GROUP_PREFIX = f"{_GROUP_SCHEMA}:"


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A change of a group's members: first removals, then additions."""

    replaces: bool = False
    """Whether all other members are removed."""
    add: dict[str, ScimMember] = field(default_factory=dict)
    remove: list[FilterNode] = field(default_factory=list)


def split_member_changes(
    operations: "Sequence[PatchOperation[Any]]",
) -> "tuple[Sequence[MemberChange], Sequence[PatchOperation[Any]]]":
    """The changes of members, and the other operations. Raises ``InvalidPathException``, ``InvalidFilterException`` and
    ``InvalidValueException``."""
    changes: list[MemberChange] = []
    others: list[PatchOperation[Any]] = []
    for operation in operations:
        path = operation.path
        node = path.ast if path and path.lower() != _GROUP_SCHEMA else None
        if node is None and isinstance(operation.value, dict):
            rest = {}
            for name, value in _flattened(operation.value):
                plain = name.lower().removeprefix(_GROUP_PREFIX)
                if plain == "members":
                    changes.append(_change(operation.op, value))
                elif plain.startswith(("members.", "members[")):
                    raise _not_supported()
                else:
                    rest[name] = value
            if rest:
                others.append(operation.model_copy(update={"path": None, "value": rest}))
        elif node is not None and _is_of_members(node):
            changes.append(_change_at(node, operation))
        else:
            others.append(operation)
    if sum(count_comparisons(filter_) for change in changes for filter_ in change.remove) > _MAX_COMPARISONS:
        detail = f"members: more than {_MAX_COMPARISONS} comparisons with all members: name each member by value"
        raise InvalidFilterException(detail=detail)
    return _merged(changes), others


def _merged(changes: Sequence[MemberChange]) -> Sequence[MemberChange]:
    """The changes. Consecutive ones are merged if that has the same result."""
    merged: list[MemberChange] = []
    for change in changes:
        last = merged[-1] if merged else None
        if last is None or change.replaces or (change.remove and (last.replaces or last.add)):
            merged.append(MemberChange(change.replaces, dict(change.add), list(change.remove)))
        else:
            # In place: a request may add to very many members in many operations.
            last.add.update(change.add)
            last.remove.extend(change.remove)
    return merged


def _flattened(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The attributes of a group, also those in an object with the name of its schema."""
    for name, attribute in value.items():
        yield from (
            attribute.items() if name.lower() == _GROUP_SCHEMA and isinstance(attribute, dict) else [(name, attribute)]
        )


def _is_of_members(node: PathNode) -> bool:
    attribute = node if isinstance(node, AttrPath) else node.attr_path
    return attribute.attr.lower() == "members" and (attribute.uri or _GROUP_SCHEMA).lower() == _GROUP_SCHEMA


def _change_at(node: PathNode, operation: "PatchOperation[Any]") -> MemberChange:
    if isinstance(node, AttrPath) and node.sub_attr is None:
        return _change(operation.op, operation.value)
    if (
        not isinstance(node, ValuePath)
        or not (node.attr_path.sub_attr is node.sub_attr is None)
        or operation.op != PatchOperation.Op.remove
        or operation.value not in (None, "", [])
    ):
        raise _not_supported()
    check_filter(node.val_filter)
    return MemberChange(remove=[node.val_filter])


def _not_supported() -> InvalidPathException:
    return InvalidPathException(detail="members: only the operation remove selects members, without a value")


def _change(op: PatchOperation.Op, value: Any) -> MemberChange:
    if op == PatchOperation.Op.remove and value is None:
        return MemberChange(replaces=True)
    entries = value if isinstance(value, list) else [] if value in (None, "") else [value]
    if not all(isinstance(entry, dict) for entry in entries):
        raise InvalidValueException(detail="members: must be a list of objects with value")
    members = members_from(entries)
    if op == PatchOperation.Op.remove:
        return MemberChange(remove=[name_filter(value) for value in members])
    return MemberChange(replaces=op == PatchOperation.Op.replace_, add=members)
