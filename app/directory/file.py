"""Reads directory files: JSON Lines, and documents in JSON or YAML with ``documents.py``.

``.jsonl`` (or ``.ndjson``) has one record per line, and is read in constant memory. ``.json``, ``.yaml`` and ``.yml``
have an object with a list per kind, and are read into memory. Each may be gzipped, with ``.gz``
after the other suffix. The read fails if the file cannot be read to its end, or if it changes meanwhile.

An invalid line is a malformed record. The read fails at bytes that are not UTF-8, and at a last line that is no JSON
and has no line end, because the file may be truncated. The end record in the last line, with the number of records,
shows whether a file is truncated between two lines.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import IO

import orjson

from app.directory.casting import record_from_object
from app.directory.content import is_folder, read_content
from app.directory.documents import read_document
from app.directory.fields import MalformedRecordError, object_from_pairs
from app.directory.settings import JSON_LINES, FileSourceSettings
from app.directory.source import EVERYTHING, End, Found, Malformed, Reading, ReadRequest, Remark, Verdict
from app.foundation.json_keys import repeats_no_key
from app.foundation.text import counted, quoted

MAX_LINE_BYTES = 1024 * 1024
"""A longer line is a malformed record, and not kept in memory."""

_CHUNK_BYTES = 64 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class FileSource:
    """A directory in one file, or in an object."""

    def __init__(self, settings: FileSourceSettings) -> None:
        self.name = settings.source_name
        self._settings = settings

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        path, shown = self._settings.path, self._settings.shown_path
        suffixes = [suffix.lower() for suffix in PurePath(path).suffixes if suffix.lower() != ".gz"]
        ending = "".join(suffixes[-1:])
        if ending not in ENDINGS and not is_folder(path):
            yield End(
                Verdict.FAILED,
                f"{shown}: the name must end in {', '.join(ENDINGS)} (each may be followed by .gz);"
                " CSV files need a source of type csv",
            )
            return
        reader = _DOCUMENT_READERS.get(ending, partial(read_lines, require_end=self._settings.require_end))
        yield from read_content(path, reader, since=request.since, store=self._settings.store, shown=shown)


# JSON Lines.


END_FIELDS = frozenset({"end", "records", "sequence"})
"""The fields of an end record. Only pushes have ``sequence``."""


@dataclass
class _LinesRead:
    """The state of a read of JSON Lines."""

    records: int = 0
    """Including malformed ones."""
    malformed: int = 0
    end_error: str = ""
    """The error of the end record. Empty if there is none."""
    has_end: bool = False
    """Whether the end record was read."""

    def take_end(self, fields: Mapping[str, object], place: str) -> None:
        """Checks the end record, ``{"end": true, "records": 1234}``."""
        unknown = [name for name in fields if name not in END_FIELDS]
        if self.has_end:
            self.end_error = self.end_error or f"{place}: there is a second end record"
        elif unknown:
            self.end_error = f"{place}: {quoted(unknown[0])} is not a field of the end record"
        elif fields["end"] is not True or type(fields.get("records")) is not int:
            self.end_error = f'{place}: not an end record, which is {{"end": true, "records": {self.records}}}'
        elif fields["records"] != self.records:
            self.end_error = f"{place}: should have {fields['records']:,} records before it, but has {self.records:,}"
        self.has_end = True

    def end(self, file_name: str, *, require_end: bool) -> End:
        """The verdict at the end of the stream."""
        reasons = [counted(self.malformed, "malformed record")] if self.malformed else []
        if self.end_error:
            reasons.append(self.end_error)
        elif require_end and not self.has_end:
            reasons.append(f'{file_name}: has no end record, {{"end": true, "records": N}}: it may be truncated')
        return End(Verdict.PARTIAL, "; ".join(reasons)) if reasons else End(Verdict.COMPLETE)


def read_lines(stream: IO[bytes], file_name: str, *, require_end: bool = False) -> Reading:
    """The records of a JSON Lines stream. Raises the errors of the stream. ``require_end``: as in the settings."""
    read = _LinesRead()
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        place = f"{file_name}:{number}"
        is_complete = line.endswith(b"\n")
        steps: tuple[Found | Malformed | Remark | End, ...]
        if len(line) > MAX_LINE_BYTES and not is_complete:
            steps = _steps_of_long_line(stream, place)
        else:
            steps = _steps_of_line(
                line if number > 1 else line.removeprefix(_BYTE_ORDER_MARK), place, read, is_complete=is_complete
            )
        for step in steps:
            yield step
            if type(step) is Malformed:
                read.malformed += 1
            elif type(step) is End:
                return
        if steps:
            read.records += 1
            if read.has_end and not read.end_error:
                read.end_error = f"{place}: comes after the end record"
    yield read.end(file_name, require_end=require_end)


def _steps_of_line(
    line: bytes, place: str, read: _LinesRead, *, is_complete: bool
) -> tuple[Found | Malformed | Remark | End, ...]:
    if not line.strip():
        return ()
    try:
        value = object_from_line(line)
        if type(value) is dict and "end" in value and "kind" not in value:
            read.take_end(value, place)
            return ()
        record, remarks = record_from_object(value)
    except UnicodeDecodeError:
        return (End(Verdict.FAILED, f"{place}: the bytes are not UTF-8"),)
    except json.JSONDecodeError as error:
        if not is_complete:
            return (End(Verdict.FAILED, f"{place}: the file ends in the middle of a line"),)
        return (Malformed(place, f"not JSON: {error.msg} (column {error.colno})"),)
    except MalformedRecordError as error:
        return (Malformed(place, str(error)),)
    return (Found(record, place), *(Remark(place, remark) for remark in remarks))


def _steps_of_long_line(stream: IO[bytes], place: str) -> tuple[Malformed | End]:
    """Skips the rest of a line that is too long."""
    if any(chunk.endswith(b"\n") for chunk in iter(lambda: stream.readline(_CHUNK_BYTES), b"")):
        return (Malformed(place, f"the line is longer than {MAX_LINE_BYTES:,} bytes"),)
    return (End(Verdict.FAILED, f"{place}: the file ends in the middle of a line"),)


def object_from_line(line: bytes) -> object:
    """The value of a line of JSON. Objects that repeat a key are ``RepeatedKeys``.

    Raises ``json.JSONDecodeError``, ``UnicodeDecodeError``, and ``MalformedRecordError`` for JSON that Python cannot
    represent.
    """
    try:
        value: object = orjson.loads(line)
    except orjson.JSONDecodeError:
        line.decode()
        raise
    # With as many colons as keys, no key is repeated, and no object is nested.
    if type(value) is dict and line.count(b":") == len(value):
        return value
    with suppress(TypeError):  # nested deeper than orjson writes
        if repeats_no_key(line, orjson.dumps(value)):
            return value
    try:
        return json.loads(line, object_pairs_hook=object_from_pairs)
    except RecursionError:
        raise MalformedRecordError("nested too deep") from None
    except ValueError as error:
        # Python does not convert numbers with thousands of digits.
        raise MalformedRecordError(f"cannot be used: {error}") from error


_DOCUMENT_READERS: Mapping[str, Callable[[IO[bytes], str], Reading]] = {
    ".json": partial(read_document, is_yaml=False),
    ".yaml": partial(read_document, is_yaml=True),
    ".yml": partial(read_document, is_yaml=True),
}

ENDINGS = (*JSON_LINES, *_DOCUMENT_READERS)
"""The endings of files that can be read. Each may be followed by ``.gz``."""
