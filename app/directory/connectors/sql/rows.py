"""Makes records or objects of the rows of a query."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import tzinfo
from typing import Any, NamedTuple

from app.access.kinds import KINDS
from app.directory.casting import record_steps
from app.directory.columns import (
    Convert,
    build_row_id,
    column_converters,
    columns_of_parsed_text,
    digest_id,
    plain_value,
    quoted_names,
)
from app.directory.connector import DirectoryObject, ReadError, UnreadableValueError
from app.directory.connectors.sql.settings import Query
from app.directory.connectors.sql.snapshot import SqlSnapshot
from app.directory.field_names import check_field_names, missing_fields
from app.directory.fields import MalformedRecordError, check_json, checked_text
from app.directory.source import Found, Gone, Malformed, ObjectId, Origin, Remark
from app.foundation.text import quoted

Step = Found | DirectoryObject | Gone | Malformed | Remark


class Row(NamedTuple):
    """A row in plain values."""

    id: str
    values: dict[str, object]
    place: str


class DeletedRow(NamedTuple):
    """A row that does not exist any more."""

    id: str
    place: str


RowStep = Row | DeletedRow | Malformed


class _Column(NamedTuple):
    """A column that is part of the record or object."""

    position: int
    name: str
    convert: Convert
    parses_text: bool
    """Whether text is converted, too."""
    null_is_absent: bool


class QueryRows:
    """Converts the rows of a query. Raises ``ReadError`` for a query with unusable columns."""

    def __init__(self, query: Query, snapshot: SqlSnapshot, zone: tzinfo, wanted: frozenset[str] | None = None) -> None:
        """``wanted``: the columns that rules use. None: all."""
        self.query = query
        self.columns = tuple(snapshot.columns(query.name, query.text))
        check_columns(query, self.columns, snapshot.database)
        self.key = query.key_among(self.columns)
        missing = sorted((wanted or frozenset()) - set(self.columns))
        if missing:
            raise ReadError(
                f"queries.{query.name}: has no column {quoted_names(missing)}, which a rule of map names; it has"
                f" {quoted_names(self.columns)}"
            )
        self._converters = column_converters(query.kind, self.columns, zone)
        parsed = columns_of_parsed_text(query.kind)
        self._kept = [
            _Column(index, name, self._converters[name], name in parsed, name in query.null_is_absent)
            for index, name in enumerate(self.columns)
            if (name in wanted if wanted is not None else _is_field(name, query))
        ]
        self._key_indexes = [self.columns.index(name) for name in self.key]
        self._deleted_index = self.columns.index(query.deleted_column) if query.deleted_column else None
        self._zone = zone

    def convert(
        self,
        stream: Iterable[Sequence[Any]],
        observe: Callable[[Sequence[Any]], None] | None = None,
        ids: frozenset[str] | None = None,
    ) -> Iterator[RowStep]:
        """The rows, or only those with one of these ``ids``. Calls ``observe`` with each batch."""
        number = 0
        for batch in stream:
            if observe is not None:
                observe(batch)
            for row in batch:
                number += 1
                step = self._converted(row, f"{self.query.name}, row {number}", ids)
                if step is not None:
                    yield step

    def _converted(self, row: Sequence[Any], place: str, ids: frozenset[str] | None) -> RowStep | None:
        """A row. None if its id is not one of ``ids``."""
        try:
            key = [row[index] for index in self._key_indexes]
            identifier = self._id(key) if self.key else digest_id(repr(tuple(row)))
        except MalformedRecordError as error:
            return Malformed(place, str(error))
        if ids is not None and identifier not in ids:
            return None
        if self._deleted_index is not None and _is_set(row[self._deleted_index]):
            return DeletedRow(identifier, place)
        try:
            return Row(identifier, self._plain(row), place)
        except MalformedRecordError as error:
            disabled = self._is_disabled(dict(zip(self.columns, row, strict=True)))
            return Malformed(place, str(error), self._object(identifier), disabled)

    def _plain(self, row: Sequence[Any]) -> dict[str, object]:
        values: dict[str, object] = {}
        for position, name, convert, parses_text, null_is_absent in self._kept:
            value = row[position]
            if value is None:
                if not null_is_absent:
                    values[name] = None
            elif parses_text or type(value) is not str:
                try:
                    plain = convert(value)
                except UnreadableValueError as error:
                    raise MalformedRecordError(f"{name}: {error}") from None
                # ``infinity`` means no end.
                if plain is not None or name != "expiresAt":
                    values[name] = plain
            else:
                values[name] = value
        return values

    def _object(self, identifier: str) -> ObjectId | None:
        """The object of a row with a key. Without a key, every change of a row changes its id."""
        return ObjectId(self.query.name, identifier) if self.key else None

    def _is_disabled(self, values: Mapping[str, object]) -> bool:
        if self.query.kind is None or "disabled" not in values:
            return False
        with suppress(UnreadableValueError):
            return self._converters["disabled"](values["disabled"]) is True
        return False

    def id_of_row(self, values: Mapping[str, object]) -> str:
        """The id, from the columns of the key. Raises ``MalformedRecordError``."""
        return self._id([values[column] for column in self.key])

    def _id(self, key: Sequence[object]) -> str:
        columns = ", ".join(self.key)
        try:
            parts = [value if type(value) is str else self._id_part(value) for value in key]
        except UnreadableValueError as error:
            raise MalformedRecordError(f"{columns}: {error}") from None
        if not any(parts):
            raise MalformedRecordError(f"{columns}: is empty, and identifies the row")
        return checked_text(build_row_id(parts), columns)

    def _id_part(self, value: object) -> str:
        if value is None:
            return ""
        plain = plain_value(value, self._zone)
        return str(plain).lower() if isinstance(plain, bool) else str(plain)

    def steps(self, rows: Iterable[RowStep], *, report_deleted: bool) -> Iterator[Step]:
        """The records of the rows, or their objects if the query has no kind. ``report_deleted``: ``Gone`` as well."""
        make = self._object_steps if self.query.kind is None else self._record_steps
        for row in rows:
            if type(row) is Row:
                yield from make(row)
            elif isinstance(row, Malformed):
                yield row
            elif report_deleted:
                yield Gone(ObjectId(self.query.name, row.id))

    def _record_steps(self, row: Row) -> Sequence[Step]:
        origin = Origin(ObjectId(self.query.name, row.id))
        return record_steps(row.values, self.query.kind, row.place, origin, self._object(row.id))

    def _object_steps(self, row: Row) -> Sequence[Step]:
        present = {column: value for column, value in row.values.items() if value is not None}
        try:
            for column, value in present.items():
                check_json(value, column)
        except MalformedRecordError as error:
            return [Malformed(row.place, str(error), self._object(row.id))]
        return [DirectoryObject(ObjectId(self.query.name, row.id), present, row.place)]


def _is_set(value: object) -> bool:
    """Whether a column marks its row as deleted: it is not null, false, zero or empty."""
    return value not in (None, False, 0, "", b"", b"\0", "0", "f", "false")


# Columns.

_NUMBERED = re.compile(r"(.+):\d+")
"""The name of the second of two columns with one name in SQLite."""


def check_columns(query: Query, columns: Sequence[str], database: str) -> None:
    """Raises ``ReadError`` for columns of one name, for folded names, and for a missing column that the settings name.

    If the query has a kind, also for missing fields, and for columns that are not a field.
    """
    where = f"queries.{query.name}"
    numbered = {found[1] for name in columns if (found := _NUMBERED.fullmatch(name)) and found[1] in columns}
    repeated = sorted({name for name in columns if columns.count(name) > 1} | numbered)
    if repeated:
        raise ReadError(f"{where}: several columns are called {quoted_names(repeated)}; give each a name of its own")
    fields_of_kind = [] if query.kind is None else [field.name for field in KINDS[query.kind].fields]
    # A key or cursor column may be spelled as a field that the query does not provide.
    expected = [*query.own_columns, *(name for name in fields_of_kind if name.lower() not in query.own_columns)]
    for name in expected:
        if database == "postgresql" and name not in columns and name.lower() in columns:
            raise ReadError(
                f"{where}: has no column {quoted(name)}, because PostgreSQL folds unquoted names to lower case; write"
                f' AS "{name}"'
            )
    for name in query.own_columns:
        if name not in columns:
            raise ReadError(f"{where}: has no column {quoted(name)}; it has {quoted_names(columns)}")
    if query.kind is None:
        return
    fields = [name for name in columns if _is_field(name, query)]
    try:
        check_field_names(query.kind, fields)
    except MalformedRecordError as error:
        raise ReadError(f"{where}: the column {error}") from None
    missing = missing_fields(query.kind, fields)
    if missing:
        raise ReadError(
            f"{where}: lacks {', '.join(missing)}, which {query.kind} records need; give a column that name"
        )


def _is_field(column: str, query: Query) -> bool:
    """Whether a column is part of the record or object. Key and cursor columns are not, unless they are fields."""
    return query.kind is None or column in KINDS[query.kind].field_names or column not in query.own_columns
