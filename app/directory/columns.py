"""Converts the columns of databases and CSV files to plain values, and the key of a row to its id.

| value of the driver | plain value |
|---|---|
| text, true and false, whole numbers of 63 bits, null | unchanged |
| larger numbers, NaN, infinity | text |
| decimals | a number if that is exact, else text |
| times | ISO 8601 in UTC. A time without a zone is in ``zone`` |
| dates, times of day | ISO 8601 |
| durations | seconds |
| UUIDs, network addresses, ranges and the like | text |
| bytes | text of hexadecimal digits |
| arrays and JSON | lists and objects, nested at most 32 deep |

Columns that are fields of a record are converted further: ids are text, for example.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from functools import partial
from hashlib import sha256

from app.access.kinds import KINDS
from app.access.records import FieldType
from app.directory.connector import UnreadableValueError
from app.directory.fields import MAX_INTEGER, MAX_NESTING, name_of_type
from app.foundation.text import quoted

Convert = Callable[[object], object]
"""Makes a plain value of a column's value. Raises ``UnreadableValueError``."""

MAX_ID_BYTES_IN_CLEAR = 255
"""Longer ids are replaced by a digest."""

_DIGEST = "sha256:"


def build_row_id(parts: Sequence[str]) -> str:
    """The id of a row, from the values of its key: ``acme/doc-1``."""
    text = "/".join(parts)
    if len(parts) > 1 and ("%" in text or text.count("/") != len(parts) - 1):
        text = "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)
    if len(text) * 4 > MAX_ID_BYTES_IN_CLEAR and len(text.encode(errors="replace")) > MAX_ID_BYTES_IN_CLEAR:
        return digest_id(text)
    return text


def digest_id(text: str) -> str:
    return _DIGEST + sha256(text.encode(errors="surrogatepass")).hexdigest()


def split_row_id(identifier: str, count: int) -> tuple[str, ...] | None:
    """The inverse of ``build_row_id``. None if the id is a digest, or does not have ``count`` parts."""
    if identifier.startswith(_DIGEST):
        return None
    if count == 1:
        return (identifier,)
    parts = tuple(part.replace("%2F", "/").replace("%25", "%") for part in identifier.split("/"))
    return parts if len(parts) == count else None


def quoted_names(names: Iterable[str]) -> str:
    """The names of columns, in quotes, for messages."""
    return ", ".join(map(quoted, names))


class UnreadableJson:
    """Replaces JSON that the driver could not convert: nested too deep, or with a number that is too long."""


def plain_value(value: object, zone: tzinfo, depth: int = MAX_NESTING) -> object:  # noqa: C901, PLR0911 - a table of types
    """The plain value. Raises ``UnreadableValueError``. Does not check the characters of text."""
    if value is None or type(value) in (str, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= MAX_INTEGER else str(int(value))
    if isinstance(value, float):
        return value if math.isfinite(value) and abs(value) <= MAX_INTEGER else repr(value)
    if isinstance(value, Decimal):
        return _plain_decimal(value)
    if isinstance(value, datetime):
        return _utc(value, zone)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        return int(seconds) if seconds.is_integer() else seconds
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, str):
        return str(value)
    if isinstance(value, UnreadableJson):
        raise UnreadableValueError("holds JSON that is nested too deep, or a number that is too long")
    if isinstance(value, Mapping | Sequence | AbstractSet) and not depth:
        raise UnreadableValueError(f"is nested more than {MAX_NESTING} deep")
    if isinstance(value, Mapping):
        return {_text_key(key): plain_value(inner, zone, depth - 1) for key, inner in value.items()}
    if isinstance(value, Sequence | AbstractSet):
        elements = sorted(value, key=repr) if isinstance(value, AbstractSet) else value
        return [plain_value(element, zone, depth - 1) for element in elements]
    return str(value)


def _text_key(key: object) -> str:
    if not isinstance(key, str):
        raise UnreadableValueError(f"holds a key that is {name_of_type(key)}")
    return key


def _plain_decimal(value: Decimal) -> object:
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value():
        return int(value) if abs(value) <= MAX_INTEGER else f"{value:f}"
    number = float(value)
    return number if Decimal(repr(number)) == value else str(value)


def _utc(value: datetime, zone: tzinfo) -> str:
    aware = value if value.tzinfo is not None else value.replace(tzinfo=zone)
    try:
        return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise UnreadableValueError(f"the time {value.isoformat()} is out of range") from None


def column_converters(kind: str | None, columns: Iterable[str], zone: tzinfo) -> Mapping[str, Convert]:
    """Column → its conversion. Those that are fields of the kind get values of the field's type, as far as possible."""
    fields = KINDS[kind].fields if kind is not None else ()
    by_name = {field.name: _BY_TYPE[field.type] for field in fields if field.type in _BY_TYPE}
    return {name: partial(by_name.get(name, plain_value), zone=zone) for name in columns}


def columns_of_parsed_text(kind: str | None) -> frozenset[str]:
    """The columns whose text is converted. All other text is plain as it is."""
    fields = KINDS[kind].fields if kind is not None else ()
    return frozenset(field.name for field in fields if field.type in {FieldType.TIME, FieldType.ALIASES})


def _text(value: object, zone: tzinfo) -> object:
    """Ids are numbers in most databases."""
    plain = plain_value(value, zone)
    return str(plain) if isinstance(plain, int | float) and not isinstance(plain, bool) else plain


def _boolean(value: object, zone: tzinfo) -> object:
    """Not every database has booleans."""
    plain = plain_value(value, zone)
    return _BOOLEANS.get(value, plain) if isinstance(value, int | Decimal | bytes) else plain


_BOOLEANS: Mapping[object, bool] = {0: False, 1: True, b"\0": False, b"\1": True}


def _time(value: object, zone: tzinfo) -> object:
    """Text without a zone gets ``zone``, like the values of time columns; ``infinity`` means no end."""
    plain = plain_value(value, zone)
    if plain == "infinity":
        return None
    if not isinstance(plain, str):
        return plain
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        return plain
    # A date without a time stays as it is, and is rejected: it is unclear whether the day is included.
    if moment.tzinfo is not None or len(plain) < len("2027-01-31T18:00"):
        return plain
    return _utc(moment, zone)


def _aliases(value: object, zone: tzinfo) -> object:
    """A list, its JSON text (for databases without arrays), or a single alias."""
    plain = plain_value(value, zone)
    if not isinstance(plain, str):
        return plain
    try:
        return json.loads(plain) if plain.startswith("[") else [plain]
    except (ValueError, RecursionError):
        return [plain]


_BY_TYPE: Mapping[FieldType, Callable[..., object]] = {
    FieldType.ID: _text,
    FieldType.TEXT: _text,
    FieldType.ALIAS: _text,
    FieldType.ALIASES: _aliases,
    FieldType.FLAG: _boolean,
    FieldType.TIME: _time,
}
