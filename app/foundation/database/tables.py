"""Base classes of the tables. Each program's database has its own ``MetaData``."""

from typing import TYPE_CHECKING, ClassVar

from sqlalchemy import MetaData, Table
from sqlalchemy.orm import registry
from sqlmodel import SQLModel


def new_metadata() -> MetaData:
    """An empty ``MetaData`` with the constraint names that the migrations use."""
    return MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


ONLY_ON = "only_on"
"""The key in ``Index.info`` of the only dialect that has the index."""


class DatabaseTable(SQLModel):
    """The base of every table."""

    if TYPE_CHECKING:
        # SQLModel does not declare it.
        __table__: ClassVar[Table]


METADATA = new_metadata()
"""The tables of Usher's own database."""


class StoreTable(DatabaseTable, registry=registry(metadata=METADATA)):
    """The base of the tables in Usher's own database."""
