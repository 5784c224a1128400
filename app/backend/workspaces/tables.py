"""Tables of workspace owners, email configurations, and attempts to create workspaces.

Times are epoch milliseconds.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.backend.storage.base import BackendTable, KeyTable


class OwnerRow(BackendTable, table=True):
    """An owner of workspaces, one row per email address."""

    email_key: str = Field(primary_key=True)
    """The address in lower case."""
    owner_id: str
    root_workspace_id: str
    """The first workspace. Its API keys decide whether the owner may create others."""
    created_at: int = Field(sa_type=BigInteger)


class EmailConfigRow(KeyTable, table=True):
    """The settings of an API key's notification emails."""

    in_use: bool
    payload: str
    """The configuration as a JSON object, without the email service's key."""
    key_sealed: str
    """The email service's key, encrypted. Empty for none."""
    updated_at: int = Field(sa_type=BigInteger)


class WorkspaceAttemptRow(BackendTable, table=True):
    """An attempt to create a workspace, for the rate limiter."""

    __table_args__ = (Index(None, "attempted_at"),)

    address: str = Field(primary_key=True)
    attempt_id: str = Field(primary_key=True)
    attempted_at: int = Field(sa_type=BigInteger)


OWNER = OwnerRow.__table__
EMAIL_CONFIG = EmailConfigRow.__table__
WORKSPACE_ATTEMPT = WorkspaceAttemptRow.__table__
