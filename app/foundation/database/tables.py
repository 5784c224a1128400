"""Base classes of the tables. Each program's database has its own ``MetaData``."""

import re
from typing import TYPE_CHECKING, ClassVar

from sqlalchemy import Index, MetaData, String, Table, text
from sqlalchemy.orm import declared_attr, registry
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


CLUSTERED = {"sqlite_with_rowid": False}
"""Table argument: SQLite stores the rows in the primary key itself, which is half the size and saves a lookup."""

ZERO = {"server_default": "0"}
"""Column arguments of a number that was added later: existing rows get 0."""

BYTEWISE = String().with_variant(String(collation="C"), "postgresql")
"""A text that is compared byte by byte, so that texts with the same beginning are one range in any locale."""

ONLY_ON = "only_on"
"""The key in ``Index.info`` of the only dialect that has the index."""


def index_of_rows(name: str, *columns: str, where: str) -> Index:
    """An index of the rows that meet a condition."""
    rows = text(where)
    return Index(name, *columns, sqlite_where=rows, postgresql_where=rows)


class DatabaseTable(SQLModel):
    """The base of every table. Unless it has another name, ``PlanItemRow`` is the table ``plan_item``."""

    if TYPE_CHECKING:
        # SQLModel does not declare them like this.
        __table__: ClassVar[Table]
        __tablename__: ClassVar[str]
    else:

        @declared_attr
        def __tablename__(cls) -> str:  # noqa: N805 - SQLAlchemy calls it on the class
            return re.sub(r"\B(?=[A-Z])", "_", cls.__name__.removesuffix("Row")).lower()


METADATA = new_metadata()
"""The tables of Usher's own database."""


class StoreTable(DatabaseTable, registry=registry(metadata=METADATA)):
    """The base of the tables in Usher's own database."""
