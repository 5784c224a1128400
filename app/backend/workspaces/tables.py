"""Tables of workspace owners, email configurations, and attempts to create workspaces.

Times are epoch milliseconds.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.backend.storage.base import METADATA, BackendTable


class OwnerRow(BackendTable, table=True):
    """An owner of workspaces, one row per email address."""

    __tablename__ = "owner"

    email_key: str = Field(primary_key=True)
    """The address in lower case."""
    owner_id: str
    root_workspace_id: str
    """The first workspace. Its API keys decide whether the owner may create others."""
    created_at: int = Field(sa_type=BigInteger)


class EmailConfigRow(BackendTable, table=True):
    """The settings of an API key's notification emails."""

    __tablename__ = "email_config"

    api_key_id: str = Field(primary_key=True)
    in_use: bool
    payload: str
    """The configuration as a JSON object, without the email service's key."""
    key_sealed: str
    """The email service's key, encrypted. Empty for none."""
    updated_at: int = Field(sa_type=BigInteger)


class WorkspaceAttemptRow(BackendTable, table=True):
    """An attempt to create a workspace, for the rate limiter."""

    __tablename__ = "workspace_attempt"
    __table_args__ = (Index(None, "attempted_at"),)

    address: str = Field(primary_key=True)
    attempt_id: str = Field(primary_key=True)
    attempted_at: int = Field(sa_type=BigInteger)


OWNER = METADATA.tables[OwnerRow.__tablename__]
EMAIL_CONFIG = METADATA.tables[EmailConfigRow.__tablename__]
WORKSPACE_ATTEMPT = METADATA.tables[WorkspaceAttemptRow.__tablename__]
