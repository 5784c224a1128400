"""Casting: how a record looks as a JSON object, and which objects are records.

``record_from_object`` and ``object_from_record`` are each other's inverse: whatever is exported can be read back. The
fields are those of ``app/directory/README.md``, "What a directory file holds". Optional fields may be missing or null,
but those that decide about access must not be null.
Times are ISO 8601 with a zone or epoch milliseconds, and are kept to the millisecond.

Fields that Usher does not know travel on with organizations, users, groups, folders and documents. The other kinds do
nothing but decide about access and have nothing to carry a field to; there, an unknown field makes the record malformed
(an ``until`` that is ignored would make a grant last for ever), unless its name says that it is a note (``x-…``). A
field whose name is near that of a known one makes the record malformed everywhere (``app.directory.spelling``).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from app.access.kinds import KINDS, RecordKind, name_of_attribute
from app.access.records import Carrier, Fill, Record, Sort, User
from app.directory.fields import (
    DECIDING,
    Fields,
    MalformedRecordError,
    RepeatedKeys,
    checked_access_role,
    checked_access_type,
    checked_alias,
    checked_aliases,
    checked_context_value,
    checked_flag,
    checked_further,
    checked_id,
    checked_text,
    checked_time,
    name_of_type,
    usable_aliases,
)
from app.directory.spelling import bare, meant, resembling
from app.foundation.clock import utc_text
from app.foundation.text import quoted

# Objects to records.


def record_from_object(
    value: object, kind: str | None = None, *, every_alias: bool = False
) -> tuple[Record, tuple[str, ...]]:
    """The record that an object stands for, with remarks about odd fields.

    ``kind`` is given where the surroundings say it (a list of users); otherwise the object's field ``kind`` does.
    ``every_alias``: aliases that cannot be used make the record malformed, instead of being left out with a remark.
    Raises ``MalformedRecordError``.
    """
    if not isinstance(value, dict):
        raise MalformedRecordError(f"not an object, but {name_of_type(value)}")
    if isinstance(value, RepeatedKeys):
        raise MalformedRecordError(f"{value.repeated}: this key stands twice in one object")
    given = value.get("kind", kind)
    if not isinstance(given, str) or given not in _READERS:
        raise MalformedRecordError(f"kind: {_no_kind(given, value)}")
    if kind is not None and given != kind:
        raise MalformedRecordError(f"kind: {quoted(given)} stands in a list of {plural(kind)}")
    reader = _READERS[given]
    left_out: tuple[str, ...] = ()
    try:
        record, unknown = reader.read(value)
    except MalformedRecordError:
        usable, left_out = usable_aliases(value.get(_ALIASES)) if given == User.kind and not every_alias else ([], ())
        if not left_out:
            raise
        record, unknown = reader.read(value | {_ALIASES: usable})
    return record, (*left_out, *_remarks(given, unknown)) if unknown else left_out


def disabling_record(value: Mapping[str, object], kind: str) -> Record | None:
    """Of an object that is a malformed fill: the fill that only disables; None: it does not disable, or nobody."""
    if kind != Fill.kind or value.get("disabled") is not True:
        return None
    names = [field.name for group in KINDS[kind].alternatives for field in group]
    try:
        return _READERS[kind].read({"disabled": True} | {name: value[name] for name in names if name in value})[0]
    except MalformedRecordError:
        return None


def plural(kind: str) -> str:
    """What a list of records of a kind is called in a document."""
    return f"{kind}s"


_CHECKS: Mapping[Sort, Callable[[object, str], object]] = {
    Sort.ID: checked_id,
    Sort.TEXT: checked_text,
    Sort.ALIAS: checked_alias,
    Sort.ALIASES: checked_aliases,
    Sort.CONTEXT_VALUE: checked_context_value,
    Sort.FLAG: checked_flag,
    Sort.ACCESS_TYPE: checked_access_type,
    Sort.ACCESS_ROLE: checked_access_role,
    Sort.TIME: checked_time,
}
"""Sort of value → the check of what stands in a field."""


class _Reader:
    """Makes records of one kind."""

    def __init__(self, kind: RecordKind) -> None:
        self._kind = kind
        self._record: Callable[..., Record] = kind.record
        self._fields = {field.name: (field.attribute, _CHECKS[field.sort]) for field in kind.fields}
        self._groups = kind.record.exactly_one_of
        self._needed = [field.attribute for field in kind.fields if field.is_needed]

    def read(self, fields: Fields) -> tuple[Record, list[str]]:
        """The record, and the names of its fields that are not the kind's own. Raises ``MalformedRecordError``."""
        known = self._fields
        values: dict[str, object] = {}
        unknown: list[str] = []
        for name, value in fields.items():
            if name in known:
                if value is not None:
                    attribute, check = known[name]
                    values[attribute] = check(value, name)
                elif name in DECIDING:
                    raise MalformedRecordError(
                        f"{name}: is null, and decides about access; give a value, or leave the field out"
                    )
            elif name != "kind":
                unknown.append(name)
        if unknown:
            _refuse_misspelt(self._kind.name, unknown, fields)
            if self._kind.carries:
                values["further"] = checked_further({name: fields[name] for name in unknown})
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


