"""The temporary tables with which a refresh of the access model works.

They belong to one connection and go away with it: nothing is left behind by a crash, two refreshes do not see each
other's, and filling them takes no lock on anything that others use. For each kind of record there are three:

* ``staged``: what was read just now, in the order of reading;
* ``left_out``: which of the sources' records do not count, and why;
* ``delta``: which rows of the target (the sources' records first, the access model later) are added, updated, removed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    FromClause,
    Index,
    Integer,
    MetaData,
    Row,
    RowMapping,
    SmallInteger,
    Table,
    Text,
    and_,
    select,
)

from app.access.kinds import KINDS
from app.store.directory_tables import SOURCE_TABLES
from app.store.record_tables import KIND_TABLES, KindTable
from app.text import quoted


class RowChange(IntEnum):
    """What happens to a row of the target."""

    ADD = 1
    UPDATE = 2
    REMOVE = 3


class LeftOutCause(IntEnum):
    """Why a source's record does not count."""

    OWNED_ELSEWHERE = 1
    """A source further up in the configuration gives the same key."""
    DANGLING = 2
    """It refers to something that is nowhere, or that is itself left out."""
    UNREACHABLE = 3
    """A folder from which no way leads to the top: dangling, in a cycle, or below such a folder."""


@dataclass(frozen=True)
class ScratchTables:
    """The tables for one kind of record, the lasting ones included."""

    kind_table: KindTable
    source: Table
    staged: Table
    staged_index: Index
    delta: Table
    left_out: Table

    @property
    def kind(self) -> str:
        return self.kind_table.kind

    @property
    def access(self) -> Table:
        return self.kind_table.table

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a record."""
        return self.kind_table.keys

    @cached_property
    def source_keys(self) -> tuple[str, ...]:
        """The columns that identify a record of one source."""
        return (*self.keys, "source_id")

    @cached_property
    def compared(self) -> tuple[str, ...]:
        """The columns in which two records of the same key can differ; the digest stands for the payload."""
        return tuple(name for name in self.kind_table.columns if name not in self.keys and name != "payload")

    @cached_property
    def staged_columns(self) -> tuple[str, ...]:
        """The columns that are filled for a staged record, in the order of its values."""
        return (*self.kind_table.columns, "source_id", "place")


def place_of(connection: Connection, tables: ScratchTables, row: Mapping[str, Any] | RowMapping) -> str:
    """Where a source's record stands: as of the read that is going on, or as of when it last changed."""
    for table in (tables.staged, tables.source):
        statement = select(table.c.place).where(*(table.c[name] == row[name] for name in tables.source_keys))
        place = connection.execute(statement).scalar()
        if place is not None:
            return str(place)
    return ""


def described(tables: ScratchTables, row: Row[Any]) -> str:
    """A record as reports name it: its kind and the ids that it has."""
    ids = ((field.name, getattr(row, field.attribute)) for field in KINDS[tables.kind].keys)
    return f"{tables.kind} {', '.join(f'{name}={quoted(value)}' for name, value in ids if value)}"


def same(left: FromClause, right: FromClause, columns: Sequence[str]) -> ColumnElement[bool]:
    """Both sides agree in these columns, none of which can be null."""
    return and_(*(left.c[name] == right.c[name] for name in columns))


TEMPORARY = MetaData()
"""The temporary tables; they are made on a connection when a refresh begins."""


def _tables_of(kind_table: KindTable) -> ScratchTables:
    suffix = kind_table.table.name.removeprefix("access_")

    def copies(names: Sequence[str], *, key: bool) -> list[Column[object]]:
        columns = kind_table.table.c
        return [Column(name, columns[name].type, nullable=columns[name].nullable, primary_key=key) for name in names]

    def table(purpose: str, *columns: Column[object], with_rowid: bool = False) -> Table:
        return Table(
            f"refresh_{purpose}_{suffix}", TEMPORARY, *columns, prefixes=["TEMPORARY"], sqlite_with_rowid=with_rowid
        )

    staged = table(
        "staged",
        Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        Column("source_id", Integer, nullable=False),
        Column("place", Text, nullable=False),
        *copies(kind_table.columns, key=False),
        with_rowid=True,
    )
    # Made after the table is filled, which takes a fraction of the time; so it is no part of the table's own indexes.
    index = Index(f"ix_refresh_staged_{suffix}", *(staged.c[name] for name in (*kind_table.keys, "source_id", "seq")))
    staged.indexes.discard(index)
    return ScratchTables(
        kind_table=kind_table,
        source=SOURCE_TABLES[kind_table.kind],
        staged=staged,
        staged_index=index,
        delta=table(
            "delta",
            *copies(kind_table.keys, key=True),
            Column("source_id", Integer, primary_key=True, autoincrement=False),
            Column("change", SmallInteger, nullable=False),
        ),
        left_out=table(
            "left_out",
            *copies(kind_table.keys, key=True),
            Column("source_id", Integer, primary_key=True, autoincrement=False),
            Column("cause", SmallInteger, nullable=False),
        ),
    )


SCRATCH_TABLES: Sequence[ScratchTables] = tuple(_tables_of(kind_table) for kind_table in KIND_TABLES)
"""One per kind, referred-to kinds first."""

TABLES_OF_KIND = {tables.kind: tables for tables in SCRATCH_TABLES}

GROUP_EDGE = Table(
    "refresh_group_edge",
    TEMPORARY,
    Column("organization_id", Text, primary_key=True),
    Column("parent_id", Text, primary_key=True),
    Column("member_id", Text, primary_key=True),
    Column("source_id", Integer, nullable=False),
    prefixes=["TEMPORARY"],
    sqlite_with_rowid=False,
)
"""Groups in groups, for finding cycles."""

REACHED_FOLDER = Table(
    "refresh_reached_folder",
    TEMPORARY,
    Column("organization_id", Text, primary_key=True),
    Column("folder_id", Text, primary_key=True),
    prefixes=["TEMPORARY"],
    sqlite_with_rowid=False,
)
"""Folders from which a way leads to the top."""
