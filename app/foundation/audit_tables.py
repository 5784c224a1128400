"""The table of the audit log. Times are epoch milliseconds, UTC."""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.foundation.store import StoreTable


class AuditRow(StoreTable, table=True):
    """One thing that somebody did, or was refused. Nothing updates a row; rows that are too old are deleted."""

    __tablename__ = "audit"
    __table_args__ = (
        Index(None, "actor", "audit_id"),
        Index(None, "action", "audit_id"),
        Index(None, "at"),
    )

    audit_id: int | None = Field(default=None, primary_key=True)
    at: int = Field(sa_type=BigInteger)
    actor: str
    """Their name, as far as it is known: that of a token, of an account, of the user of the command line."""
    role: str
    """viewer, approver or admin; empty where somebody was refused."""
    way: str
    """console, oidc, api or command."""
    address: str
    """Where they called from; empty: on the machine itself."""
    action: str
    subject: str
    """What it was done to: a run's id, a session's owner, …"""
    reason: str
    outcome: str
    """``done``, or why not; ``begun``: another row says what came of it."""
    request_id: str
