"""The kinds of record and their fields, derived from the classes of ``app.access.records``.

Code that treats all kinds alike uses them: casting, conversion of rows, exports, references, explanations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic.alias_generators import to_camel

from app.access.records import (
    AccessRole,
    AccessType,
    ContextGrant,
    Document,
    FieldType,
    Fill,
    Folder,
    Form,
    Grant,
    Group,
    GroupMember,
    Membership,
    Organization,
    Record,
    User,
)

_FIELD_TYPES = {
    bool: FieldType.FLAG,
    AccessType: FieldType.ACCESS_TYPE,
    AccessRole: FieldType.ACCESS_ROLE,
    datetime: FieldType.TIME,
}


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field of a kind."""

    name: str
    """The name in the directory and the backend."""
    attribute: str
    """The name in records and of the columns of tables."""
    type: FieldType
    is_needed: bool
    refers_to: str
    """The kind of record to which the field refers. Empty if it is not a reference."""


@dataclass(frozen=True)
class RecordKind:
    """A kind of record."""

    name: str
    record: type[Record]
    fields: Sequence[RecordField]
    has_extra_fields: bool
    """Whether it may have extra fields, which are sent to the backend."""
    own_id: RecordField | None
    """The id that is the record's own, of kinds that others refer to."""

    @cached_property
    def by_attribute(self) -> Mapping[str, RecordField]:
        return {field.attribute: field for field in self.fields}

    @cached_property
    def field_names(self) -> tuple[str, ...]:
        """The names of its fields in the directory."""
        return tuple(field.name for field in self.fields)

    @cached_property
    def keys(self) -> Sequence[RecordField]:
        """The fields that identify a record of a source: its ids, then the alias by which it may name a user."""
        ids = [self.by_attribute[attribute] for attribute in self.record.key_fields]
        return (*ids, *(field for field in self.fields if field.type is FieldType.ALIAS))

    @cached_property
    def may_use_alias(self) -> bool:
        """Whether it may name a user by an alias."""
        return any(field.type is FieldType.ALIAS for field in self.fields)

    @cached_property
    def alternatives(self) -> Sequence[Sequence[RecordField]]:
        """Sets of fields of which a record has exactly one."""
        return tuple(tuple(self.by_attribute[attribute] for attribute in group) for group in self.record.exactly_one_of)

    @cached_property
    def name_field(self) -> RecordField | None:
        """The field with its name: the first of its texts. None: it has no name."""
        return next((field for field in self.fields if field.type is FieldType.TEXT), None)

    @cached_property
    def column_fields(self) -> Sequence[RecordField]:
        """The fields that have a column of their own in tables. The others are in the payload."""
        return tuple(field for field in self.fields if field.type is not FieldType.TEXT)


def _make_kind(record: type[Record]) -> RecordKind:
    hints = get_type_hints(record, include_extras=True)
    record_fields: list[RecordField] = []
    own_id = None
    for field in fields(record):
        if field.name == "extra_fields":
            continue
        form = _form(hints[field.name])
        is_own = form.of == record.kind and field.name in record.key_fields
        record_fields.append(
            RecordField(
                name=to_camel(field.name),
                attribute=field.name,
                type=form.type,
                is_needed=field.default is MISSING,
                refers_to="" if is_own else form.of,
            )
        )
        own_id = record_fields[-1] if is_own else own_id
    return RecordKind(record.kind, record, tuple(record_fields), "extra_fields" in hints, own_id)


def _form(hint: Any) -> Form:
    if get_origin(hint) is Annotated:
        form = get_args(hint)[1]
        assert isinstance(form, Form)  # noqa: S101 - nothing else annotates them
        return form
    alternatives = [part for part in get_args(hint) if part is not type(None)]
    return _form(alternatives[0]) if alternatives else Form(_FIELD_TYPES[hint])


KINDS: Mapping[str, RecordKind] = {
    record.kind: _make_kind(record)
    for record in (Organization, User, Membership, Group, GroupMember, Folder, Document, Grant, ContextGrant, Fill)
}
"""Every kind, by its name, in the order of documents and messages."""

NAMED_KINDS: Mapping[str, RecordField] = {
    kind.name: kind.name_field for kind in KINDS.values() if kind.own_id and kind.name_field
}
"""Every kind that others refer to, with the field of its name."""

KINDS_BY_REFERENCE: Sequence[RecordKind] = tuple(sorted(KINDS.values(), key=lambda kind: not kind.has_extra_fields))
"""Every kind, things before the relations between them. So each kind follows those that it refers to, and problems of
fills, which belong to users, precede those of memberships."""
