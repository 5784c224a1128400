"""The base of every table of Usher's own database."""

from sqlalchemy.orm import registry

from app.foundation.database.tables import DatabaseTable, new_metadata

METADATA = new_metadata()


class StoreTable(DatabaseTable, registry=registry(metadata=METADATA)):
    """A table of this database."""
