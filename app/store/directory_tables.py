"""The directory's sources: how each was last read, and its last good records.

Each kind of record has a table ``source_<kind>`` with the columns of its access table, the source, and the place where
the record stood when it last changed. They hold all that the sources say, wrong or right; the access model is what
remains of them after merging.
"""

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text
from sqlmodel import Field

from app.store.base import METADATA, StoreTable
from app.store.record_tables import KIND_TABLES


class DirectorySourceRow(StoreTable, table=True):
    """One source, by its name in the configuration."""

    __tablename__ = "directory_source"

    source_id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True)
    position: int
    """Its place in the configuration as of the last refresh; of the sources that give a key, the lowest owns it."""
    reads_begun: int = Field(default=0, sa_type=BigInteger)
    """Each read takes the next number, so that of two reads at the same time the one that began last wins."""
    read_in_force: int = Field(default=0, sa_type=BigInteger)
    """The number of the read whose records are kept; 0: never read well."""
    records: int = Field(default=0, sa_type=BigInteger)
    """How many records are kept."""
    malformed: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})
    """How many records of the last read could not be understood."""
    dangling: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})
    """How many of the kept records refer to something that nobody gives, as of the last merge."""
    last_verdict: str = ""
    """complete, partial, failed; empty before the first read."""
    last_reason: str = ""
    last_read_at: int | None = Field(default=None, sa_type=BigInteger)
    last_good_at: int | None = Field(default=None, sa_type=BigInteger)
    """When it was last read completely or partially."""
    last_complete_at: int | None = Field(default=None, sa_type=BigInteger)


class DirectoryStateRow(StoreTable, table=True):
    """One row: ties the access model to the sources' records that it was merged from."""

    __tablename__ = "directory_state"

    state_id: int = Field(default=1, primary_key=True)
    generation: int = Field(default=0, sa_type=BigInteger)
    """Moves on with every change to the sources' records or their order."""
    merged_generation: int = Field(default=-1, sa_type=BigInteger)
    """The generation that the access model was last merged from."""
    merge_problems: int = Field(default=0, sa_type=BigInteger)
    """How many problems that merge found."""


def _source_table(kind: str, access_table: Table) -> Table:
    columns = [
        Column(column.name, column.type, primary_key=column.primary_key, nullable=column.nullable)
        for column in access_table.columns
    ]
    extra = [Index(None, "organization_id", "parent_folder_id")] if kind == "folder" else []
    return Table(
        f"source_{access_table.name.removeprefix('access_')}",
        METADATA,
        *columns,
        Column("source_id", Integer, primary_key=True, autoincrement=False),
        Column("place", Text, nullable=False),
        *extra,
        # The key is most of the row, so storing it once, in order, halves the size and the time.
        sqlite_with_rowid=False,
    )


SOURCE_TABLES = {kind_table.kind: _source_table(kind_table.kind, kind_table.table) for kind_table in KIND_TABLES}
"""kind → its table of the sources' records; the key is the record's key, then the source."""
