"""The reader of JSON Lines, whatever the length of the file or of one line.

A line that cannot be understood is a malformed record, and reading goes on. Two things end it as failed: bytes that are
not UTF-8, and a last line that is no JSON and has no line end, because a file that was cut off looks just so.
"""

import json
from typing import IO

import orjson

from app.directory.casting import record_from_object
from app.directory.fields import MalformedRecordError, object_from_pairs
from app.directory.source import End, Found, Malformed, Reading, Remark, Verdict
from app.text import counted

MAX_LINE_BYTES = 1024 * 1024
"""A longer line is a malformed record; it is skipped without being kept in memory."""

_CHUNK_BYTES = 64 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(stream: IO[bytes], file_name: str) -> Reading:
    """The records of a JSON Lines stream; empty lines are skipped. Errors of the stream are the caller's to catch."""
    malformed = 0
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        place = f"{file_name}:{number}"
        whole = line.endswith(b"\n")
        steps: tuple[Found | Malformed | Remark | End, ...]
        if len(line) > MAX_LINE_BYTES and not whole:
            steps = _steps_of_long_line(stream, place)
        else:
            steps = _steps_of_line(line if number > 1 else line.removeprefix(_BYTE_ORDER_MARK), place, whole=whole)
        for step in steps:
            yield step
            if type(step) is Malformed:
                malformed += 1
            elif type(step) is End:
                return
    if malformed:
        yield End(Verdict.PARTIAL, counted(malformed, "malformed record"))
    else:
        yield End(Verdict.COMPLETE)


def _steps_of_line(line: bytes, place: str, *, whole: bool) -> tuple[Found | Malformed | Remark | End, ...]:
    if not line.strip():
        return ()
    try:
        record, remarks = record_from_object(object_from_line(line))
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
