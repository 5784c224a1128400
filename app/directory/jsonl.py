"""The reader of JSON Lines, whatever the length of the file or of one line.

A line that cannot be understood is a malformed record, and reading goes on. Two things end it as failed: bytes that are
not UTF-8, and a last line that is no JSON and has no line end, because a file that was cut off looks just so. A file
that was cut off between two lines is noticed by its end record, the number of records in the last line.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

import orjson

from app.directory.casting import record_from_object
from app.directory.fields import MalformedRecordError, object_from_pairs
from app.directory.source import End, Found, Malformed, Reading, Remark, Verdict
from app.foundation.text import counted, quoted

MAX_LINE_BYTES = 1024 * 1024
"""A longer line is a malformed record; it is skipped without being kept in memory."""

_CHUNK_BYTES = 64 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass
class _LinesRead:
    """What is known of a stream so far."""

    records: int = 0
    """Lines that are records, or should be."""
    malformed: int = 0
    wrong_end: str = ""
    """Why the stream may not be whole; empty: nothing is against it."""
    ended: bool = False
    """Whether the end record was there."""

    def take_end(self, fields: Mapping[str, object], place: str) -> None:
        """Compares the end record, ``{"end": true, "records": 1234}``, with what came before it."""
        unknown = [name for name in fields if name not in END_FIELDS]
        if self.ended:
            self.wrong_end = self.wrong_end or f"{place}: the end record is there a second time"
        elif unknown:
            self.wrong_end = f"{place}: {quoted(unknown[0])} is not a field of the end record"
        elif fields["end"] is not True or type(fields.get("records")) is not int:
            self.wrong_end = f'{place}: not an end record, which is {{"end": true, "records": {self.records}}}'
        elif fields["records"] != self.records:
            self.wrong_end = f"{place}: should have {fields['records']:,} records before it, but has {self.records:,}"
        self.ended = True

    def end(self, file_name: str, *, require_end: bool) -> End:
        """The verdict on a stream that was read to its end."""
        why = [counted(self.malformed, "malformed record")] if self.malformed else []
        if self.wrong_end:
            why.append(self.wrong_end)
        elif require_end and not self.ended:
            why.append(f'{file_name}: has no end record, {{"end": true, "records": N}}: it may have been cut off')
        return End(Verdict.PARTIAL, "; ".join(why)) if why else End(Verdict.COMPLETE)


END_FIELDS = frozenset({"end", "records", "sequence"})
"""The fields of an end record; ``sequence`` is of everything that is pushed."""


def read_lines(stream: IO[bytes], file_name: str, *, require_end: bool = False) -> Reading:
    """The records of a JSON Lines stream; empty lines are skipped. Errors of the stream are the caller's to catch.

    ``require_end``: without an end record the read is partial.
    """
    read = _LinesRead()
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        place = f"{file_name}:{number}"
        whole = line.endswith(b"\n")
        steps: tuple[Found | Malformed | Remark | End, ...]
        if len(line) > MAX_LINE_BYTES and not whole:
            steps = _steps_of_long_line(stream, place)
        else:
            steps = _steps_of_line(
                line if number > 1 else line.removeprefix(_BYTE_ORDER_MARK), place, read, whole=whole
            )
        for step in steps:
            yield step
            if type(step) is Malformed:
                read.malformed += 1
            elif type(step) is End:
                return
        if steps:
            read.records += 1
            if read.ended and not read.wrong_end:
                read.wrong_end = f"{place}: comes after the end record"
    yield read.end(file_name, require_end=require_end)


def _steps_of_line(
    line: bytes, place: str, read: _LinesRead, *, whole: bool
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
        if not whole:
            return (End(Verdict.FAILED, f"{place}: the file ends in the middle of a line"),)
        return (Malformed(place, f"not JSON: {error.msg} (column {error.colno})"),)
    except MalformedRecordError as error:
        return (Malformed(place, str(error)),)
    return (Found(record, place), *(Remark(place, remark) for remark in remarks))


def _steps_of_long_line(stream: IO[bytes], place: str) -> tuple[Malformed | End]:
    """Reads on to the end of a line that is too long."""
    if any(chunk.endswith(b"\n") for chunk in iter(lambda: stream.readline(_CHUNK_BYTES), b"")):
        return (Malformed(place, f"the line is longer than {MAX_LINE_BYTES:,} bytes"),)
    return (End(Verdict.FAILED, f"{place}: the file ends in the middle of a line"),)


def object_from_line(line: bytes) -> object:
    """The value of a line of JSON, with objects that repeat a key marked as such.

    Raises ``json.JSONDecodeError`` for what is not JSON, ``UnicodeDecodeError`` for what is not UTF-8, and
    ``MalformedRecordError`` for JSON that cannot be held.
    """
    try:
        value: object = orjson.loads(line)
    except orjson.JSONDecodeError:
        line.decode()
        raise
    if type(value) is dict and line.count(b":") == len(value):
        return value
    if b"\\u" not in line and line.count(b":") == _colons(value):
        return value
    try:
        return json.loads(line, object_pairs_hook=object_from_pairs)
    except RecursionError:
        raise MalformedRecordError("nested too deep") from None
    except ValueError as error:
        # A number with thousands of digits is JSON, but not one that Python converts.
        raise MalformedRecordError(f"cannot be used: {error}") from error


def _colons(value: object) -> int:
    """How many colons the text of a value has when no key stands twice: one per key, and those inside its strings.

    The fast reader keeps only the last of equal keys. A repeated key leaves one colon more in the text than in the
    value; without ``\\u`` escapes nothing can make up for it.
    """
    if isinstance(value, str):
        return value.count(":")
    if isinstance(value, dict):
        return sum(1 + key.count(":") + _colons(inner) for key, inner in value.items())
    if isinstance(value, list):
        return sum(map(_colons, value))
    return 0
