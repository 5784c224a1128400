"""Keys that sign tokens and signatures, per API key."""

from sqlalchemy import BigInteger
from sqlmodel import Field

from app.backend.storage.base import METADATA, BackendTable


class SigningKeyRow(BackendTable, table=True):
    """An Ed25519 key. At most one of an API key is not retired; retired ones are published until what they signed has
    expired.
    """

    __tablename__ = "signing_key"

    api_key_id: str = Field(primary_key=True)
    key_id: str = Field(primary_key=True)
    public_key: str
    """URL-safe base64 without padding, as ``x`` of a JWK."""
    private_sealed: str
    """Empty once retired: nothing is signed with it any more."""
    created_at: int = Field(sa_type=BigInteger)
    retired_at: int | None = Field(default=None, sa_type=BigInteger)


SIGNING_KEY = METADATA.tables[SigningKeyRow.__tablename__]
