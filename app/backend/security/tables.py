"""Tables of workspaces, their owners, API keys, credentials, and configurations with a secret.

Secrets are stored encrypted (``*_sealed``), tokens also as a keyed hash (``fingerprint``) for comparison.
Times are epoch milliseconds in UTC.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.backend.storage.base import BackendTable, KeyTable


class WorkspaceRow(BackendTable, table=True):
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

    __table_args__ = (Index(None, "workspace_id"),)

    api_key_id: str = Field(primary_key=True)
    workspace_id: str
    name: str
    type: str
    """``testing`` or ``production``."""
    created_at: int = Field(sa_type=BigInteger)


class AuthTokenRow(KeyTable, table=True):
    """An auth token of an API key. ``domains`` is a JSON list."""

    fingerprint: str = Field(primary_key=True)
    token_sealed: str
    name: str
    domains: str = "[]"
    created_at: int = Field(sa_type=BigInteger)


class KeyCheckRow(BackendTable, table=True):
    """An encrypted known text, to detect a wrong secret key at startup."""

    name: str = Field(primary_key=True)
    sealed: str


class ProviderConfigRow(KeyTable, table=True):
    """The permission provider of an API key."""

    in_use: bool
    url: str
    token_sealed: str
    """Empty for no token."""
    updated_at: int = Field(sa_type=BigInteger)


class SigningKeyRow(KeyTable, table=True):
    """An Ed25519 key. An API key has at most one that is not retired."""

    key_id: str = Field(primary_key=True)
    public_key: str
    """URL-safe base64 without padding, as ``x`` of a JWK."""
    private_sealed: str
    """Empty if retired."""
    created_at: int = Field(sa_type=BigInteger)
    retired_at: int | None = Field(default=None, sa_type=BigInteger)


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


WORKSPACE = WorkspaceRow.__table__
API_KEY = ApiKeyRow.__table__
AUTH_TOKEN = AuthTokenRow.__table__
KEY_CHECK = KeyCheckRow.__table__
PROVIDER_CONFIG = ProviderConfigRow.__table__
SIGNING_KEY = SigningKeyRow.__table__
OWNER = OwnerRow.__table__
EMAIL_CONFIG = EmailConfigRow.__table__
WORKSPACE_ATTEMPT = WorkspaceAttemptRow.__table__
