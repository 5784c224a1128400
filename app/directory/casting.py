"""Conversion of JSON objects to records, and back.

``record_from_object`` and ``object_from_record`` are inverse: an export can be read back. The fields are those of
``app/directory/README.md``, "What a directory file holds".

Unknown fields of organizations, users, groups, folders and documents travel to the backend. The other kinds decide
about access only, so that an unknown field makes the record malformed: a grant whose ``until`` is ignored would never
end. Notes (``x-…``) are allowed. A misspelled field makes the record malformed in every kind
(``app.directory.spelling``).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from app.access.kinds import KINDS, RecordKind, name_of_attribute
from app.access.records import Carrier, FieldType, Fill, Record, User
from app.directory.fields import (
    ACCESS_FIELDS,
    Fields,
    MalformedRecordError,
    RepeatedKeys,
    checked_access_role,
    checked_access_type,
    checked_alias,
    checked_aliases,
    checked_context_value,
    checked_extra_fields,
    checked_flag,
    checked_id,
    checked_text,
    checked_time,
    name_of_type,
    usable_aliases,
)
from app.directory.spelling import bare, intended_name, resembling
from app.foundation.clock import utc_text
from app.foundation.text import quoted

NOTE_PREFIX = "x-"
"""The prefix of fields that are notes for people."""


def plural(kind: str) -> str:
    """The name of a list of records of a kind."""
    return f"{kind}s"


def record_from_object(
    value: object, kind: str | None = None, *, every_alias: bool = False
) -> tuple[Record, tuple[str, ...]]:
    """The record of an object, and remarks about odd fields. Raises ``MalformedRecordError``.

    ``kind``: the kind of the list that contains the object; None: the object's field ``kind``. ``every_alias``: an
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
    left_out: tuple[str, ...] = ()
    try:
        record, unknown = reader.read(value)
    except MalformedRecordError:
        usable, left_out = usable_aliases(value.get("aliases")) if name == User.kind and not every_alias else ([], ())
        if not left_out:
            raise
        record, unknown = reader.read(value | {"aliases": usable})
    return record, (*left_out, *_remarks(name, unknown)) if unknown else left_out


def disabling_record(value: Mapping[str, object], kind: str) -> Record | None:
    """Of a malformed fill, the fill that only disables; None if it does not disable, or names no user."""
    if kind != Fill.kind or value.get("disabled") is not True:
        return None
    names = [field.name for group in KINDS[kind].alternatives for field in group]
    try:
        return _READERS[kind].read({"disabled": True} | {name: value[name] for name in names if name in value})[0]
    except MalformedRecordError:
        return None


_CHECKS: Mapping[FieldType, Callable[[object, str], object]] = {
    FieldType.ID: checked_id,
    FieldType.TEXT: checked_text,
    FieldType.ALIAS: checked_alias,
    FieldType.ALIASES: checked_aliases,
    FieldType.CONTEXT_VALUE: checked_context_value,
    FieldType.FLAG: checked_flag,
    FieldType.ACCESS_TYPE: checked_access_type,
    FieldType.ACCESS_ROLE: checked_access_role,
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
            _check_unknown(self._kind.name, unknown, fields)
            if self._kind.carries:
                values["extra_fields"] = checked_extra_fields({name: fields[name] for name in unknown})
        for attribute in self._needed:
            if attribute not in values:
                raise MalformedRecordError(f"{name_of_attribute(attribute)}: is missing")
        for group in self._groups:
            given = [attribute for attribute in group if attribute in values]
            if len(given) != 1:
                raise MalformedRecordError(_not_one_of([name_of_attribute(one) for one in group], given))
        return self._record(**values), unknown


def _not_one_of(names: Sequence[str], given: Sequence[str]) -> str:
    if len(names) == 2:
        wrong = "both are given" if given else "neither is given"
    else:
        wrong = "several are given" if given else "none is given"
    return f"{', '.join(names)}: {wrong}; exactly one is needed"


_READERS = {name: _Reader(kind) for name, kind in KINDS.items()}


def _unknown_kind(given: object, fields: Fields) -> str:
    if given is None:
        near = next((name for name in fields if isinstance(name, str) and intended_name(name, ("kind",))), None)
        return "is missing" if near is None else f"is missing; {quoted(near)} is not it"
    near = resembling(given, _READERS) if isinstance(given, str) else None
    hint = f"; did you mean {near}?" if near else ""
    return f"{quoted(given)} is not one of {', '.join(_READERS)}{hint}"


# Unknown fields.

_HARMLESS = {
    name: frozenset(field.name for field in kind.fields if field in kind.keys or field.type is FieldType.TEXT)
    for name, kind in KINDS.items()
    if kind.carries
}
"""Kind → fields that decide nothing. If one is set, a similar name is a field of its own."""

_NEVER_SENT = tuple(field.name for field in KINDS[User.kind].fields if field.type is FieldType.ALIASES)


def check_field_names(kind: str, names: Collection[str]) -> None:
    """Raises ``MalformedRecordError`` for a name that would make every record of the kind malformed."""
    known = KINDS[kind].field_names
    _check_unknown(kind, [name for name in names if name not in known], dict.fromkeys(names, True))


def missing_fields(kind: str, given: Collection[str]) -> list[str]:
    """The missing fields that every record of the kind needs."""
    missing = [field.name for field in KINDS[kind].fields if field.is_needed and field.name not in given]
    groups = ([field.name for field in group] for group in KINDS[kind].alternatives)
    return missing + [f"one of {' or '.join(names)}" for names in groups if not set(names) & set(given)]


def _check_unknown(kind: str, unknown: list[str], fields: Fields) -> None:
    """Raises ``MalformedRecordError`` for unknown fields that may be misspelled, or would be ignored."""
    for name in unknown:
        if kind == Fill.kind and isinstance(name, str) and intended_name(name, _NEVER_SENT) is not None:
            raise MalformedRecordError(f"{quoted(name)}: is set by the user's own record only, and never sent")
        near = _misspelled(kind, name) if isinstance(name, str) else None
        # ``emails`` beside ``email`` is not a misspelling.
        if near is not None and not (
            near in _HARMLESS.get(kind, ()) and fields.get(near) is not None and bare(name) != bare(near)
        ):
            raise MalformedRecordError(f"{quoted(name)}: is not a field of {_a(kind)}; did you mean {near}?")
        if not KINDS[kind].carries and not str(name).startswith(NOTE_PREFIX):
            raise MalformedRecordError(
                f"{quoted(name)}: is not a field of {_a(kind)} and would be ignored; leave it out, or begin a note's"
                f" name with {NOTE_PREFIX}"
            )


@lru_cache(maxsize=4096)
def _misspelled(kind: str, name: str) -> str | None:
    return None if name.startswith(NOTE_PREFIX) else intended_name(name, KINDS[kind].field_names)


def _remarks(kind: str, unknown: list[str]) -> tuple[str, ...]:
    if not KINDS[kind].carries:
        return ()
    return tuple(remark for name in unknown if (remark := _remark(kind, name)) is not None)


@lru_cache(maxsize=4096)
def _remark(kind: str, name: str) -> str | None:
    if name in ACCESS_FIELDS:
        return f"{quoted(name)} decides nothing about {_a(kind)}: it travels to the backend like any other field"
    if name.startswith(NOTE_PREFIX) or intended_name(name, KINDS[kind].field_names):
        return None
    likely = resembling(name, KINDS[kind].field_names, cutoff=0.85)
    return f"{quoted(name)} is not a field that Usher knows; did you mean {likely}?" if likely else None


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeio" else f"a {kind}"


# Records to objects.


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
