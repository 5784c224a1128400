"""The base of every table of the self-hosted backend's database, which is apart from Usher's own."""

from sqlalchemy.orm import registry
from sqlmodel import Field

from app.foundation.database.tables import DatabaseTable, new_metadata

METADATA = new_metadata()


class BackendTable(DatabaseTable, registry=registry(metadata=METADATA)):
    """A table of this database."""


class ScopedTable(BackendTable):
    """A table of what belongs to an organization of an API key."""

    api_key_id: str = Field(primary_key=True)
    organization_id: str = Field(primary_key=True)
