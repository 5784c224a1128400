"""Converts JSON objects to records, and back.

``record_from_object`` and ``object_from_record`` are inverse: an export can be read back. The fields are those of
``app/directory/README.md``, "What a directory file holds". ``field_names.py`` decides about unknown ones.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic.alias_generators import to_camel

from app.access.kinds import KINDS, RecordKind
from app.access.records import AccessRole, AccessType, Carrier, FieldType, Fill, Record, User
from app.directory.field_names import check_unknown, remarks_about
from app.directory.fields import (
    ACCESS_FIELDS,
    Fields,
    MalformedRecordError,
    RepeatedKeys,
    checked_alias,
    checked_aliases,
    checked_context_value,
    checked_extra_fields,
    checked_flag,
    checked_id,
    checked_member,
    checked_text,
    checked_time,
    name_of_type,
    usable_aliases,
)
from app.directory.source import Found, Malformed, ObjectId, Origin, Remark
from app.directory.spelling import intended_name, resembling
from app.foundation.clock import utc_text
from app.foundation.text import quoted


def plural(kind: str) -> str:
    return f"{kind}s"


KINDS_BY_PLURAL: Mapping[str, str] = {plural(kind): kind for kind in KINDS}
"""Name of a list, or of a query, of records → their kind."""


def record_from_object(
    value: object, kind: str | None = None, *, every_alias: bool = False
) -> tuple[Record, tuple[str, ...]]:
    """The record of an object, and remarks about odd fields. Raises ``MalformedRecordError``.

    ``kind``: the kind of the list that contains the object. None: the object's field ``kind``. ``every_alias``: an
    unusable alias makes the record malformed, instead of being left out with a remark.
    """
    if not isinstance(value, dict):
        raise MalformedRecordError(f"not an object, but {name_of_type(value)}")
    if isinstance(value, RepeatedKeys):
        raise MalformedRecordError(f"{value.repeated_key}: this key occurs twice in one object")
    name = value.get("kind", kind)
    if not isinstance(name, str) or name not in _READERS:
        raise MalformedRecordError(f"kind: {_unknown_kind(name, value)}")
    if kind is not None and name != kind:
        raise MalformedRecordError(f"kind: {quoted(name)} is in a list of {plural(kind)}")
    reader = _READERS[name]
    try:
        record, unknown = reader.read(value)
        return record, remarks_about(name, unknown)
    except MalformedRecordError:
        usable, left_out = usable_aliases(value.get("aliases")) if name == User.kind and not every_alias else ([], ())
        if not left_out:
            raise
    record, unknown = reader.read(value | {"aliases": usable})
    return record, (*left_out, *remarks_about(name, unknown))


def disabling_record(value: Mapping[str, object], kind: str) -> Record | None:
    """The fill that only disables, made of a malformed fill. None if that does not disable, or names no user."""
    if kind != Fill.kind or value.get("disabled") is not True:
        return None
    names = [field.name for group in KINDS[kind].alternatives for field in group]
    try:
        return _READERS[kind].read({"disabled": True} | {name: value[name] for name in names if name in value})[0]
    except MalformedRecordError:
        return None


def record_steps(
    values: Mapping[str, object], kind: str | None, place: str, origin: Origin | None, object_: ObjectId | None
) -> Sequence[Found | Malformed | Remark]:
    """The record of a row, or why there is none. A malformed fill disables nevertheless.

    ``kind``: as for ``record_from_object``. ``object_``: the row, if it has a permanent id.
    """
    try:
        record, remarks = record_from_object(values, kind)
    except MalformedRecordError as error:
        fill = disabling_record(values, kind or str(values.get("kind")))
        malformed = Malformed(place, str(error), object_, values.get("disabled") is True)
        return [malformed] if fill is None else [Found(fill, place, origin), malformed]
    return [Found(record, place, origin), *(Remark(place, remark) for remark in remarks)]


_CHECKS: Mapping[FieldType, Callable[[object, str], object]] = {
    FieldType.ID: checked_id,
    FieldType.TEXT: checked_text,
    FieldType.ALIAS: checked_alias,
    FieldType.ALIASES: checked_aliases,
    FieldType.CONTEXT_VALUE: checked_context_value,
    FieldType.FLAG: checked_flag,
    FieldType.ACCESS_TYPE: partial(checked_member, members={str(type_): type_ for type_ in AccessType}),
    FieldType.ACCESS_ROLE: partial(checked_member, members={str(role): role for role in AccessRole}),
    FieldType.TIME: checked_time,
}


class _Reader:
    """Makes records of one kind."""

    def __init__(self, kind: RecordKind) -> None:
        self._kind = kind
        self._record: Callable[..., Record] = kind.record
        self._fields = {field.name: (field.attribute, _CHECKS[field.type]) for field in kind.fields}
        self._groups = kind.record.exactly_one_of
        self._needed = [field.attribute for field in kind.fields if field.is_needed]

    def read(self, fields: Fields) -> tuple[Record, list[str]]:
        """The record, and the names of unknown fields. Raises ``MalformedRecordError``."""
        known = self._fields
        values: dict[str, object] = {}
        unknown: list[str] = []
        for name, value in fields.items():
            if name in known:
                if value is not None:
                    attribute, check = known[name]
                    values[attribute] = check(value, name)
                elif name in ACCESS_FIELDS:
                    raise MalformedRecordError(
                        f"{name}: is null, and decides about access; give a value, or leave the field out"
                    )
            elif name != "kind":
                unknown.append(name)
        if unknown:
            check_unknown(self._kind.name, unknown, fields)
            if self._kind.has_extra_fields:
                values["extra_fields"] = checked_extra_fields({name: fields[name] for name in unknown})
        for attribute in self._needed:
            if attribute not in values:
                raise MalformedRecordError(f"{to_camel(attribute)}: is missing")
        for group in self._groups:
            present = [attribute for attribute in group if attribute in values]
            if len(present) != 1:
                raise MalformedRecordError(_not_one_of([to_camel(attribute) for attribute in group], present))
        return self._record(**values), unknown


def _not_one_of(names: Sequence[str], present: Sequence[str]) -> str:
    if len(names) == 2:
        problem = "both are given" if present else "neither is given"
    else:
        problem = "several are given" if present else "none is given"
    return f"{', '.join(names)}: {problem}; exactly one is needed"


_READERS = {name: _Reader(kind) for name, kind in KINDS.items()}


def _unknown_kind(kind: object, fields: Fields) -> str:
    if kind is None:
        near = next((name for name in fields if isinstance(name, str) and intended_name(name, ("kind",))), None)
        return "is missing" if near is None else f"is missing; {quoted(near)} is not it"
    near = resembling(kind, _READERS) if isinstance(kind, str) else None
    hint = f"; did you mean {near}?" if near else ""
    return f"{quoted(kind)} is not one of {', '.join(_READERS)}{hint}"


def object_from_record(record: Record) -> dict[str, object]:
    """The JSON object of a record, ``kind`` first, without missing and default values."""
    kind = KINDS[record.kind]
    fields: dict[str, object] = {"kind": kind.name}
    for field in kind.fields:
        value = getattr(record, field.attribute)
        if value is None or value is False or value == ():
            continue
        fields[field.name] = _TO_JSON[field.type](value) if field.type in _TO_JSON else value
    if isinstance(record, Carrier):
        fields.update(record.extra_fields)
    return fields


_TO_JSON: Mapping[FieldType, Callable[[Any], object]] = {
    FieldType.TIME: utc_text,
    FieldType.ACCESS_TYPE: str,
    FieldType.ACCESS_ROLE: str,
    FieldType.ALIASES: list,
}
