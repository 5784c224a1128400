"""Owners of workspaces, attempts to make one, and how an API key wants its emails sent.

Times are epoch milliseconds, UTC.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.backend.storage.base import METADATA, BackendTable


class OwnerRow(BackendTable, table=True):
    """Who owns workspaces, by email address. There is one row from the first workspace on, whatever the spelling's
    case.
    """

    __tablename__ = "owner"

    email_key: str = Field(primary_key=True)
    """The address in lower case."""
    owner_id: str
    root_workspace_id: str
    """The first workspace, whose plan counts for all others."""
    created_at: int = Field(sa_type=BigInteger)


class EmailConfigRow(BackendTable, table=True):
    """How an API key wants its notification emails sent."""

    __tablename__ = "email_config"

    api_key_id: str = Field(primary_key=True)
    in_use: bool
    payload: str
    """The configuration as a JSON object, without the key of the email service."""
    key_sealed: str
    """That key; empty when there is none."""
    updated_at: int = Field(sa_type=BigInteger)


class WorkspaceAttemptRow(BackendTable, table=True):
    """One attempt to create a workspace: the sliding window of the limit per address, shared by all processes."""

    __tablename__ = "workspace_attempt"
    __table_args__ = (Index(None, "attempted_at"),)

    address: str = Field(primary_key=True)
    attempt_id: str = Field(primary_key=True)
    attempted_at: int = Field(sa_type=BigInteger)


OWNER = METADATA.tables[OwnerRow.__tablename__]
EMAIL_CONFIG = METADATA.tables[EmailConfigRow.__tablename__]
WORKSPACE_ATTEMPT = METADATA.tables[WorkspaceAttemptRow.__tablename__]
