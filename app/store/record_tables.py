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

from app.access.kinds import KINDS, KINDS_BY_REFERENCE, RecordField, RecordKind, compiled
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
from app.clock import epoch_ms, from_epoch_ms
from app.store.access_tables import (
    AccessContextGrantRow,
    AccessDocumentRow,
    AccessFolderRow,
    AccessGrantRow,
    AccessGroupMemberRow,
    AccessGroupRow,
    AccessMembershipRow,
    AccessOrganizationRow,
    AccessUserRow,
)
from app.store.base import StoreTable

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


_TO_COLUMN = {
    Sort.ID: "record.{0}",
    Sort.ALIAS: "record.{0} or ''",
    Sort.ALIASES: "aliases(record.{0})",
    Sort.CONTEXT_VALUE: "record.{0}",
    Sort.FLAG: "record.{0}",
    Sort.ACCESS_TYPE: "record.{0}.value",
    Sort.ACCESS_ROLE: "record.{0}.value",
    Sort.TIME: "None if record.{0} is None else epoch_ms(record.{0})",
}
"""Sort of value → how it is stored. Texts stand in the payload."""

_TO_OPTIONAL_COLUMN = _TO_COLUMN | {
    Sort.ID: "record.{0} or ''",
    Sort.ACCESS_TYPE: "record.{0}.value if record.{0} else ''",
}

_FROM_COLUMN = {
    Sort.ID: "row.{0}",
    Sort.CONTEXT_VALUE: "row.{0}",
    Sort.FLAG: "bool(row.{0})",
    Sort.ACCESS_TYPE: "AccessType(row.{0})",
    Sort.ACCESS_ROLE: "AccessRole(row.{0})",
    Sort.TIME: "None if row.{0} is None else from_epoch_ms(row.{0})",
}

_FROM_OPTIONAL_COLUMN = _FROM_COLUMN | {
    Sort.ID: "row.{0} or None",
    Sort.ACCESS_TYPE: "AccessType(row.{0}) if row.{0} else None",
}


def kept_fields(kind: RecordKind) -> Sequence[RecordField]:
    """The fields that have a column of their own among the sources' records; the others stand in the payload."""
    return tuple(field for field in kind.fields if field.sort is not Sort.TEXT)


def _aliases(aliases: tuple[str, ...]) -> str:
    return orjson.dumps(sorted(aliases)).decode() if aliases else NO_ALIASES


NO_ALIASES = "[]"
"""The column ``aliases`` of a user without any; it holds a sorted JSON list."""


def _values_from_record(kind: RecordKind) -> Callable[[Any], Values]:
    lines = ["def values_from_record(record):"]
    values = []
    for field in kept_fields(kind):
        forms = _TO_COLUMN if field.is_given else _TO_OPTIONAL_COLUMN
        values.append(forms[field.sort].format(field.attribute))
    if kind.carries:
        described = [f"{field.name!r}: record.{field.attribute}" for field in _described(kind) if field.is_needed]
        lines.append(f"    described = {{{', '.join(['**record.further', *described])}}}")
        for field in _described(kind):
            if not field.is_needed:
                lines.append(f"    if record.{field.attribute} is not None:")
                lines.append(f"        described[{field.name!r}] = record.{field.attribute}")
        values.append("*payload_and_digest(described)")
    lines.append(f"    return ({', '.join(values)},)")
    names = {"aliases": _aliases, "epoch_ms": epoch_ms, "payload_and_digest": payload_and_digest}
    codec: Callable[[Any], Values] = compiled("values_from_record", lines, names, of=kind.name)
    return codec


def _record_from_row(kind: RecordKind) -> Callable[[Any], Record]:
    lines = ["def record_from_row(row):"]
    values = []
    if kind.carries:
        lines.append("    payload = loads(row.payload)")
    for field in kind.fields:
        if field.sort in {Sort.ALIAS, Sort.ALIASES}:
            continue
        if field.sort is Sort.TEXT:
            value = f"payload.pop({field.name!r}{'' if field.is_needed else ', None'})"
        else:
            forms = _FROM_COLUMN if field.is_given else _FROM_OPTIONAL_COLUMN
            value = forms[field.sort].format(field.attribute)
        values.append(f"{field.attribute}={value}")
    if kind.own_id:
        lines.append(f"    del payload[{kind.own_id.name!r}]")
        # After the known fields were taken out: arguments are evaluated in their order.
        values.append("further=payload")
    lines.append(f"    return record({', '.join(values)})")
    names = {
        "record": kind.record,
        "loads": orjson.loads,
        "from_epoch_ms": from_epoch_ms,
        "AccessType": AccessType,
        "AccessRole": AccessRole,
    }
    codec: Callable[[Any], Record] = compiled("record_from_row", lines, names, of=kind.name)
    return codec


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
    Organization.kind: AccessOrganizationRow,
    User.kind: AccessUserRow,
    Membership.kind: AccessMembershipRow,
    Group.kind: AccessGroupRow,
    GroupMember.kind: AccessGroupMemberRow,
    Folder.kind: AccessFolderRow,
    Document.kind: AccessDocumentRow,
    Grant.kind: AccessGrantRow,
    ContextGrant.kind: AccessContextGrantRow,
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
