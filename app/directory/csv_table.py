"""Parses the columns and rows of a CSV file.

Python's ``csv`` parses the file in strict mode: the read fails if it finds an unbalanced quote, because the rest of the
file might be parsed as other rows. Two unbalanced quotes look like one cell with line breaks, which contains the rows
between them. So a row of several lines is malformed, unless the setting ``line_breaks`` allows it. A row with another
number of cells is malformed, too.
"""

import codecs
import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from typing import IO, NamedTuple

from app.directory.columns import build_row_id, quoted_names
from app.directory.connector import ReadError
from app.directory.fields import MalformedRecordError, checked_text
from app.directory.settings import CsvSourceSettings
from app.directory.source import Malformed, ObjectId
from app.foundation.text import counted, quoted

MAX_ROW_CHARACTERS = 1024 * 1024
"""The maximum length of a row. Python's limit for one cell is 131,072 characters."""

_LINE_BREAKS = (
    "has {:,} lines; check for an unbalanced quote, or set line_breaks: true if cells may contain line breaks"
)


class _ParsedRow(NamedTuple):
    """A row that is not blank."""

    line: int
    """The number of its first line."""
    cells: list[str]
    problem: str
    """Why it is malformed. Empty: it is not."""


def row_object(set_: str, key: Sequence[str]) -> ObjectId | None:
    """The object of a row with this key. None if the key identifies nothing."""
    try:
        return ObjectId(set_, checked_text(build_row_id(key), "key")) if any(key) else None
    except MalformedRecordError:
        return None


class CsvTable:
    """The columns and rows of a file. Raises ``ReadError`` for an unusable header."""

    def __init__(self, settings: CsvSourceSettings, stream: IO[bytes], file_name: str) -> None:
        self.file_name = file_name
        self._delimiter = settings.delimiter
        self._line_breaks = settings.line_breaks
        self._lines = _Lines(stream, file_name, settings.encoding, require_line_end=settings.require_line_end)
        self._rows = self._parsed()
        self.columns = self._header()

    def _parsed(self) -> Iterator[_ParsedRow]:
        """The rows that are not blank, the header first. Raises ``ReadError``."""
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
                problem = "" if count == 1 or self._line_breaks else _LINE_BREAKS.format(count)
                yield _ParsedRow(first, cells, problem)

    def _header(self) -> Sequence[str]:
        header = next(self._rows, None)
        if header is None:
            raise ReadError(f"{self.file_name}: is empty; the first row must have the names of the columns")
        where = f"{self.file_name}:{header.line}"
        if header.problem:
            raise ReadError(f"{where}: the first row {header.problem}")
        for number, name in enumerate(header.cells, start=1):
            if not name.strip() or "\0" in name:
                raise ReadError(f"{where}: column {number} has no valid name; the first row has the names of columns")
        repeated = sorted(name for name, count in Counter(header.cells).items() if count > 1)
        if repeated:
            raise ReadError(
                f"{where}: several columns are called {quoted_names(repeated)}; give each a name of its own"
            )
        return header.cells

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
        others = [mark for mark in ",;\t|" if mark in self.columns[0]] if len(self.columns) == 1 else []
        return f"; if the file has another delimiter, set delimiter: {quoted(others[0])}" if others else ""


class _Lines:
    """The lines of a file as text. Raises ``ReadError`` for a line that cannot be used."""

    def __init__(self, stream: IO[bytes], file_name: str, encoding: str, *, require_line_end: bool) -> None:
        self._text = TextIOWrapper(stream, encoding, newline="")
        self._file_name = file_name
        self._encoding = encoding
        self._encoding_name = "UTF-8" if codecs.lookup(encoding).name.startswith("utf-8") else encoding
        self._require_line_end = require_line_end
        self.number = 0
        """The number of the last line that was returned."""
        self._room = 0
        """Characters that the current row may still have."""

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
