"""Plain values of what database drivers give.

| of the driver | plain |
|---|---|
| text, true and false, whole numbers of 63 bits, null | as they are |
| larger numbers; numbers that are none (NaN, infinity) | text |
| decimals | a number where that is exact, else text |
| times | ISO 8601 in UTC; those without a zone are taken for ``zone`` |
| dates, times of day | ISO 8601 |
| lengths of time | seconds |
| UUIDs, network addresses, ranges and the like | text |
| bytes | text of hexadecimal digits |
| arrays and JSON | lists and objects, at most 32 deep |
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal

from app.directory.fields import MAX_INTEGER, MAX_NESTING, name_of_type

AS_THEY_ARE = frozenset({str, bool, type(None)})
"""Types of which every value is plain."""


class NotPlainError(ValueError):
    """A value that cannot be made plain; the text says what is wrong with it, for after a column's name."""


def plain(value: object, zone: tzinfo, depth: int = MAX_NESTING) -> object:  # noqa: C901, PLR0911 - a table of types
    """The plain value. Raises ``NotPlainError``; texts are not looked into (``check_texts`` does that)."""
    if type(value) in AS_THEY_ARE:
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= MAX_INTEGER else str(int(value))
    if isinstance(value, float):
        return value if math.isfinite(value) and abs(value) <= MAX_INTEGER else repr(value)
    if isinstance(value, Decimal):
        return _plain_decimal(value)
    if isinstance(value, datetime):
        return time_text(value, zone)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        return int(seconds) if seconds.is_integer() else seconds
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        if not depth:
            raise NotPlainError(f"is nested more than {MAX_NESTING} deep")
        return {_name(key): plain(inner, zone, depth - 1) for key, inner in value.items()}
    if isinstance(value, Sequence | AbstractSet):
        if not depth:
            raise NotPlainError(f"is nested more than {MAX_NESTING} deep")
        inner_values = sorted(value, key=repr) if isinstance(value, AbstractSet) else value
        return [plain(inner, zone, depth - 1) for inner in inner_values]
    return str(value)


def _name(key: object) -> str:
    if not isinstance(key, str):
        raise NotPlainError(f"holds a key that is {name_of_type(key)}")
    return key


def _plain_decimal(value: Decimal) -> object:
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value():
        return int(value) if abs(value) <= MAX_INTEGER else f"{value:f}"
    number = float(value)
    return number if Decimal(repr(number)) == value else str(value)


def time_text(value: datetime, zone: tzinfo) -> str:
    """A time as ISO 8601 in UTC. Raises ``NotPlainError`` for one that lies at the edge of what can be counted."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=zone)
    try:
        return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise NotPlainError(f"the time {value.isoformat()} is out of range") from None


def check_texts(value: object) -> None:
    """Raises ``NotPlainError`` where a text in a plain value is none that can be kept or sent."""
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, list):
        for inner in value:
            check_texts(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_text(key)
            check_texts(inner)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise NotPlainError("contains a NUL character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotPlainError("contains half of a surrogate pair, or bytes that are not UTF-8") from None
