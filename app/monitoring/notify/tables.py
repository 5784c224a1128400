"""The tables of notifications: open concerns, and the messages about them."""

from sqlalchemy import BigInteger
from sqlmodel import Field

from app.foundation.database.tables import StoreTable, index_of_rows


class ConcernRow(StoreTable, table=True):
    """A concern that was reported. The row is deleted when the concern is over. Times are epoch milliseconds."""

    concern_key: str = Field(primary_key=True)
    cause: str
    about: str = ""
    fingerprint: str
    size: int = Field(default=0, sa_type=BigInteger)
    """Fingerprint and size as last reported. The concern is reported again if they differ too much."""
    says: str
    run_id: str | None = None
    since_at: int = Field(sa_type=BigInteger)
    told_at: int = Field(sa_type=BigInteger)
    """When it was last reported."""


class ChannelMessageRow(StoreTable, table=True):
    """A message for one channel. Times are epoch milliseconds."""

    __tablename__ = "notification"
    __table_args__ = (index_of_rows("ix_notification_waiting", "next_try_at", where="next_try_at IS NOT NULL"),)

    message_id: str = Field(primary_key=True)
    channel: str = Field(primary_key=True)
    body: str
    created_at: int = Field(sa_type=BigInteger)
    tries: int = 0
    next_try_at: int | None = Field(default=None, sa_type=BigInteger)
    """None: it was delivered, or given up."""
    delivered_at: int | None = Field(default=None, sa_type=BigInteger)
    problem: str = ""
    """The reason for which the last try failed."""
