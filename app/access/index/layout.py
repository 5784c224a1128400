"""The entries of the index: their keys and values.

A key is the letter of the entry's kind and its ids. A value is a list of texts. Ids and texts are
separated by U+0001:

====  ======================  =======================================================================
kind  ids                     value
====  ======================  =======================================================================
o     organization, none      access type, then ``1`` if it is disabled
u     none, user              ``1`` if the user is disabled
m     organization, user      the membership: role and end
e     organization, user      the groups of which the user is a direct member
g     organization, group     the groups of which this group is a direct member
f     organization, folder    access type, the folder above, grants of groups: group, role and end of each
d     organization, document  access type, the folder, grants of groups: group, role and end of each
x     organization, user      the user's own grants: level and id of the resource, role and end of each
c     see below               a context grant: its end
====  ======================  =======================================================================

The ids of a context grant are organization, user, group, field, value and document; absent ones are empty.
Access types, roles and levels are their first letter. An end is in epoch milliseconds, and empty if there is none.

An entry lists at most ``MAX_LISTED`` grants. If there are more, the list is one empty text, and each grant also has an
entry of its own: ``X`` (organization, user, level and id) for a user's own, ``F`` and ``D`` (organization, folder or
document, group) for those of groups. So a change never rewrites a large entry, and a decision never reads one.
"""

from collections.abc import Mapping
from hashlib import blake2b

from app.access.records import AccessType

LAYOUT = 1
"""The version of this layout. An index of another version is built again."""

ORGANIZATION, USER, MEMBERSHIP, FOLDER, DOCUMENT = "o", "u", "m", "f", "d"
GROUPS_OF_USER, GROUPS_OF_GROUP, OWN_GRANTS, CONTEXT_GRANT = "e", "g", "x", "c"

SEPARATOR = "\x01"
MAX_LISTED = 32
"""The maximum number of grants that one entry lists."""
MAX_ID_BYTES = 72
"""Longer ids are replaced by a digest in keys, because LMDB's keys have at most 511 bytes."""

SINGLE_KIND = {OWN_GRANTS: "X", FOLDER: "F", DOCUMENT: "D"}
"""Kind of an entry that lists grants → kind of the entries of single grants."""


ACCESS_TYPES: Mapping[str, AccessType | None] = {
    "": None,
    "p": AccessType.PUBLIC,
    "o": AccessType.ORGANIZATION_PRIVATE,
    "r": AccessType.RESTRICTED,
}

Grants = dict[str, str]
"""Role and end, by group, or by the level and id of a resource."""

CROWDED: Grants = {"": ""}
"""Grants that are too many to be listed."""


def listed_grants(parts: list[str]) -> Grants:
    """The grants of an entry, from its list."""
    return dict(zip(parts[::2], parts[1::2], strict=True)) if len(parts) > 1 else CROWDED


def escaped(text: str) -> str:
    """The id without separators. The SQL marker ``@escaped`` does the same."""
    if text.isprintable():
        return text
    return text.replace("\x02", "\x02\x02").replace("\x01", "\x02\x03")


def unescaped(text: str) -> str:
    """The inverse of ``escaped``."""
    if "\x02" in text:
        return "\x02".join(part.replace("\x02\x03", "\x01") for part in text.split("\x02\x02"))
    return text


def entry_key(kind: str, first: str, second: str, *others: str) -> bytes:
    """The key of an entry.

    Raises ``UnicodeEncodeError`` for half a surrogate pair, which no stored id contains.
    """
    return (kind + SEPARATOR.join(map(_short, (first, second, *others)))).encode()


def key_part(*ids: str) -> bytes:
    """The end of a key: the ids that follow those of a shorter key. Raises as ``entry_key``."""
    return (SEPARATOR + SEPARATOR.join(map(_short, ids))).encode()


def pair_key(kind: str, first: str, second: str) -> bytes:
    """``entry_key`` for two ids, in a sixth of the time."""
    # Most ids are short, and have nothing to replace.
    if first.isprintable() and second.isprintable():
        key = f"{kind}{first}{SEPARATOR}{second}".encode()
        if len(key) <= MAX_ID_BYTES:
            return key
    return entry_key(kind, first, second)


def _short(text: str) -> str:
    encoded = escaped(text).encode()
    if len(encoded) <= MAX_ID_BYTES:
        return encoded.decode()
    return f"\x02\x04{blake2b(encoded, digest_size=24).hexdigest()}"
