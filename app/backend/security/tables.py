"""Tables of workspaces, API keys, their credentials and keys, and the permission provider.

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


WORKSPACE = WorkspaceRow.__table__
API_KEY = ApiKeyRow.__table__
AUTH_TOKEN = AuthTokenRow.__table__
KEY_CHECK = KeyCheckRow.__table__
PROVIDER_CONFIG = ProviderConfigRow.__table__
SIGNING_KEY = SigningKeyRow.__table__
