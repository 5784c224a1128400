"""Base classes of the tables of the self-hosted backend, which has its own database."""

from sqlalchemy.orm import registry
from sqlmodel import Field

from app.foundation.database.tables import DatabaseTable, new_metadata

METADATA = new_metadata()
CLUSTERED = {"sqlite_with_rowid": False}
"""In ``__table_args__``: SQLite stores the rows in the primary key."""


class BackendTable(DatabaseTable, registry=registry(metadata=METADATA)):
    """A table of the self-hosted backend."""


class KeyTable(BackendTable):
    """A table whose rows belong to an API key."""

    api_key_id: str = Field(primary_key=True)


class ScopedTable(KeyTable):
    """A table whose rows belong to an organization of an API key."""

    organization_id: str = Field(primary_key=True)
