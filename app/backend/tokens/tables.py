"""Table of signing keys."""

from sqlalchemy import BigInteger
from sqlmodel import Field

from app.backend.storage.base import KeyTable


class SigningKeyRow(KeyTable, table=True):
    """An Ed25519 key. An API key has at most one that is not retired."""

    key_id: str = Field(primary_key=True)
    public_key: str
    """URL-safe base64 without padding, as ``x`` of a JWK."""
    private_sealed: str
    """Empty if retired."""
    created_at: int = Field(sa_type=BigInteger)
    retired_at: int | None = Field(default=None, sa_type=BigInteger)


SIGNING_KEY = SigningKeyRow.__table__
