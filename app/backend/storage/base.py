"""The base of every table of the self-hosted backend's database, which is apart from Usher's own."""

from typing import TYPE_CHECKING, ClassVar

from sqlalchemy import MetaData, Table
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

    if TYPE_CHECKING:
        # SQLModel does not declare it.
        __table__: ClassVar[Table]
