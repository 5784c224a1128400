"""Converts attribute values, DNs and names of members from LDAP servers to plain values, and texts to filters.

An extended DN of Active Directory has the form ``<GUID=…>;<SID=…>;CN=…``.
"""

import base64
import re
import unicodedata
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import ldap
import ldap.dn

from app.directory.connector import UnreadableValueError
from app.directory.connectors.ldap.settings import Conversion


class LdapEntry(NamedTuple):
    """An entry, as the server returns it."""

    dn: str
    attributes: Mapping[str, Sequence[bytes]]

    def values(self, attribute: str) -> Sequence[bytes]:
        """The values of an attribute. Servers may return its name in another case."""
        name = attribute.lower()
        return next((values for found, values in self.attributes.items() if found.lower() == name), ())

    def first(self, attribute: str) -> bytes:
        """The first value of an attribute. Empty if there is none."""
        return next(iter(self.values(attribute)), b"")

    def text(self, attribute: str) -> str:
        """The first value of an attribute as text. Empty if there is none."""
        return self.first(attribute).decode(errors="replace")

    def number(self, attribute: str) -> int:
        """The first value of an attribute as a number. 0 if there is none."""
        first = self.first(attribute)
        return int(first) if first.isdigit() else 0

    @property
    def guid(self) -> str:
        """The objectGUID. Empty if there is none."""
        guid = self.first("objectGUID")
        return as_guid(guid) if len(guid) == 16 else ""


Plain = str | int | bool | None
"""A plain value. None: the attribute has no value (a FILETIME that means never)."""


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
    return base64.b64encode(value).decode()


def _iso(moment: datetime) -> str:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000).isoformat().replace("+00:00", "Z")


CONVERSIONS: Mapping[Conversion, Callable[[bytes], Plain]] = {
    "text": as_text,
    "integer": as_integer,
    "boolean": as_boolean,
    "guid": as_guid,
    "sid": as_sid,
    "filetime": as_filetime,
    "time": as_time,
    "base64": as_base64,
}


# DNs, and names of members.

_TYPES = {
    "2.5.4.3": "cn", "commonname": "cn",
    "2.5.4.4": "sn", "surname": "sn",
    "2.5.4.6": "c", "countryname": "c",
    "2.5.4.7": "l", "localityname": "l",
    "2.5.4.8": "st", "stateorprovincename": "st",
    "2.5.4.9": "street", "streetaddress": "street",
    "2.5.4.10": "o", "organizationname": "o",
    "2.5.4.11": "ou", "organizationalunitname": "ou",
    "0.9.2342.19200300.100.1.1": "uid", "userid": "uid",
    "0.9.2342.19200300.100.1.3": "mail", "rfc822mailbox": "mail",
    "0.9.2342.19200300.100.1.25": "dc", "domaincomponent": "dc",
}  # fmt: skip
"""Aliases of attribute types → their usual names (RFC 4519, 4524)."""

_NORMAL_RDN = re.compile(r"(?:cn|ou|dc|uid|o|c|l|st|sn|mail)=[!$-*\--:?-\[\]-~]+(?: [!$-*\--:?-\[\]-~]+)*")
"""An RDN in lower case that is normalized already, as most are: printable ASCII without characters to escape, and
single blanks."""


def normalized(dn: str) -> str:
    """The DN in normal form, in which DNs of one entry are equal. Text that is no DN stays as it is.

    Spellings differ in case, blanks, escapes, aliases of attribute types, and the order within an RDN. Case is folded
    for all naming attributes, because almost all ignore it.
    """
    rdn, comma, parent = dn.lower().partition(",")
    # Thousands of entries have the same parent.
    if comma and _NORMAL_RDN.fullmatch(rdn) and (normal_parent := _normalized_parent(parent)):
        return f"{rdn},{normal_parent}"
    return _parsed(dn) or dn


def _parsed(dn: str) -> str:
    """The DN in normal form. Empty if it is no DN."""
    try:
        rdns = ldap.dn.str2dn(dn)
    except (ldap.LDAPError, UnicodeError):
        return ""
    return ",".join("+".join(sorted(f"{_type(kind)}={_value(value)}" for kind, value, _ in rdn)) for rdn in rdns)


_normalized_parent = lru_cache(10_000)(_parsed)


def _type(name: str) -> str:
    lower = name.lower().removeprefix("oid.")
    return _TYPES.get(lower, lower)


def _value(value: str) -> str:
    # Case folding may undo the normal form, so the text is normalized again.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", value).casefold())
    escaped: str = ldap.dn.escape_dn_chars(re.sub(r"\s+", " ", folded).strip())
    return escaped


def is_below(dn: str, base: str) -> bool:
    """Whether a normalized DN is the normalized ``base``, or below it."""
    return not base or dn == base or dn.endswith("," + base)


_EXTENSION = re.compile(r"(?:<[A-Za-z]+=[^>]*>;)+")
_GUID = re.compile(rb"<GUID=([0-9A-Fa-f-]{32,36})>")
_OPTIONAL_UID = re.compile(r"#'[01]*'B$")
"""The optional part of a uniqueMember after its DN."""


def plain_dn(dn: str) -> str:
    """The DN of an extended DN."""
    return _EXTENSION.sub("", dn)


def search_base(dn: str) -> str:
    """The base of a search for an entry: of an extended DN only the GUID, which no rename changes."""
    found = re.match(r"<GUID=[^>]*>", dn)
    return found[0] if found else dn


def as_text_or_plain_dn(value: bytes) -> str:
    """The text of a value, or the DN of an extended DN."""
    text = as_text(value)
    return plain_dn(text) if text.startswith("<GUID=") else text


def guid_or_name(value: bytes) -> str:
    """The GUID of an extended DN, or otherwise the normalized name of a member."""
    found = _GUID.match(value)
    return str(uuid.UUID(found[1].decode())) if found else member_name(value)


def member_name(value: bytes) -> str:
    """The normalized name of a member: a DN, or text such as a ``memberUid``."""
    text = as_text(value)
    return normalized(_OPTIONAL_UID.sub("", text)) if "=" in text else text


# Filters.


def filter_bytes(value: bytes) -> str:
    return "".join(f"\\{byte:02x}" for byte in value)


def filter_text(text: str) -> str:
    return "".join(
        letter
        if letter.isascii() and (letter.isalnum() or letter in "-_.@ ")
        else filter_bytes(letter.encode(errors="replace"))
        for letter in text
    )
