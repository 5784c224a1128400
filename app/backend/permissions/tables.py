"""The table of permission providers' configurations."""

from sqlalchemy import BigInteger
from sqlmodel import Field

from app.backend.storage.base import METADATA, BackendTable


class ProviderConfigRow(BackendTable, table=True):
    """The configuration of an API key."""

    __tablename__ = "provider_config"

    api_key_id: str = Field(primary_key=True)
    in_use: bool
    url: str
    token_sealed: str
    """The encrypted token, or the empty string."""
    updated_at: int = Field(sa_type=BigInteger)


PROVIDER_CONFIG = METADATA.tables[ProviderConfigRow.__tablename__]
