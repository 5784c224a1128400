"""The table of console sessions. Times are epoch milliseconds, UTC."""

from sqlalchemy import BigInteger
from sqlmodel import Field

from app.foundation.database.tables import StoreTable


class ConsoleSessionRow(StoreTable, table=True):
    """A session, or a link that opens one."""

    session_digest: str = Field(primary_key=True)
    """SHA-256 of the session id, so that readers of this table cannot use a session."""
    name: str
    role: str
    """viewer, approver or admin at sign-in. A session by token has the current role of its token instead."""
    credential: str
    """SHA-256 of the token that opened the session. For a sign-in through the issuer: ``oidc:``, a digest of the
    settings, and a digest of the subject. For a sign-in link: ``link:``, and the credential that it signs in with."""
    address: str
    browser: str
    """The header User-Agent."""
    created_at: int = Field(sa_type=BigInteger)
    seen_at: int = Field(sa_type=BigInteger)
    """The last request, to within a minute."""
