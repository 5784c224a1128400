"""CSV files: rows as records, whose fields name the columns, or as objects for rules.

Empty cells are like NULL in a database.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import IO, NamedTuple
from zoneinfo import ZoneInfo

from app.access.kinds import KINDS
from app.access.records import FieldType
from app.directory.casting import plural, record_steps
from app.directory.columns import Convert, column_converters, columns_of_parsed_text, quoted_names
from app.directory.connector import (
    ALL_ATTRIBUTES,
    DirectoryObject,
    Objects,
    ReadError,
    RequestedFields,
    UnreadableValueError,
)
from app.directory.content import read_content
from app.directory.csv_table import CsvTable, row_object
from app.directory.field_names import check_field_names, missing_fields
from app.directory.fields import MalformedRecordError
from app.directory.settings import ROWS, CsvSourceSettings
from app.directory.source import (
    EVERYTHING,
    Found,
    Malformed,
    MalformedTally,
    ObjectId,
    Origin,
    Reading,
    ReadRequest,
    Remark,
)


class CsvSource:
    """A CSV file whose rows are records."""

    def __init__(self, settings: CsvSourceSettings) -> None:
        self.name = settings.source_name
        self._settings = settings

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        settings = self._settings
        return read_content(settings.path, partial(_records, settings), since=request.since, store=settings.store)


class CsvConnector:
    """A CSV file whose rows are objects of the set ``rows``."""

    def __init__(self, settings: CsvSourceSettings) -> None:
        self._settings = settings

    def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Objects:
        settings = self._settings
        reader = partial(_objects, settings, wanted.attributes[ROWS])
        return read_content(settings.path, reader, since=request.since, store=settings.store)


def _records(settings: CsvSourceSettings, stream: IO[bytes], file_name: str) -> Reading:
    tally = MalformedTally()
    try:
        table = CsvTable(settings, stream, file_name)
        records = _Records(settings, table)
        for place, cells in table.rows():
            yield from tally.counted([cells] if isinstance(cells, Malformed) else records.steps(place, cells))
    except ReadError as error:
        yield error.end
    else:
        yield tally.end("malformed row")


def _objects(settings: CsvSourceSettings, wanted: frozenset[str], stream: IO[bytes], file_name: str) -> Objects:
    tally = MalformedTally()
    try:
        table = CsvTable(settings, stream, file_name)
        columns = table.columns if ALL_ATTRIBUTES in wanted else sorted(wanted)
        table.check_columns(columns, "a rule of map names")
        key = table.key_of_objects(settings.key)
        for place, cells in table.rows():
            step = cells if isinstance(cells, Malformed) else _object(table, cells, key, columns, place)
            yield from tally.counted([step])
    except ReadError as error:
        yield error.end
    else:
        yield tally.end("malformed row")


def _object(
    table: CsvTable, cells: Sequence[str], key: Sequence[str], columns: Sequence[str], place: str
) -> DirectoryObject | Malformed:
    value = dict(zip(table.columns, cells, strict=True))
    object_ = row_object(ROWS, [value[name] for name in key])
    if object_ is None:
        return Malformed(place, f"{', '.join(key)}: is empty or invalid, and identifies the row")
    return DirectoryObject(object_, {name: value[name] for name in columns if value[name]}, place)


# Records.

_FLAGS = {"true": True, "1": True, "false": False, "0": False}


class _Cell(NamedTuple):
    """A column of the records of a kind."""

    position: int
    name: str
    convert: Convert | None
    """None: the text of the cell."""
    skips_empty: bool
    """Whether the record does not have the field if the cell is empty."""
    empty: str | None


class _Records:
    """Makes the records of rows. Raises ``ReadError`` for columns that do not fit."""

    def __init__(self, settings: CsvSourceSettings, table: CsvTable) -> None:
        self._columns = table.columns
        self._kind = settings.kind
        self._null_is_absent = settings.null_is_absent
        self._zone = ZoneInfo(settings.timezone)
        self._key = settings.key
        self._kind_index = table.columns.index("kind") if "kind" in table.columns else None
        self._cells_of = cache(self._cells)
        self._key_of = cache(self._key_indexes)
        self._check_columns(table)

    def _check_columns(self, table: CsvTable) -> None:
        table.check_columns(self._key, "key names")
        if self._kind is None:
            if self._kind_index is None:
                raise ReadError(
                    f"{table.file_name}: has no column kind; let kind name the kind of its records, or write rules in"
                    f" map{table.delimiter_hint}"
                )
            return
        fields = [name for name in table.columns if self._is_field(name, self._kind)]
        try:
            check_field_names(self._kind, fields)
        except MalformedRecordError as error:
            raise ReadError(f"{table.file_name}: the column {error}{table.delimiter_hint}") from None
        if missing := missing_fields(self._kind, fields):
            raise ReadError(
                f"{table.file_name}: lacks {', '.join(missing)}, which {self._kind} records need; it has"
                f" {quoted_names(table.columns)}{table.delimiter_hint}"
            )

    def _is_field(self, column: str, kind: str) -> bool:
        """Whether a column is part of the record. Columns of the key are not, unless they are fields."""
        return column != "kind" and (column in KINDS[kind].field_names or column not in self._key)

    def _cells(self, kind: str) -> Sequence[_Cell]:
        """The columns of a kind. Columns of other kinds are extra fields, and so must be empty in many kinds."""
        fields = {field.name: field for field in KINDS[kind].fields}
        converters = column_converters(kind, self._columns, self._zone)
        parsed = columns_of_parsed_text(kind)
        cells = []
        for index, name in enumerate(self._columns):
            if not self._is_field(name, kind):
                continue
            field = fields.get(name)
            # A name or an address may be unknown. Others that are needed are missing.
            empty = "" if field is not None and field.type is FieldType.TEXT and field.is_needed else None
            convert = converters[name] if name in parsed else None
            if field is not None and field.type is FieldType.FLAG:
                convert = _flag
            cells.append(_Cell(index, name, convert, field is None or name in self._null_is_absent, empty))
        return cells

    def _key_indexes(self, kind: str) -> Sequence[int]:
        names = self._key or [field.name for field in KINDS[kind].keys if field.name in self._columns]
        return [self._columns.index(name) for name in names]

    def steps(self, place: str, cells: Sequence[str]) -> Sequence[Found | Malformed | Remark]:
        """The record of a row, or why there is none."""
        kind = self._kind or cells[self._kind_index or 0]
        if not kind:
            return [Malformed(place, "kind: is empty")]
        object_: ObjectId | None = None
        values: dict[str, object] = {}
        if kind in KINDS:
            object_ = row_object(plural(kind), [cells[index] for index in self._key_of(kind)])
            try:
                values = self._values(kind, cells)
            except UnreadableValueError as error:
                return [Malformed(place, str(error), object_)]
        own_kind = {} if self._kind_index is None else {"kind": cells[self._kind_index] or self._kind}
        origin = None if object_ is None else Origin(object_)
        return record_steps({**own_kind, **values}, self._kind, place, origin, object_)

    def _values(self, kind: str, cells: Sequence[str]) -> dict[str, object]:
        """The values of the record's fields. Raises ``UnreadableValueError``."""
        values: dict[str, object] = {}
        for position, name, convert, skips_empty, empty in self._cells_of(kind):
            text = cells[position]
            if not text:
                if not skips_empty:
                    values[name] = empty
            elif convert is None:
                values[name] = text
            else:
                try:
                    value = convert(text)
                except UnreadableValueError as error:
                    raise UnreadableValueError(f"{name}: {error}") from None
                # ``infinity`` means no end.
                if value is not None:
                    values[name] = value
        return values


def _flag(text: object) -> object:
    """Spreadsheets write TRUE and FALSE."""
    return _FLAGS.get(str(text).lower(), text)
