"""Cursors of incremental reads of LDAP: their common constant and messages.

A cursor also contains the objects that changed last. If one of them is missing or older, the server was restored, and
the cursor is refused.
"""

from app.directory.connectors.ldap.values import LdapEntry
from app.foundation.text import printable

REMEMBERED = 16
"""Objects that changed last, in a cursor."""

CURSOR_IS_FOREIGN = "the cursor is not one of this source's"


def container_changed(entry: LdapEntry) -> str:
    """The reason to refuse a cursor because a container was changed."""
    return f"{printable(entry.dn, limit=100)} was changed, and objects in it may have been moved with it"
