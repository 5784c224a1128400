"""The temporary tables with which a refresh of the access model works.

They belong to one connection and go away with it: nothing is left behind by a crash, two refreshes do not see each
other's, and filling them takes no lock on anything that others use. For each kind of record there are five:

* ``staged``: what was read just now, in the order of reading;
* ``left_out``: which of the sources' records do not count, and why;
* ``delta``: which rows of the target (the sources' records first, the access model later) are added, updated, removed;
* ``combined``: what the sources say of the kind, where their records cannot be taken as they are;
* ``touched``: the keys that a change may touch, which is merged by key.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from importlib import import_module
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    FromClause,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Row,
    RowMapping,
    SmallInteger,
    Table,
    Text,
    and_,
    select,
)

from app.access.kinds import KINDS, KINDS_BY_REFERENCE, RecordKind
from app.store.directory_tables import SOURCE_TABLES, access_keys, given_keys, source_keys
from app.store.record_tables import KIND_TABLES, REFERENCES, KindTable, Reference
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
    AMBIGUOUS = 4
    """It names a user by an alias that several have."""


@dataclass(frozen=True)
class ScratchTables:
    """The tables for one kind of record, that of the sources' records included."""

    record_kind: RecordKind
    source: Table
    staged: Table
    staged_index: Index
    delta: Table
    left_out: Table
    given: Table
    """What the merge goes by: each thing that a source says once, and users by their ids (``given.py``)."""
    touched: Table

    @property
    def kind(self) -> str:
        return self.record_kind.name

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a record of the access model."""
        return access_keys(self.record_kind)

    @cached_property
    def given_keys(self) -> tuple[str, ...]:
        """The columns that identify what a source says once."""
        return given_keys(self.record_kind)

    @cached_property
    def owned_keys(self) -> tuple[str, ...]:
        """The columns in which records of several sources agree that say the same thing."""
        return self.given_keys[:-1]

    @property
    def references(self) -> tuple[Reference, ...]:
        return REFERENCES[self.kind]

    @cached_property
    def source_keys(self) -> tuple[str, ...]:
        """The columns that identify one of a source's records; that of what it was made from and by among them."""
        return source_keys(self.record_kind)

    @cached_property
    def staged_columns(self) -> tuple[str, ...]:
        """The columns that are filled for a staged record, in the order of its values."""
        return tuple(column.name for column in self.source.columns)

    @cached_property
    def compared(self) -> tuple[str, ...]:
        """The columns in which two records of the same source keys can differ; the digest stands for the payload."""
        left_out = {*self.source_keys, "payload", "place"}
        return tuple(name for name in self.staged_columns if name not in left_out)


@dataclass(frozen=True)
class ModelTables(ScratchTables):
    """The same for a kind of record that the access model has."""

    kind_table: KindTable
    combined: Table
    """What is given where that is not the sources' records as they are."""

    @property
    def access(self) -> Table:
        return self.kind_table.table

    @cached_property
    def model_compared(self) -> tuple[str, ...]:
        """The columns in which two records of the access model of the same key can differ."""
        return tuple(name for name in self.kind_table.columns if name not in {*self.keys, "payload"})


def show(connection: Connection, tables: ModelTables, origin: str) -> None:
    """Makes ``given`` what the table or view ``origin`` holds."""
    for statement in shown(tables, origin):
        connection.exec_driver_sql(statement)


def shown(tables: ModelTables, origin: str) -> tuple[str, str]:
    """The statements that do it: away with the view as it was, and how it is from here on."""
    names = ", ".join(column.name for column in tables.given.columns)
    return shown_query(tables, f"SELECT {names} FROM {origin}")  # noqa: S608 - names of our own tables


def shown_query(tables: ModelTables, query: str) -> tuple[str, str]:
    """The same, for what a query yields."""
    name = tables.given.name
    return f"DROP VIEW IF EXISTS {name}", f"CREATE TEMPORARY VIEW {name} AS {query}"


