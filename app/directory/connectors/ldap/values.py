"""Entries and attribute values of LDAP, their conversion to plain values, and values in filters."""

import base64
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from app.directory.connector import UnreadableValueError


class LdapEntry(NamedTuple):
    """An entry, as the server returns it."""

    dn: str
    attributes: Mapping[str, Sequence[bytes]]

    def values(self, attribute: str) -> Sequence[bytes]:
        """The values of an attribute. Servers may return its name in another case."""
        name = attribute.lower()
        return next((values for found, values in self.attributes.items() if found.lower() == name), ())

    def first(self, attribute: str) -> bytes:
        """The first value of an attribute; empty if there is none."""
        return next(iter(self.values(attribute)), b"")

    def text(self, attribute: str) -> str:
        """The first value of an attribute as text; empty if there is none."""
        return self.first(attribute).decode(errors="replace")

    def number(self, attribute: str) -> int:
        """The first value of an attribute as a number; 0 if there is none."""
        first = self.first(attribute)
        return int(first) if first.isdigit() else 0

    @property
    def guid(self) -> str:
        """The objectGUID; empty if there is none."""
        guid = self.first("objectGUID")
        return as_guid(guid) if len(guid) == 16 else ""


Plain = str | int | bool | None
"""A plain value; None: the attribute has no value (a FILETIME that means never)."""


def as_text(value: bytes) -> str:
    """UTF-8 text. Raises ``UnreadableValueError``, like the other conversions."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UnreadableValueError("is not text; set its type with convert (guid, sid, base64, …)") from None


def as_text_or_base64(value: bytes) -> str:
    """UTF-8 text, or Base64 of other bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return as_base64(value)


def as_integer(value: bytes) -> int:
    """A whole number."""
    try:
        return int(value)
    except ValueError:
        raise UnreadableValueError("is not a whole number") from None


def as_boolean(value: bytes) -> bool:
    """``TRUE`` or ``FALSE``. The standard requires capitals, but not every server uses them."""
    match value.lower():
        case b"true":
            return True
        case b"false":
            return False
    raise UnreadableValueError("is neither TRUE nor FALSE")


def as_guid(value: bytes) -> str:
    """A GUID in Microsoft's byte order: the first three parts are little-endian."""
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
    """A FILETIME (units of 100 ns since 1601) as ISO 8601 in UTC. 0, the maximum and times out of range mean never."""
    number = as_integer(value)
    if number <= 0 or number >= _NEVER:
        return None
    try:
        moment = _FILETIME_ZERO + timedelta(microseconds=number // 10)
    except OverflowError:
        return None
    return _iso(moment)


def to_filetime(moment: datetime) -> int:
    """The inverse of ``as_filetime``."""
    return (moment - _FILETIME_ZERO) // timedelta(microseconds=1) * 10


_TIME = re.compile(rb"(\d{10})(\d{2})?(\d{2})?(?:[.,](\d+))?(Z|[+-]\d{2}(?:\d{2})?)")


def as_time(value: bytes) -> str:
    """A generalizedTime (``20270131180000Z``) as ISO 8601 in UTC."""
    found = _TIME.fullmatch(value)
    if found is None:
        raise UnreadableValueError("is not a time such as 20270131180000Z")
    hour, minute, second, fraction, zone = (part.decode() if part else "" for part in found.groups())
    try:
        moment = datetime.strptime(f"{hour}{minute or '00'}{second or '00'}+0000", "%Y%m%d%H%M%S%z")
        # The fraction is of the last unit that is present.
        unit = timedelta(seconds=1) if second else timedelta(minutes=1) if minute else timedelta(hours=1)
        moment += unit * float(f"0.{fraction or 0}")
        if zone != "Z":
            offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:] or 0))
            moment -= offset if zone[0] == "+" else -offset
    except (ValueError, OverflowError):
        raise UnreadableValueError("is not a time of the calendar") from None
    return _iso(moment)


def as_base64(value: bytes) -> str:
    """Bytes in Base64."""
    return base64.b64encode(value).decode()


def _iso(moment: datetime) -> str:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000).isoformat().replace("+00:00", "Z")


CONVERSIONS: Mapping[str, Callable[[bytes], Plain]] = {
    "text": as_text,
    "integer": as_integer,
    "boolean": as_boolean,
    "guid": as_guid,
    "sid": as_sid,
    "filetime": as_filetime,
    "time": as_time,
    "base64": as_base64,
}
"""The conversions of presets and of the setting ``convert``."""


# Filters.


def filter_bytes(value: bytes) -> str:
    """Bytes, escaped for a filter."""
    return "".join(f"\\{byte:02x}" for byte in value)


def filter_text(text: str) -> str:
    """Text, escaped for a filter."""
    return "".join(
        letter
        if letter.isascii() and (letter.isalnum() or letter in "-_.@ ")
        else filter_bytes(letter.encode(errors="replace"))
        for letter in text
    )
