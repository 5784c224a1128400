"""CSV files: rows as records, or as objects for rules.

The first row has the names of the columns. Python's ``csv`` parses the file in strict mode: the read fails if it finds
an unbalanced quote, because the rest of the file might be parsed as other rows. Two unbalanced quotes look like one
cell with line breaks, which contains the rows between them. So a row of several lines is malformed, unless the setting
``line_breaks`` allows it. A row with another number of cells is malformed, too. Empty cells are like NULL in a
database.
"""

import codecs
import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, partial
from io import TextIOWrapper
from typing import IO, NamedTuple
from zoneinfo import ZoneInfo

from app.access.kinds import KINDS
from app.access.records import FieldType, Record
from app.directory.casting import check_field_names, disabling_record, missing_fields, plural, record_from_object
from app.directory.connector import (
    ALL_ATTRIBUTES,
    DirectoryObject,
    Objects,
    ReadError,
    RequestedFields,
    UnreadableValueError,
)
from app.directory.connectors.sql.rows import id_of, quoted_names
from app.directory.connectors.sql.values import Convert, column_converters, columns_of_parsed_text
from app.directory.content import read_content
from app.directory.fields import MalformedRecordError, checked_text
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
from app.foundation.text import counted, quoted

MAX_ROW_CHARACTERS = 1024 * 1024
"""The maximum length of a row. Python's limit for one cell is 131,072 characters."""

_LINE_BREAKS = (
    "has {:,} lines; check for an unbalanced quote, or set line_breaks: true if cells may contain line breaks"
)

_FLAGS = {"true": True, "1": True, "false": False, "0": False}


class CsvSource:
    """A CSV file whose rows are records."""

    def __init__(self, settings: CsvSourceSettings) -> None:
        self._settings = settings

    @property
    def name(self) -> str:
        return self._settings.source_name

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
        table = _Table(settings, stream, file_name)
        rows = _RecordRows(settings, table)
        for place, cells in table.rows():
            yield from tally.counted([cells] if isinstance(cells, Malformed) else rows.steps(place, cells))
    except ReadError as error:
        yield error.end
    else:
        yield tally.end("malformed row")


def _objects(settings: CsvSourceSettings, wanted: frozenset[str], stream: IO[bytes], file_name: str) -> Objects:
    tally = MalformedTally()
    try:
        table = _Table(settings, stream, file_name)
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
    table: "_Table", cells: Sequence[str], key: Sequence[str], columns: Sequence[str], place: str
) -> DirectoryObject | Malformed:
    value = dict(zip(table.columns, cells, strict=True))
    object_ = _object_id(ROWS, [value[name] for name in key])
    if object_ is None:
        return Malformed(place, f"{', '.join(key)}: is empty or invalid, and identifies the row")
    return DirectoryObject(object_, {name: value[name] for name in columns if value[name]}, place)


def _object_id(set_: str, key: Sequence[str]) -> ObjectId | None:
    """The object of a row with this key; None if the key identifies nothing."""
    try:
        return ObjectId(set_, checked_text(id_of(key), "key")) if any(key) else None
    except MalformedRecordError:
        return None


