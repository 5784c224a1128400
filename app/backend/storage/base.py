"""The base of every table of the self-hosted backend's database, which is apart from Usher's own."""

from sqlalchemy import MetaData
from sqlalchemy.orm import registry
from sqlmodel import SQLModel

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class BackendTable(SQLModel, registry=registry(metadata=METADATA)):
    """What all tables of this database have in common: their ``MetaData``."""
