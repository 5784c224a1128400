"""What the tables of both programs have in common. Each program's database has a ``MetaData`` of its own."""

from typing import TYPE_CHECKING, ClassVar

from sqlalchemy import MetaData, Table
from sqlmodel import SQLModel


def new_metadata() -> MetaData:
    """An empty ``MetaData`` with the names of constraints that the migrations use."""
    return MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class DatabaseTable(SQLModel):
    """The base of every table."""

    if TYPE_CHECKING:
        # SQLModel does not declare it.
        __table__: ClassVar[Table]
