"""CSV files: rows as records, or as objects for rules."""

from collections.abc import Sequence
from functools import partial
from typing import IO

from app.directory.connector import ALL_ATTRIBUTES, DirectoryObject, Objects, ReadError, RequestedFields
from app.directory.content import read_content
from app.directory.csv_records import CsvRecords
from app.directory.csv_table import CsvTable, row_object
from app.directory.settings import ROWS, CsvSourceSettings
from app.directory.source import EVERYTHING, Malformed, MalformedTally, Reading, ReadRequest


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
        table = CsvTable(settings, stream, file_name)
        records = CsvRecords(settings, table)
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
