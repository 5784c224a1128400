"""The table of permission providers' configurations."""

from sqlalchemy import BigInteger
from sqlmodel import Field

from app.backend.storage.base import KeyTable


class ProviderConfigRow(KeyTable, table=True):
    """The configuration of an API key."""

    in_use: bool
    url: str
    token_sealed: str
    """The encrypted token, or the empty string."""
    updated_at: int = Field(sa_type=BigInteger)


PROVIDER_CONFIG = ProviderConfigRow.__table__
