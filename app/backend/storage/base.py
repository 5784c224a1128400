"""Base classes of the tables of the self-hosted backend, which has its own database."""

from sqlalchemy.orm import registry
from sqlmodel import Field

from app.foundation.database.tables import DatabaseTable, new_metadata

METADATA = new_metadata()


class BackendTable(DatabaseTable, registry=registry(metadata=METADATA)):
    """A table of the self-hosted backend."""


class ScopedTable(BackendTable):
    """A table whose rows belong to an organization of an API key."""

    api_key_id: str = Field(primary_key=True)
    organization_id: str = Field(primary_key=True)
