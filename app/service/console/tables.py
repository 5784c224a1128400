"""The table of console sessions. Times are epoch milliseconds, UTC."""

from sqlalchemy import BigInteger
from sqlmodel import Field

from app.foundation.database.tables import StoreTable


class ConsoleSessionRow(StoreTable, table=True):
    """Somebody who is signed in at the console."""

    __tablename__ = "console_session"

    session_digest: str = Field(primary_key=True)
    """SHA-256 of the id that the browser shows: whoever reads this table cannot show it."""
    name: str
    role: str
    """viewer, approver or admin; that of the credential now is what counts."""
    credential: str
    """SHA-256 of the token that was shown: a session ends with it. Of whoever came through the issuer,
    ``oidc:``, a digest of its settings, and one of the person."""
    address: str
    browser: str
    """What it calls itself."""
    created_at: int = Field(sa_type=BigInteger)
    seen_at: int = Field(sa_type=BigInteger)
    """Its last request, to within a minute."""
