"""Tables of workspaces, API keys and their credentials.

Secrets that operations return are stored encrypted (``*_sealed``), with a keyed hash (``fingerprint``) for comparison.
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


WORKSPACE = WorkspaceRow.__table__
API_KEY = ApiKeyRow.__table__
AUTH_TOKEN = AuthTokenRow.__table__
KEY_CHECK = KeyCheckRow.__table__
