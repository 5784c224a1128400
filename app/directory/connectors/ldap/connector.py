"""The connector for LDAP: what it is asked for, and what it ends with.

The library is loaded only when something is read: who has no directory in LDAP needs none.
"""

from typing import TYPE_CHECKING

from app.directory.connector import Objects, ObjectsEnd, Wanted
from app.directory.connectors.ldap.settings import LdapConnectionSettings
from app.directory.source import EVERYTHING, ReadRequest, Verdict
from app.foundation.clock import Clock, utc_now

if TYPE_CHECKING:
    from app.directory.connectors.ldap.conversation import Conversations

MISSING = (
    "the library for LDAP is not installed: make ldap, or pip install 'usher[ldap]', adds it (it is compiled; Debian:"
    " gcc libldap2-dev libsasl2-dev python3-dev)"
)


class LdapConnector:
    """A directory in LDAP; rules of ``app.directory.connector``."""

    def __init__(self, settings: LdapConnectionSettings, clock: Clock = utc_now) -> None:
        self._settings = settings
        self._clock = clock
        self._conversations: Conversations | None = None

    def read(self, wanted: Wanted, request: ReadRequest = EVERYTHING) -> Objects:
        try:
            from app.directory.connectors.ldap.conversation import Conversations  # noqa: PLC0415 - see above
        except ImportError as error:
            if (error.name or "").split(".")[0] not in ("ldap", "_ldap", "pyasn1", "pyasn1_modules"):
                raise
            yield ObjectsEnd(Verdict.FAILED, MISSING)
            return
        if self._conversations is None:
            self._conversations = Conversations(self._settings, self._clock)
        yield from self._conversations.read(wanted, request)
