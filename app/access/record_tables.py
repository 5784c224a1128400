"""Converts records to rows of the ``source_…`` tables, and rows of the ``model_…`` tables to records.

``TABLES_OF_KIND`` has one entry for each kind of record in the access model: all kinds except ``fill``. A kind follows
those to which it refers. Fields without a column of their own are stored as JSON (``payload_and_digest``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar, cast

import orjson
from sqlalchemy import Row, Table

from app.access.kinds import KINDS, KINDS_BY_REFERENCE, RecordField, RecordKind
from app.access.records import AccessRole, AccessType, FieldType, Record
from app.access.tables import ACCESS_TABLES, NO_ALIASES
from app.foundation.clock import epoch_ms, from_epoch_ms

Values = tuple[object, ...]
"""The values of one row, in the order of the table's columns."""


@dataclass(frozen=True)
class KindTable:
    """The table of one kind of record in the access model."""

    kind: str
    table: Table
    record_from_row: Callable[[Any], Record]

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


def _aliases(aliases: tuple[str, ...]) -> str:
    return orjson.dumps(sorted(aliases)).decode() if aliases else NO_ALIASES


_TO_COLUMN: Mapping[FieldType, Callable[[Any], object]] = {
    FieldType.ALIASES: _aliases,
    FieldType.ACCESS_TYPE: lambda access_type: access_type.value,
    FieldType.ACCESS_ROLE: lambda role: role.value,
    FieldType.TIME: epoch_ms,
}
"""Type of a field → its conversion. Values of other types are stored as they are."""

_FROM_COLUMN: Mapping[FieldType, Callable[[Any], object]] = {
    FieldType.FLAG: bool,
    FieldType.ACCESS_TYPE: AccessType,
    FieldType.ACCESS_ROLE: AccessRole,
    FieldType.TIME: from_epoch_ms,
}
"""The inverse for the access model, which has no aliases."""


def _values_from_record(kind: RecordKind) -> Callable[[Any], Values]:
    columns = [
        (field.attribute, _TO_COLUMN.get(field.type), None if field.type is FieldType.TIME else "")
        for field in kind.column_fields
    ]
    described = [(field.attribute, field.name) for field in _described(kind)]

    def values_from_record(record: Any) -> Values:
        values = []
        for attribute, convert, absent in columns:
            value = getattr(record, attribute)
            values.append(absent if value is None else value if convert is None else convert(value))
        if not kind.has_extra_fields:
            return tuple(values)
        payload = dict(record.extra_fields)
        for attribute, name in described:
            if (value := getattr(record, attribute)) is not None:
                payload[name] = value
        return (*values, *payload_and_digest(payload))

    return values_from_record


def _record_from_row(kind: RecordKind) -> Callable[[Any], Record]:
    columns = [
        (field.attribute, _FROM_COLUMN.get(field.type))
        for field in kind.column_fields
        if field.type not in {FieldType.ALIAS, FieldType.ALIASES}
    ]
    texts = [(field.attribute, field.name) for field in kind.fields if field.type is FieldType.TEXT]
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
            payload.pop(kind.own_id.name, None)
            values |= {attribute: payload.pop(name, None) for attribute, name in texts}
            values["extra_fields"] = payload
        return make(**values)

    return record_from_row


def _described(kind: RecordKind) -> list[RecordField]:
    """The fields in the payload: the descriptive fields, and the record's own id."""
    return [field for field in kind.fields if field is kind.own_id or field.type is FieldType.TEXT]


VALUES_FROM_RECORD: Mapping[str, Callable[[Any], Values]] = {
    kind.name: _values_from_record(kind) for kind in KINDS_BY_REFERENCE
}
"""kind → a function that returns a record's values of ``column_fields``, then payload and digest if it has them."""

TABLES_OF_KIND: Mapping[str, KindTable] = {
    kind: KindTable(kind, table, _record_from_row(KINDS[kind])) for kind, table in ACCESS_TABLES.items()
}
"""The kinds of the access model, referred-to kinds first."""

KIND_TABLES: Sequence[KindTable] = tuple(TABLES_OF_KIND.values())


RecordT = TypeVar("RecordT", bound=Record)


def record_of(kind: type[RecordT], row: Row[Any]) -> RecordT:
    """The record of this class in a row of its table of the access model."""
    return cast("RecordT", TABLES_OF_KIND[kind.kind].record_from_row(row))