_ALIASES = "aliases"

_READERS = {name: _Reader(kind) for name, kind in KINDS.items()}

_KNOWN = {name: frozenset(kind.field_names) for name, kind in KINDS.items()}

_SETTLED_WHEN_GIVEN = {
    name: frozenset(field.name for field in kind.fields if field in kind.keys or field.sort is Sort.TEXT)
    for name, kind in KINDS.items()
    if kind.carries
}
"""Of the kinds with further fields, those that decide nothing and cannot have been misspelt where they are given."""

NEVER_SENT = tuple(field.name for field in KINDS[User.kind].fields if field.sort is Sort.ALIASES)
"""What a user's record says to Usher alone."""

_NOTE = "x-"
"""How the name of a field begins that is a note for people."""


def _no_kind(given: object, fields: Fields) -> str:
    if given is None:
        near = next((name for name in fields if isinstance(name, str) and meant(name, ("kind",))), None)
        return "is missing" if near is None else f"is missing; {quoted(near)} is not it"
    near = resembling(given, _READERS) if isinstance(given, str) else None
    hint = f"; did you mean {near}?" if near else ""
    return f"{quoted(given)} is not one of {', '.join(_READERS)}{hint}"


def check_field_names(kind: str, names: Sequence[str]) -> None:
    """Raises ``MalformedRecordError`` for a name that would make every record of the kind malformed."""
    _refuse_misspelt(kind, [name for name in names if name not in _KNOWN[kind]], dict.fromkeys(names, True))


def _refuse_misspelt(kind: str, unknown: list[str], fields: Fields) -> None:
    """Raises ``MalformedRecordError`` for a field that may have been meant to be one of the kind's own."""
    for name in unknown:
        if isinstance(name, str) and is_for_users_alone(kind, name):
            raise MalformedRecordError(f"{quoted(name)}: {ONLY_BY_USERS}")
        near = _misspelt(kind, name) if isinstance(name, str) else None
        if near is not None and not _stands_beside(kind, name, near, fields):
            raise MalformedRecordError(f"{quoted(name)}: is not a field of {_a(kind)}; did you mean {near}?")
        if not KINDS[kind].carries and not str(name).startswith(_NOTE):
            raise MalformedRecordError(
                f"{quoted(name)}: is not a field of {_a(kind)} and would be ignored; leave it out, or begin a note's"
                f" name with {_NOTE}"
            )


def _stands_beside(kind: str, name: str, near: str, fields: Fields) -> bool:
    """Whether it cannot have been meant to be the other: ``emails`` beside the ``email`` itself."""
    return near in _SETTLED_WHEN_GIVEN.get(kind, ()) and fields.get(near) is not None and bare(name) != bare(near)


@lru_cache(maxsize=4096)
def _misspelt(kind: str, name: str) -> str | None:
    return None if name.startswith(_NOTE) else meant(name, KINDS[kind].field_names)


def is_for_users_alone(kind: str, name: str) -> bool:
    """Whether a fill would make a field that travels on of what a user's own record gives Usher alone."""
    return kind == Fill.kind and meant(name, NEVER_SENT) is not None


ONLY_BY_USERS = "is given by the user's own record alone, and nobody is sent it"
"""What is wrong with such a field."""


def _remarks(kind: str, unknown: list[str]) -> tuple[str, ...]:
    if not KINDS[kind].carries:
        return ()
    return tuple(remark for name in unknown if (remark := _remark(kind, name)) is not None)


@lru_cache(maxsize=4096)
def _remark(kind: str, name: str) -> str | None:
    """What there is to say of a field that travels on."""
    if name in DECIDING:
        return f"{quoted(name)} decides nothing about {_a(kind)}: it travels to the backend like any other field"
    if name.startswith(_NOTE) or meant(name, KINDS[kind].field_names):
        return None
    likely = resembling(name, KINDS[kind].field_names, cutoff=0.85)
    return f"{quoted(name)} is not a field that Usher knows; did you mean {likely}?" if likely else None


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeio" else f"a {kind}"


# Records to objects.


def object_from_record(record: Record) -> dict[str, object]:
    """The JSON object of a record, ``kind`` first; what is absent or the default is left out, further fields are in."""
    kind = KINDS[record.kind]
    fields: dict[str, object] = {"kind": kind.name}
    for field in kind.fields:
        value = getattr(record, field.attribute)
        if value is None or value is False or value == ():
            continue
        fields[field.name] = _IN_JSON[field.sort](value) if field.sort in _IN_JSON else value
    if isinstance(record, Carrier):
        fields.update(record.further)
    return fields


_IN_JSON: Mapping[Sort, Callable[[Any], object]] = {
    Sort.TIME: utc_text,
    Sort.ACCESS_TYPE: str,
    Sort.ACCESS_ROLE: str,
    Sort.ALIASES: list,
}
"""How values are written that stand otherwise in JSON than in records."""
