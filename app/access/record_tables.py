"""The row codecs: how a record stands in the table of the sources' records and in that of the access model, and how it
is read back from there.

The access model knows no aliases and no fills: it has one ``KindTable`` per kind of record but for those, in the order
in which references point. Whatever a record refers to is of a kind before its own (or of its own: folders in folders).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson
from sqlalchemy import Table

from app.access.kinds import KINDS, KINDS_BY_REFERENCE, RecordField, RecordKind
from app.access.records import (
    AccessRole,
    AccessType,
    ContextGrant,
    Document,
    Folder,
    Grant,
    Group,
    GroupMember,
    Membership,
    Organization,
    Record,
    Sort,
    User,
)
from app.access.tables import (
    ModelContextGrantRow,
    ModelDocumentRow,
    ModelFolderRow,
    ModelGrantRow,
    ModelGroupMemberRow,
    ModelGroupRow,
    ModelMembershipRow,
    ModelOrganizationRow,
    ModelUserRow,
)
from app.foundation.clock import epoch_ms, from_epoch_ms
from app.foundation.database.tables import StoreTable

Values = tuple[object, ...]
"""The values of one row, in the order of the table's columns."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Columns that name a record of another kind; the last one is empty when there is no such reference."""

    kind: str
    columns: tuple[str, ...]
    """In the order of the other table's key."""
    field: str
    """The last column as the directory calls it, for reports."""


@dataclass(frozen=True)
class KindTable:
    """The table of one kind of record in the access model."""

    kind: str
    table: Table
    record_from_row: Callable[[Any], Record]
    references: tuple[Reference, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a record."""
        return tuple(column.name for column in self.table.primary_key.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.table.columns)


def payload_and_digest(fields: Mapping[str, object]) -> tuple[str, str]:
    """Descriptive fields as canonical JSON (sorted keys, no spaces), and BLAKE2b-128 of its bytes in hexadecimal."""
    payload = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    return payload.decode(), blake2b(payload, digest_size=16).hexdigest()


def core_table(row_type: type[StoreTable]) -> Table:
    """The table behind a SQLModel class, for set operations."""
    return row_type.__table__


def kept_fields(kind: RecordKind) -> Sequence[RecordField]:
    """The fields that have a column of their own among the sources' records; the others stand in the payload."""
    return tuple(field for field in kind.fields if field.sort is not Sort.TEXT)


def _aliases(aliases: tuple[str, ...]) -> str:
    return orjson.dumps(sorted(aliases)).decode() if aliases else NO_ALIASES


NO_ALIASES = "[]"
"""The column ``aliases`` of a user without any; it holds a sorted JSON list."""


_TO_COLUMN: Mapping[Sort, Callable[[Any], object]] = {
    Sort.ALIASES: _aliases,
    Sort.ACCESS_TYPE: lambda access_type: access_type.value,
    Sort.ACCESS_ROLE: lambda role: role.value,
    Sort.TIME: epoch_ms,
}
"""Sort of value → how it is stored; values of other sorts are stored as they are."""

_FROM_COLUMN: Mapping[Sort, Callable[[Any], object]] = {
    Sort.FLAG: bool,
    Sort.ACCESS_TYPE: AccessType,
    Sort.ACCESS_ROLE: AccessRole,
    Sort.TIME: from_epoch_ms,
}
"""The inverse for the access model, which has no aliases."""


def _values_from_record(kind: RecordKind) -> Callable[[Any], Values]:
    columns = [
        (field.attribute, _TO_COLUMN.get(field.sort), None if field.sort is Sort.TIME else "")
        for field in kept_fields(kind)
    ]
    described = [(field.attribute, field.name) for field in _described(kind)]

    def values_from_record(record: Any) -> Values:
        values = []
        for attribute, convert, absent in columns:
            value = getattr(record, attribute)
            values.append(absent if value is None else value if convert is None else convert(value))
        if not kind.carries:
            return tuple(values)
        payload = dict(record.further)
        for attribute, name in described:
            if (value := getattr(record, attribute)) is not None:
                payload[name] = value
        return (*values, *payload_and_digest(payload))

    return values_from_record


def _record_from_row(kind: RecordKind) -> Callable[[Any], Record]:
    columns = [
        (field.attribute, _FROM_COLUMN.get(field.sort))
        for field in kept_fields(kind)
        if field.sort not in {Sort.ALIAS, Sort.ALIASES}
    ]
    texts = [(field.attribute, field.name) for field in kind.fields if field.sort is Sort.TEXT]
    make: Callable[..., Record] = kind.record

    def record_from_row(row: Any) -> Record:
        values: dict[str, object] = {}
        for attribute, convert in columns:
            value = getattr(row, attribute)
            if value is None or value == "":
                values[attribute] = None
            else:
                values[attribute] = value if convert is None else convert(value)
        if kind.own_id:
            payload = orjson.loads(row.payload)
            del payload[kind.own_id.name]
            values |= {attribute: payload.pop(name, None) for attribute, name in texts}
            values["further"] = payload
        return make(**values)

    return record_from_row


def _described(kind: RecordKind) -> list[RecordField]:
    """The fields in the payload: what describes the record, and its own id."""
    return [field for field in kind.fields if field is kind.own_id or field.sort is Sort.TEXT]


def _reference(field: RecordField) -> Reference:
    *within, _ = KINDS[field.refers_to].keys
    return Reference(field.refers_to, (*(key.attribute for key in within), field.attribute), field.name)


def _references(kind: RecordKind) -> tuple[Reference, ...]:
    """Where a record always refers to a group, folder or document, that one vouches for the organization."""
    references = [_reference(field) for field in kind.references]
    always = [{field} for field in kind.references if field.is_needed] + [set(group) for group in kind.alternatives]
    vouched = any(all(field.refers_to and len(_reference(field).columns) > 1 for field in group) for group in always)
    return tuple(one for one in references if not (vouched and one.kind == Organization.kind))


_ROWS: Mapping[str, type[StoreTable]] = {
    Organization.kind: ModelOrganizationRow,
    User.kind: ModelUserRow,
    Membership.kind: ModelMembershipRow,
    Group.kind: ModelGroupRow,
    GroupMember.kind: ModelGroupMemberRow,
    Folder.kind: ModelFolderRow,
    Document.kind: ModelDocumentRow,
    Grant.kind: ModelGrantRow,
    ContextGrant.kind: ModelContextGrantRow,
}

VALUES_FROM_RECORD: Mapping[str, Callable[[Any], Values]] = {
    kind.name: _values_from_record(kind) for kind in KINDS_BY_REFERENCE
}
"""kind → what makes of a record the values of ``kept_fields``; then payload and digest where it has further fields."""

REFERENCES = {kind.name: _references(kind) for kind in KINDS_BY_REFERENCE}
"""kind → what its records refer to, users by their ids."""

KIND_TABLES: Sequence[KindTable] = tuple(
    KindTable(kind.name, core_table(_ROWS[kind.name]), _record_from_row(kind), REFERENCES[kind.name])
    for kind in KINDS_BY_REFERENCE
    if kind.name in _ROWS
)
"""Every kind that the access model has, referred-to kinds first."""
