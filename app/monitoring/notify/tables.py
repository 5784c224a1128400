"""The tables of notifications: open concerns, and the messages about them."""

from sqlalchemy import BigInteger, Index, text
from sqlmodel import Field

from app.foundation.database.tables import StoreTable


class ConcernRow(StoreTable, table=True):
    """A matter that needs attention and that people were told of; it goes when the matter is over."""

    __tablename__ = "concern"

    concern_key: str = Field(primary_key=True)
    cause: str
    about: str = ""
    fingerprint: str
    size: int = Field(default=0, sa_type=BigInteger)
    """Fingerprint and size as they were last told: what differs too much from them is told again."""
    says: str
    run_id: str | None = None
    since_at: int = Field(sa_type=BigInteger)
    told_at: int = Field(sa_type=BigInteger)


class ChannelMessageRow(StoreTable, table=True):
    """A message on its way along one channel. Times are epoch milliseconds."""

    __tablename__ = "notification"
    __table_args__ = (
        Index(
            "ix_notification_waiting",
            "next_try_at",
            sqlite_where=text("next_try_at IS NOT NULL"),
            postgresql_where=text("next_try_at IS NOT NULL"),
        ),
    )

    message_id: str = Field(primary_key=True)
    channel: str = Field(primary_key=True)
    body: str
    created_at: int = Field(sa_type=BigInteger)
    tries: int = 0
    next_try_at: int | None = Field(default=None, sa_type=BigInteger)
    """When it is tried next; None: it was delivered, or given up."""
    delivered_at: int | None = Field(default=None, sa_type=BigInteger)
    problem: str = ""
    """Why the last try failed."""