class _Table:
    """The columns and rows of a file. Raises ``ReadError`` for an unusable header."""

    def __init__(self, settings: CsvSourceSettings, stream: IO[bytes], file_name: str) -> None:
        self.file_name = file_name
        self._delimiter = settings.delimiter
        self._line_breaks = settings.line_breaks
        self._lines = _Lines(stream, file_name, settings.encoding, require_line_end=settings.require_line_end)
        self._rows = self._parsed()
        self.columns = self._header()

    def _parsed(self) -> Iterator[tuple[int, list[str], str]]:
        """The rows that are not blank, each with its first line and its problem. Raises ``ReadError``."""
        reader = csv.reader(self._lines, delimiter=self._delimiter, strict=True)
        while True:
            first = self._lines.begin_row()
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise ReadError(f"{self.file_name}:{first}: not CSV: {error}") from None
            if cells:
                count = self._lines.number - first + 1
                yield first, cells, "" if count == 1 or self._line_breaks else _LINE_BREAKS.format(count)

    def _header(self) -> Sequence[str]:
        line, columns, problem = next(self._rows, (0, [], ""))
        if not columns:
            raise ReadError(f"{self.file_name}: is empty; the first row must have the names of the columns")
        where = f"{self.file_name}:{line}"
        if problem:
            raise ReadError(f"{where}: the first row {problem}")
        for number, name in enumerate(columns, start=1):
            if not name.strip() or "\0" in name:
                raise ReadError(f"{where}: column {number} has no valid name; the first row has the names of columns")
        repeated = sorted(name for name, count in Counter(columns).items() if count > 1)
        if repeated:
            raise ReadError(
                f"{where}: several columns are called {quoted_names(repeated)}; give each a name of its own"
            )
        return columns

    def rows(self) -> Iterator[tuple[str, Sequence[str] | Malformed]]:
        """The place and the cells of each row. Raises ``ReadError``."""
        width = len(self.columns)
        for line, cells, problem in self._rows:
            place = f"{self.file_name}:{line}"
            if problem:
                yield place, Malformed(place, problem)
            elif len(cells) == width:
                yield place, cells
            else:
                yield place, Malformed(place, f"has {counted(len(cells), 'cell')}, but the header has {width:,}")

    def key_of_objects(self, key: Sequence[str]) -> Sequence[str]:
        """The columns that identify an object. Raises ``ReadError`` if there are none."""
        if not key and "id" not in self.columns:
            raise ReadError(
                f"{self.file_name}: has no column id; let key name the columns that identify a row permanently, of"
                f" {quoted_names(self.columns)}{self.delimiter_hint}"
            )
        self.check_columns(key, "key names")
        return key or ("id",)

    def check_columns(self, names: Sequence[str], named_by: str) -> None:
        """Raises ``ReadError`` for a missing column."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            raise ReadError(
                f"{self.file_name}: has no column {quoted_names(missing)}, which {named_by}; it has"
                f" {quoted_names(self.columns)}{self.delimiter_hint}"
            )

    @property
    def delimiter_hint(self) -> str:
        """A hint that the file may have another delimiter, if it has one column."""
        others = [one for one in ",;\t|" if one in self.columns[0]] if len(self.columns) == 1 else []
        return f"; if the file has another delimiter, set delimiter: {quoted(others[0])}" if others else ""


class _Lines:
    """The lines of a file as text.

    Raises ``ReadError`` for bytes in another encoding, a row that is too long, and a missing line end.
    """

    def __init__(self, stream: IO[bytes], file_name: str, encoding: str, *, require_line_end: bool) -> None:
        self._text = TextIOWrapper(stream, encoding, newline="")
        self._file_name = file_name
        self._encoding = encoding
        self._encoding_name = "UTF-8" if codecs.lookup(encoding).name.startswith("utf-8") else encoding
        self._require_line_end = require_line_end
        self.number = 0
        self._room = 0

    def begin_row(self) -> int:
        """The number of the next line, with which a row begins."""
        self._room = MAX_ROW_CHARACTERS
        return self.number + 1

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            line = self._text.readline(self._room + 1)
        except UnicodeError as error:
            raise ReadError(
                f"{self._file_name}:{self._line_of(error)}: the bytes are not {self._encoding_name}"
            ) from None
        if not line:
            raise StopIteration
        self.number += 1
        self._room -= len(line)
        place = f"{self._file_name}:{self.number}"
        if self._room < 0:
            raise ReadError(
                f"{place}: the row is longer than {MAX_ROW_CHARACTERS:,} characters; is a quote unbalanced?"
            )
        if self._require_line_end and line[-1] not in "\r\n":
            raise ReadError(
                f"{place}: the last line has no line end, so that the file may be truncated; if its writer never ends"
                " the last line, set require_line_end: false"
            )
        return line

    def _line_of(self, error: UnicodeError) -> int:
        """The line of the error: the lines before it in the bytes that were being decoded were not returned yet."""
        if not isinstance(error, UnicodeDecodeError):
            return self.number + 1
        text = error.object[: error.start].decode(self._encoding, "replace")
        return self.number + 1 + text.replace("\r\n", "\n").replace("\r", "\n").count("\n")


class _Cell(NamedTuple):
    """A column of the records of a kind."""

    at: int
    name: str
    convert: Convert | None
    """None: the text of the cell."""
    skips_empty: bool
    """Whether the record does not have the field if the cell is empty."""
    empty: str | None
    """The value of an empty cell."""


class _RecordRows:
    """Makes records of rows. Raises ``ReadError`` for columns that do not fit."""

    def __init__(self, settings: CsvSourceSettings, table: _Table) -> None:
        self._columns = table.columns
        self._kind = settings.kind
        self._null_is_absent = settings.null_is_absent
        self._zone = ZoneInfo(settings.timezone)
        self._key = settings.key
        self._kind_index = table.columns.index("kind") if "kind" in table.columns else None
        table.check_columns(settings.key, "key names")
        self._cells_of = cache(self._cells)
        self._key_of = cache(self._key_indexes)
        if self._kind is not None:
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
        elif self._kind_index is None:
            raise ReadError(
                f"{table.file_name}: has no column kind; let kind name the kind of its records, or write rules in map"
                f"{table.delimiter_hint}"
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
        written = {} if self._kind_index is None else {"kind": cells[self._kind_index] or self._kind}
        object_: ObjectId | None = None
        values: dict[str, object] = {}
        try:
            if kind in KINDS:
                object_ = _object_id(plural(kind), [cells[index] for index in self._key_of(kind)])
                values = self._values(kind, cells)
            record, remarks = record_from_object({**written, **values}, self._kind)
        except MalformedRecordError as error:
            malformed = Malformed(place, str(error), object_, values.get("disabled") is True)
            fill = disabling_record(values, kind)
            return [malformed] if fill is None else [_found(fill, place, object_), malformed]
        return [_found(record, place, object_), *(Remark(place, remark) for remark in remarks)]

    def _values(self, kind: str, cells: Sequence[str]) -> dict[str, object]:
        values: dict[str, object] = {}
        for at, name, convert, skips_empty, empty in self._cells_of(kind):
            text = cells[at]
            if not text:
                if not skips_empty:
                    values[name] = empty
            elif convert is None:
                values[name] = text
            else:
                try:
                    value = convert(text)
                except UnreadableValueError as error:
                    raise MalformedRecordError(f"{name}: {error}") from None
                # ``infinity`` means no end.
                if value is not None:
                    values[name] = value
        return values


def _found(record: Record, place: str, object_: ObjectId | None) -> Found:
    return Found(record, place, None if object_ is None else Origin(object_))


def _flag(text: object) -> object:
    """Spreadsheets write TRUE and FALSE."""
    return _FLAGS.get(str(text).lower(), text)
