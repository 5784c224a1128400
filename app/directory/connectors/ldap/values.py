"""Values of attributes, as plain ones: texts, numbers, truth values, and lists of them."""

import base64
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

Converted = str | int | bool | None
"""None: the attribute has no value (a FILETIME that means never)."""


class UnreadableValueError(ValueError):
    """A value is not what its attribute should hold; the text says what it should be."""


def as_text(value: bytes) -> str:
    """UTF-8, as LDAP has texts."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UnreadableValueError("is not text; say what it is with convert (guid, sid, base64, …)") from None


def as_texts(values: Sequence[bytes]) -> Sequence[str]:
    """The same of many."""
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError:
        return [as_text(value) for value in values]


def as_integer(value: bytes) -> int:
    try:
        return int(value)
    except ValueError:
        raise UnreadableValueError("is not a whole number") from None


def as_boolean(value: bytes) -> bool:
    """``TRUE`` and ``FALSE``, in any case: not every server keeps to the capitals of the standard."""
    match value.lower():
        case b"true":
            return True
        case b"false":
            return False
    raise UnreadableValueError("is neither TRUE nor FALSE")


def as_guid(value: bytes) -> str:
    """Microsoft's order of bytes: the first three parts are little-endian."""
    if len(value) != 16:
        raise UnreadableValueError("is not a GUID of 16 bytes")
    return str(uuid.UUID(bytes_le=value))


def as_sid(value: bytes) -> str:
    """A security identifier, such as ``S-1-5-21-1-2-3-513``."""
    if len(value) < 8 or len(value) != 8 + 4 * value[1]:
        raise UnreadableValueError("is not a security identifier")
    parts = (str(int.from_bytes(value[at : at + 4], "little")) for at in range(8, len(value), 4))
    return "-".join(["S", str(value[0]), str(int.from_bytes(value[2:8], "big")), *parts])


_NEVER = 0x7FFF_FFFF_FFFF_FFFF
_FILETIME_ZERO = datetime(1601, 1, 1, tzinfo=UTC)


def as_filetime(value: bytes) -> str | None:
    """Tenths of microseconds since 1601, as ISO 8601 in UTC; 0, the largest and those past all calendars mean never."""
    number = as_integer(value)
    if number <= 0 or number >= _NEVER:
        return None
    try:
        moment = _FILETIME_ZERO + timedelta(microseconds=number // 10)
    except OverflowError:
        return None
    return _iso(moment)


def to_filetime(moment: datetime) -> int:
    """The moment as a FILETIME."""
    return (moment - _FILETIME_ZERO) // timedelta(microseconds=1) * 10


_TIME = re.compile(rb"(\d{10})(\d{2})?(\d{2})?(?:[.,](\d+))?(Z|[+-]\d{2}(?:\d{2})?)")


def as_time(value: bytes) -> str:
    """A generalizedTime (``20270131180000Z``), as ISO 8601 in UTC."""
    found = _TIME.fullmatch(value)
    if found is None:
        raise UnreadableValueError("is not a time such as 20270131180000Z")
    hour, minute, second, fraction, zone = (part.decode() if part else "" for part in found.groups())
    try:
        moment = datetime.strptime(f"{hour}{minute or '00'}{second or '00'}+0000", "%Y%m%d%H%M%S%z")
        # A fraction is one of the smallest unit that is given.
        unit = timedelta(seconds=1) if second else timedelta(minutes=1) if minute else timedelta(hours=1)
        moment += unit * float(f"0.{fraction or 0}")
        if zone != "Z":
            away = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:] or 0))
            moment -= away if zone[0] == "+" else -away
    except (ValueError, OverflowError):
        raise UnreadableValueError("is not a time of the calendar") from None
    return _iso(moment)


def as_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _iso(moment: datetime) -> str:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000).isoformat().replace("+00:00", "Z")


CONVERSIONS: Mapping[str, Callable[[bytes], Converted]] = {
    "text": as_text,
    "integer": as_integer,
    "boolean": as_boolean,
    "guid": as_guid,
    "sid": as_sid,
    "filetime": as_filetime,
    "time": as_time,
    "base64": as_base64,
}
"""What a preset, and ``convert`` in the settings, can say of an attribute."""
