"""Tables of workspaces, API keys and their credentials.

Secrets that operations return are stored encrypted (``*_sealed``), with a keyed hash (``fingerprint``) for comparison.
Times are epoch milliseconds in UTC.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.backend.storage.base import METADATA, BackendTable


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


class KeyCheckRow(BackendTable, table=True):
    """An encrypted known text, to detect a wrong secret key at startup."""

    __tablename__ = "key_check"

    name: str = Field(primary_key=True)
    sealed: str


WORKSPACE = METADATA.tables[WorkspaceRow.__tablename__]
API_KEY = METADATA.tables[ApiKeyRow.__tablename__]
AUTH_TOKEN = METADATA.tables[AuthTokenRow.__tablename__]
KEY_CHECK = METADATA.tables[KeyCheckRow.__tablename__]
