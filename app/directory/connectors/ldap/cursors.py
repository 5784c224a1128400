"""The errors of cursors in LDAP, and the objects that changed last, which each cursor contains.

If one of these objects is missing or older than in the cursor, the server was restored, and the cursor is refused.
"""

from collections.abc import Iterable
from operator import itemgetter
from typing import TypeVar

from app.directory.connector import CursorRefusedError
from app.directory.connectors.ldap.values import LdapEntry
from app.foundation.text import printable

_REMEMBERED = 16
"""Objects that changed last, in a cursor."""

_Position = TypeVar("_Position", int, str)

FOREIGN_CURSOR = "the cursor is not one of this source's"


class NoCursorError(Exception):
    """Incremental reads are not possible, for the reason in the message."""


def container_changed(entry: LdapEntry) -> CursorRefusedError:
    dn = printable(entry.dn, limit=100)
    return CursorRefusedError(f"{dn} was changed, and objects in it may have been moved with it")


def newest(found: Iterable[tuple[str, _Position]]) -> dict[str, _Position]:
    """The objects that changed last, of pairs of an id and its position."""
    return dict(sorted(found, key=itemgetter(1), reverse=True)[:_REMEMBERED])