def place_of(connection: Connection, tables: ScratchTables, row: Mapping[str, Any] | RowMapping) -> str:
    """Where a source's record stands: as of the read that is going on, or as of when it last changed.

    Of a row that does not say what it was made from, the first that the source keeps."""
    known = {name: row[name] for name in tables.source_keys if name in row}
    if len(known) < len(tables.source_keys):
        kept = tables.source.c
        first = (
            select(kept.origin, kept.rule)
            .where(*(kept[name] == value for name, value in known.items()))
            .order_by(kept.origin, kept.rule)
        )
        known |= next(iter(connection.execute(first.limit(1)).mappings()), {})
    for table in (tables.staged, tables.source):
        statement = select(table.c.place).where(*(table.c[name] == value for name, value in known.items()))
        place = connection.execute(statement.limit(1)).scalar()
        if place is not None:
            return str(place)
    return str(row.get("place", ""))


def described(tables: ScratchTables, row: Row[Any]) -> str:
    """A record as reports name it: its kind and the ids that it has."""
    ids = ((field.name, getattr(row, field.attribute)) for field in KINDS[tables.kind].keys)
    return f"{tables.kind} {', '.join(f'{name}={quoted(value)}' for name, value in ids if value)}"


@cache
def dialect_of(name: str) -> Dialect:
    """How a database spells statements: for texts that are made once, whatever engine they are executed by."""
    # The other database's is not loaded: that takes longer than the texts.
    dialect: Dialect = import_module(f"sqlalchemy.dialects.{name}").dialect()
    return dialect


def same(left: FromClause, right: FromClause, columns: Sequence[str]) -> ColumnElement[bool]:
    """Both sides agree in these columns, none of which can be null."""
    return and_(*(left.c[name] == right.c[name] for name in columns))


TEMPORARY = MetaData()
"""The temporary tables; they are made on a connection when a refresh begins."""


def _tables_of(kind: RecordKind) -> ScratchTables:
    source = SOURCE_TABLES[kind.name]
    suffix = source.name.removeprefix("source_")

    def copies(names: Sequence[str]) -> list[Column[object]]:
        return [
            Column(name, one.type, nullable=one.nullable, server_default=one.server_default)
            for name in names
            for one in (source.c[name],)
        ]

    def table(purpose: str, *columns: Column[object], key: Sequence[str] = ()) -> Table:
        return Table(
            f"refresh_{purpose}_{suffix}",
            TEMPORARY,
            *columns,
            *([PrimaryKeyConstraint(*key)] if key else []),
            prefixes=["TEMPORARY"],
            sqlite_with_rowid=not key,
        )

    staged = table(
        "staged",
        Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        *copies([column.name for column in source.columns]),
    )
    # Made after the table is filled, which takes a fraction of the time; so it is no part of the table's own indexes.
    index = Index(f"ix_refresh_staged_{suffix}", *(staged.c[name] for name in (*source_keys(kind), "seq")))
    staged.indexes.discard(index)
    keys = source_keys(kind)
    delta = table("delta", *copies(keys), Column("change", SmallInteger, nullable=False), key=keys)
    # PostgreSQL takes longer for the index than for the rows. Sessions make it where rows are looked up there.
    delta.primary_key.ddl_if(dialect="sqlite")
    keys = given_keys(kind)
    left_out = table("left_out", *copies(keys), Column("cause", SmallInteger, nullable=False), key=keys)
    # Late are those of which is known only after the sources' records have changed that they are touched.
    late: Column[Any] = Column("late", SmallInteger, nullable=False, server_default="0")
    touched = table("touched", *copies(keys[:-1]), late, key=keys[:-1])
    if kind.name not in _KIND_TABLES:
        return ScratchTables(kind, source, staged, index, delta, left_out, source, touched)
    names = [column.name for column in source.columns if column.name not in {"origin", "rule"}]
    return ModelTables(
        kind,
        source,
        staged,
        index,
        delta,
        left_out,
        Table(f"refresh_given_{suffix}", MetaData(), *copies(names)),
        touched,
        kind_table=_KIND_TABLES[kind.name],
        combined=table("combined", *copies(names), key=keys),
    )


_KIND_TABLES = {table.kind: table for table in KIND_TABLES}

SCRATCH_TABLES: Sequence[ScratchTables] = tuple(map(_tables_of, KINDS_BY_REFERENCE))
"""One per kind, referred-to kinds first."""

