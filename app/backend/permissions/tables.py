"""Permission providers, per API key."""

from sqlalchemy import BigInteger
from sqlmodel import Field

from app.backend.storage.base import METADATA, BackendTable


class ProviderConfigRow(BackendTable, table=True):
    """Where an API key's permission questions go."""

    __tablename__ = "provider_config"

    api_key_id: str = Field(primary_key=True)
    in_use: bool
    url: str
    token_sealed: str
    """Empty when there is no token."""
    updated_at: int = Field(sa_type=BigInteger)


PROVIDER_CONFIG = METADATA.tables[ProviderConfigRow.__tablename__]
