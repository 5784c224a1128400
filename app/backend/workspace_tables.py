"""Workspaces, their owners and credentials.

Secrets that have to be shown again are stored encrypted (``*_sealed``), beside a keyed hash (``fingerprint``) by
which a shown one is recognized. Times are epoch milliseconds, UTC.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.backend.base import BackendTable


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


class WorkspaceRow(BackendTable, table=True):
    __tablename__ = "workspace"
    __table_args__ = (Index(None, "email_key"),)

    workspace_id: str = Field(primary_key=True)
    email_key: str
    name: str
    owner_email: str
    owner_name: str
    owner_avatar: str = ""
    token_fingerprint: str
    token_sealed: str
    created_at: int = Field(sa_type=BigInteger)


class ApiKeyRow(BackendTable, table=True):
    """An API key: the tenant that all data belongs to."""

    __tablename__ = "api_key"
    __table_args__ = (Index(None, "workspace_id"),)

    api_key_id: str = Field(primary_key=True)
    workspace_id: str
    name: str
    type: str
    """``testing`` or ``production``."""
    created_at: int = Field(sa_type=BigInteger)


class AuthTokenRow(BackendTable, table=True):
    """An auth token of an API key; ``domains`` is a JSON list."""

    __tablename__ = "auth_token"

    api_key_id: str = Field(primary_key=True)
    fingerprint: str = Field(primary_key=True)
    token_sealed: str
    name: str
    domains: str = "[]"
    created_at: int = Field(sa_type=BigInteger)


class ProviderConfigRow(BackendTable, table=True):
    """Where an API key's permission questions go."""

    __tablename__ = "provider_config"

    api_key_id: str = Field(primary_key=True)
    in_use: bool
    url: str
    token_sealed: str
    """Empty when there is no token."""
    updated_at: int = Field(sa_type=BigInteger)


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


class KeyCheckRow(BackendTable, table=True):
    """A known text under the secret key, so that a wrong key is noticed at the start, not in use."""

    __tablename__ = "key_check"

    name: str = Field(primary_key=True)
    sealed: str