SCRATCH_TABLES_OF_KIND = {tables.kind: tables for tables in SCRATCH_TABLES}

MODEL_TABLES: Sequence[ModelTables] = tuple(tables for tables in SCRATCH_TABLES if isinstance(tables, ModelTables))
"""Those of the kinds that the access model has."""

TABLES_OF_KIND = {tables.kind: tables for tables in MODEL_TABLES}

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

REREAD_OBJECT = Table(
    "refresh_reread_object",
    TEMPORARY,
    Column("source_id", Integer, primary_key=True, autoincrement=False),
    Column("origin", Text, primary_key=True),
    prefixes=["TEMPORARY"],
    sqlite_with_rowid=False,
)
"""Of which objects a read of changes, or of a part, says all that there is to say of them."""

MALFORMED_OBJECT = Table(
    "refresh_malformed_object",
    TEMPORARY,
    Column("source_id", Integer, primary_key=True, autoincrement=False),
    Column("origin", Text, primary_key=True),
    Column("disabled", Boolean, nullable=False),
    prefixes=["TEMPORARY"],
    sqlite_with_rowid=False,
)
"""Objects of which a read could not make a record: what they provided before is kept, disabled if the object is."""

REPLACED = Table(
    "refresh_replaced",
    TEMPORARY,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
    prefixes=["TEMPORARY"],
)
"""Which of the staged records of one kind another one replaces that stands further down, and which one that is."""

REACHED_FOLDER = Table(
    "refresh_reached_folder",
    TEMPORARY,
    Column("organization_id", Text, primary_key=True),
    Column("folder_id", Text, primary_key=True),
    prefixes=["TEMPORARY"],
    sqlite_with_rowid=False,
)
"""Folders from which a way leads to the top."""

USER_ALIAS = Table(
    "refresh_user_alias",
    TEMPORARY,
    Column("alias", Text, primary_key=True),
    Column("user_id", Text, primary_key=True),
    prefixes=["TEMPORARY"],
    sqlite_with_rowid=False,
)
"""The aliases of the users that count."""

RESOLVED_ALIAS = Table(
    "refresh_resolved_alias",
    TEMPORARY,
    Column("alias", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    prefixes=["TEMPORARY"],
    sqlite_with_rowid=False,
)
"""Those that one user alone has."""

ALIAS_CHANGE = Table(
    "refresh_alias_change",
    TEMPORARY,
    Column("alias", Text, primary_key=True),
    Column("user_id", Text, primary_key=True),
    Column("change", SmallInteger, nullable=False),
    prefixes=["TEMPORARY"],
    sqlite_with_rowid=False,
)
"""Which aliases are added to the access model's, and removed from them."""

FORMER_ALIAS = Table(
    "refresh_former_alias",
    TEMPORARY,
    Column("alias", Text, primary_key=True),
    Column("user_id", Text),
    prefixes=["TEMPORARY"],
    sqlite_with_rowid=False,
)
"""Whose an alias was that a change gives or takes; null: nobody's, or that of several."""

BINDING_CHANGE = Table(
    "refresh_binding_change",
    TEMPORARY,
    Column("user_alias", Text, primary_key=True),
    Column("source_id", Integer, primary_key=True, autoincrement=False),
    Column("user_id", Text, primary_key=True),
    Column("change", SmallInteger, nullable=False),
    prefixes=["TEMPORARY"],
    sqlite_with_rowid=False,
)
"""The bindings of disabling fills that are added and removed."""

CHANGED_NAME = Table(
    "refresh_changed_name",
    TEMPORARY,
    Column("change", SmallInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("organization_id", Text, nullable=False),
    Column("item_id", Text, nullable=False),
    prefixes=["TEMPORARY"],
)
"""Which names are added to those of the access model, and removed from them."""

FILLED_USER = Table(
    "refresh_filled_user",
    TEMPORARY,
    Column("user_id", Text, primary_key=True),
    Column("source_id", Integer, primary_key=True, autoincrement=False),
    Column("disabled", Boolean, nullable=False),
    Column("payload", Text, nullable=False),
    Column("digest", Text, nullable=False),
    prefixes=["TEMPORARY"],
    sqlite_with_rowid=False,
)
"""The users whom fills add something to, as they are with it."""
