"""Checks the names of a record's fields for unknown, misspelled and missing ones.

Unknown fields of organizations, users, groups, folders and documents are sent to the backend. The other kinds decide
about access only, so an unknown field makes the record malformed: a grant whose ``until`` is ignored would never end.
Notes (``x-…``) are allowed. A misspelled field makes the record malformed in every kind (``spelling.py``).
"""

from collections.abc import Collection, Sequence
from functools import lru_cache

from app.access.kinds import KINDS
from app.access.records import FieldType, Fill, User
from app.directory.fields import ACCESS_FIELDS, Fields, MalformedRecordError
from app.directory.spelling import bare, intended_name, resembling
from app.foundation.text import quoted

NOTE_PREFIX = "x-"
"""The prefix of fields that are notes for people."""

_KEYS_AND_TEXTS = {
    name: frozenset(field.name for field in kind.fields if field in kind.keys or field.type is FieldType.TEXT)
    for name, kind in KINDS.items()
    if kind.has_extra_fields
}
"""Kind → fields that decide nothing. If one is set, a similar name is a field of its own."""

_LISTS_OF_ALIASES = tuple(field.name for field in KINDS[User.kind].fields if field.type is FieldType.ALIASES)


def check_field_names(kind: str, names: Collection[str]) -> None:
    """Raises ``MalformedRecordError`` for a name that would make every record of the kind malformed."""
    known = KINDS[kind].field_names
    check_unknown(kind, [name for name in names if name not in known], dict.fromkeys(names, True))


def missing_fields(kind: str, names: Collection[str]) -> list[str]:
    """The fields that every record of the kind needs and that are not among ``names``."""
    missing = [field.name for field in KINDS[kind].fields if field.is_needed and field.name not in names]
    groups = ([field.name for field in group] for group in KINDS[kind].alternatives)
    return missing + [f"one of {' or '.join(group)}" for group in groups if not set(group) & set(names)]


def check_unknown(kind: str, unknown: Sequence[str], fields: Fields) -> None:
    """Raises ``MalformedRecordError`` for unknown fields that may be misspelled, or would be ignored."""
    for name in unknown:
        # YAML also has names that are not text.
        if isinstance(name, str):
            if kind == Fill.kind and intended_name(name, _LISTS_OF_ALIASES) is not None:
                raise MalformedRecordError(f"{quoted(name)}: is set by the user's own record only, and never sent")
            _check_spelling(kind, name, fields)
        if not KINDS[kind].has_extra_fields and not str(name).startswith(NOTE_PREFIX):
            raise MalformedRecordError(
                f"{quoted(name)}: is not a field of {_a(kind)} and would be ignored; leave it out, or begin a note's"
                f" name with {NOTE_PREFIX}"
            )


def _check_spelling(kind: str, name: str, fields: Fields) -> None:
    near = _misspelled(kind, name)
    if near is None:
        return
    # ``emails`` beside ``email`` is not a misspelling.
    is_set_as_well = near in _KEYS_AND_TEXTS.get(kind, ()) and fields.get(near) is not None
    if not is_set_as_well or bare(name) == bare(near):
        raise MalformedRecordError(f"{quoted(name)}: is not a field of {_a(kind)}; did you mean {near}?")


@lru_cache(maxsize=4096)
def _misspelled(kind: str, name: str) -> str | None:
    """The field that a name is a misspelling of."""
    return None if name.startswith(NOTE_PREFIX) else intended_name(name, KINDS[kind].field_names)


def remarks_about(kind: str, unknown: Sequence[str]) -> tuple[str, ...]:
    """Remarks about unknown fields that were accepted."""
    if not unknown or not KINDS[kind].has_extra_fields:
        return ()
    return tuple(remark for name in unknown if (remark := _remark(kind, name)) is not None)


@lru_cache(maxsize=4096)
def _remark(kind: str, name: str) -> str | None:
    if name in ACCESS_FIELDS:
        return f"{quoted(name)} decides nothing about {_a(kind)}: it travels to the backend like any other field"
    if name.startswith(NOTE_PREFIX) or intended_name(name, KINDS[kind].field_names):
        return None
    likely = resembling(name, KINDS[kind].field_names, cutoff=0.85)
    return f"{quoted(name)} is not a field of {_a(kind)}; did you mean {likely}?" if likely else None


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeio" else f"a {kind}"
