"""The temporary tables of a refresh, and the column lists for its statements.

The tables belong to one connection, so filling them locks nothing. For each kind of record there are:

* ``staged``: the records that were just read, in the order of reading;
* ``source_delta``: the rows of ``source_<kind>`` to add, update and remove;
* ``changed``: the keys of the access model to merge again;
* ``merged``: the rows of the access model under these keys, as they are to be;
* ``delta``: the rows of the access model to add, update and remove.

Statements are SQL text with these placeholders. They are the only parts that differ from kind to kind:

===================  =================================================================================
``{source}``         the table ``source_<kind>``; ``{model}``, ``{staged}``, ``{changed}`` … are the others
``{keys}``           the key of the access model: ``organization_id, folder_id``
``{keys:s}``         the same as columns of ``s``: ``s.organization_id, s.folder_id``
``{keys:s=c}``       the same as a condition: ``s.organization_id = c.organization_id AND s.folder_id = c.folder_id``
``{others}``         the key without ``user_id``, of kinds that refer to users
``{written_keys}``   the key as a source writes it: with ``user_alias`` and ``source_id``
``{pushed_keys}``    the same without ``source_id``; ``{pushed_parts}``: their values in the column ``key``
``{source_keys}``    the same as ``{written_keys}`` with ``origin`` and ``rule``: the key of ``source_<kind>``
``{columns}``        all columns of the access model; ``{source_columns}``, ``{staged_columns}``: of these tables
``{values}``         the columns beside the key, of kinds that refer to users; ``{combined}``: of several rows
``{organization}``   ``organization_id``, or ``''`` for kinds that belong to none; ``{item}``: the record's own id
``{content}``        columns that differ if two rows of the access model differ; the digest represents the payload
``{source_content}`` the same of two rows of a source
``{rows}``           what the caller names
===================  =================================================================================
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    CursorResult,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
)

from app.access.kinds import KINDS_BY_REFERENCE, RecordKind
from app.access.record_tables import KIND_TABLES
from app.access.records import User
from app.access.source_tables import SOURCE_TABLES, access_keys, source_keys, written_keys
from app.foundation.database.engine import is_sqlite
from app.foundation.database.statements import run


class RowChange(IntEnum):
    """The change of a row."""

    ADD = 1
    UPDATE = 2
    REMOVE = 3
    OWNER = 4
    """Another source provides the same content. It is stored, and is no change of the access model."""


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How many records of a kind changed."""

    added: int = 0
    updated: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        return self.added + self.updated + self.removed

    @property
    def any(self) -> bool:
        return self.total > 0


class Columns(tuple[str, ...]):
    """Names of columns; the format specification is described at the head of this module."""

    __slots__ = ()

    def __format__(self, specification: str) -> str:
        left, _, right = specification.partition("=")
        if right:
            return " AND ".join(f"{left}.{name} = {right}.{name}" for name in self)
        return ", ".join(f"{left}.{name}" if left else name for name in self)


class _NoColumn(Columns):
    """A column that the kind does not have."""

    __slots__ = ()

    def __format__(self, specification: str) -> str:
        return "''"


class _Parts(Columns):
    """The values of these columns in a stored key, which is a JSON list."""

    __slots__ = ()

    def __format__(self, specification: str) -> str:
        column = f"{specification}.key" if specification else "key"
        return ", ".join(f"@part({column}, {index})" for index in range(len(self)))


@dataclass(frozen=True)
class RefreshTables:
    """The tables of one kind of record that sources provide."""

    record_kind: RecordKind
    source: Table
    staged: Table
    staged_index: Index
    source_delta: Table

    @property
    def kind(self) -> str:
        return self.record_kind.name

    @cached_property
    def keys(self) -> Columns:
        """The columns that identify a record of the access model."""
        return Columns(access_keys(self.record_kind))

    @cached_property
    def written_keys(self) -> Columns:
        """The columns that identify a record as its source writes it."""
        return Columns(written_keys(self.record_kind))

    @cached_property
    def pushed_keys(self) -> Columns:
        """The columns by which pushes identify a record of one source."""
        return Columns(name for name in self.written_keys if name != "source_id")

    @cached_property
    def source_keys(self) -> Columns:
        """The columns that identify one of a source's records, with the object and rule that it was made from."""
        return Columns(source_keys(self.record_kind))

    @cached_property
    def staged_columns(self) -> Columns:
        """The columns of a staged record, in the order of its values."""
        return Columns(column.name for column in self.source.columns)

    @property
    def may_be_disabled(self) -> bool:
        return "disabled" in self.source.c

    @cached_property
    def names(self) -> dict[str, object]:
        """The placeholders."""
        left_out = {*self.source_keys, "payload", "place"}
        return {
            "kind": self.kind,
            "source": self.source.name,
            "staged": self.staged.name,
            "source_delta": self.source_delta.name,
            "keys": self.keys,
            "others": Columns(name for name in self.keys if name != "user_id"),
            "written_keys": self.written_keys,
            "pushed_keys": self.pushed_keys,
            "pushed_parts": _Parts(self.pushed_keys),
            "source_keys": self.source_keys,
            "source_columns": Columns(column.name for column in self.source.columns),
            "staged_columns": self.staged_columns,
            "source_content": Columns((self.keys[0], *(one for one in self.staged_columns if one not in left_out))),
            "add": int(RowChange.ADD),
            "update": int(RowChange.UPDATE),
            "remove": int(RowChange.REMOVE),
            "owner": int(RowChange.OWNER),
        }

    def text(self, statement: str, *, rows: str = "") -> str:
        """The statement for this kind."""
        return _text_of(self, statement, rows)

    def run(
        self,
        connection: Connection,
        statement: str,
        parameters: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
        *,
        rows: str = "",
    ) -> CursorResult[*tuple[Any, ...]]:
        """Executes the statement for this kind; see ``app.foundation.database.statements.run``."""
        return run(connection, self.text(statement, rows=rows), parameters)


@dataclass(frozen=True)
class ModelTables(RefreshTables):
    """The tables of one kind of record that the access model contains."""

    model: Table
    changed: Table
    merged: Table
    delta: Table

    @cached_property
    def names(self) -> dict[str, object]:
        columns = Columns(column.name for column in self.model.columns)
        left_out = {*self.keys, "payload", "source_id"}
        return super().names | {
            "model": self.model.name,
            "changed": self.changed.name,
            "merged": self.merged.name,
            "delta": self.delta.name,
            "columns": columns,
            "merged_columns": Columns(column.name for column in self.merged.columns),
            "values": Columns(name for name in columns if name not in self.keys),
            "combined": ", ".join(_COMBINED.get(name, name) for name in columns if name not in self.keys),
            "organization": Columns(["organization_id"]) if len(self.keys) > 1 else _NoColumn(),
            "item": Columns([self.keys[-1]]),
            # With a column of the key, so that it is never empty.
            "content": Columns((self.keys[0], *(name for name in columns if name not in left_out))),
        }


_COMBINED = {
    "source_id": "n.source_id",
    # Editor is before viewer in the alphabet.
    "access_role": "MIN(access_role)",
    "expires_at": "CASE WHEN COUNT(expires_at) < COUNT(*) THEN NULL ELSE MAX(expires_at) END",
}
"""Of several rows of one source the most permissive role, and the latest end; no end is later than any."""


@cache
def _text_of(tables: RefreshTables, statement: str, rows: str) -> str:
    return statement.format(**tables.names, rows=tables.names.get(rows, rows))


# Deltas.

_COUNTS = """
SELECT COUNT(*) FILTER (WHERE change = {add}), COUNT(*) FILTER (WHERE change = {update}),
  COUNT(*) FILTER (WHERE change = {remove}), COUNT(*)
FROM {delta}
"""


def counted(connection: Connection, tables: ModelTables) -> tuple[ChangeCounts, int]:
    """What the delta of the access model contains, and how many rows these are with those of another owner."""
    added, updated, removed, rows = tables.run(connection, _COUNTS).one()
    return ChangeCounts(added=added, updated=updated, removed=removed), rows


@contextmanager
def indexed_afterwards(connection: Connection, target: Table, added: int) -> Iterator[None]:
    """On SQLite: creates the indexes of a table that is filled for the first time after the rows are in it, which takes
    a fraction of the time. On PostgreSQL it would block readers. A candidate's copy keeps its indexes."""
    is_worth_it = added >= _WORTH_INDEXING_AFTERWARDS and is_sqlite(connection) and target.indexes
    if not is_worth_it or connection.exec_driver_sql(f"SELECT 1 FROM {target.name} LIMIT 1").first() is not None:  # noqa: S608 - our own table
        yield
        return
    names = ", ".join(sorted(f"'{index.name}'" for index in target.indexes))
    made = connection.exec_driver_sql(
        f"SELECT name, sql FROM main.sqlite_master WHERE type = 'index' AND name IN ({names})"  # noqa: S608 - as above
        f" AND NOT EXISTS (SELECT 1 FROM sqlite_temp_master t WHERE t.name = '{target.name}') ORDER BY name"
    ).all()
    for name, _ in made:
        connection.exec_driver_sql(f"DROP INDEX main.{name}")
    yield
    for _, sql in made:
        connection.exec_driver_sql(sql)


_WORTH_INDEXING_AFTERWARDS = 10_000
"""The number of rows from which an empty table is indexed after it is filled."""


# The definitions.

TEMPORARY = MetaData()
"""The temporary tables, which a session creates on its connection."""

_MODELS = {table.kind: table.table for table in KIND_TABLES}


def _temporary(name: str, *columns: Column[Any], key: Sequence[str] = ()) -> Table:
    return Table(
        f"refresh_{name}",
        TEMPORARY,
        *columns,
        *([PrimaryKeyConstraint(*key)] if key else []),
        prefixes=["TEMPORARY"],
        sqlite_with_rowid=not key,
    )


def _copies(table: Table, names: Sequence[str]) -> list[Column[Any]]:
    return [
        Column(one.name, one.type, nullable=one.nullable, server_default=one.server_default)
        for one in (table.c[name] for name in names)
    ]


def _tables_of(kind: RecordKind) -> RefreshTables:
    source = SOURCE_TABLES[kind.name]
    suffix = source.name.removeprefix("source_")
    staged = _temporary(
        f"staged_{suffix}",
        Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        *_copies(source, [column.name for column in source.columns]),
    )
    # Created after the table is filled, which takes a fraction of the time; so the table does not own it.
    index = Index(f"ix_refresh_staged_{suffix}", *(staged.c[name] for name in (*source_keys(kind), "seq")))
    staged.indexes.discard(index)
    source_delta = _temporary(
        f"source_delta_{suffix}",
        *_copies(source, source_keys(kind)),
        Column("change", SmallInteger, nullable=False),
        key=source_keys(kind),
    )
    # PostgreSQL takes longer for the index than for the rows. Sessions create it if rows are looked up there.
    source_delta.primary_key.ddl_if(dialect="sqlite")
    if kind.name not in _MODELS:
        return RefreshTables(kind, source, staged, index, source_delta)
    model, keys = _MODELS[kind.name], access_keys(kind)
    aliases = [Column("aliases", Text, nullable=False)] if kind.name == User.kind else []
    return ModelTables(
        kind,
        source,
        staged,
        index,
        source_delta,
        model=model,
        changed=_temporary(f"changed_{suffix}", *_copies(model, keys), key=keys),
        merged=_temporary(
            f"merged_{suffix}", *_copies(model, [column.name for column in model.columns]), *aliases, key=keys
        ),
        delta=_temporary(
            f"delta_{suffix}", *_copies(model, keys), Column("change", SmallInteger, nullable=False), key=keys
        ),
    )


REFRESH_TABLES: Sequence[RefreshTables] = tuple(map(_tables_of, KINDS_BY_REFERENCE))
"""One per kind, referred-to kinds first."""

REFRESH_TABLES_OF_KIND = {tables.kind: tables for tables in REFRESH_TABLES}

MODEL_TABLES: Sequence[ModelTables] = tuple(tables for tables in REFRESH_TABLES if isinstance(tables, ModelTables))
"""Those of the kinds that the access model contains."""

MODEL_TABLES_OF_KIND = {tables.kind: tables for tables in MODEL_TABLES}


def _keyed(name: str, *columns: Column[Any]) -> Table:
    return Table(f"refresh_{name}", TEMPORARY, *columns, prefixes=["TEMPORARY"], sqlite_with_rowid=False)


REREAD_OBJECT = _keyed(
    "reread_object",
    Column("source_id", Integer, primary_key=True, autoincrement=False),
    Column("origin", Text, primary_key=True),
)
"""The objects whose records a read of changes, or of a part, replaces."""

MALFORMED_OBJECT = _keyed(
    "malformed_object",
    Column("source_id", Integer, primary_key=True, autoincrement=False),
    Column("origin", Text, primary_key=True),
    Column("disabled", Boolean, nullable=False),
)
"""Objects that a read could not convert: what they provided before is kept, disabled if the object is."""

REPLACED = Table(
    "refresh_replaced",
    TEMPORARY,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
    prefixes=["TEMPORARY"],
)
"""Staged records of one kind with the number of the later record that replaces them."""

USER_ALIAS = _keyed("user_alias", Column("alias", Text, primary_key=True), Column("user_id", Text, primary_key=True))
"""The aliases of the changed users, as they are to be."""

ALIAS_DELTA = _keyed(
    "alias_delta",
    Column("alias", Text, primary_key=True),
    Column("user_id", Text, primary_key=True),
    Column("change", SmallInteger, nullable=False),
)
"""The aliases that are added to the access model and removed from it."""

CHANGED_ALIAS = _keyed(
    "changed_alias",
    Column("alias", Text, primary_key=True),
    Column("former_user_id", Text),
    Column("user_id", Text),
)
"""The aliases whose set of holders changes, with the only holder before and after; null: none, or several."""

CHANGED_FILL = _keyed(
    "changed_fill", Column("user_id", Text, primary_key=True), Column("user_alias", Text, primary_key=True)
)
"""The users that changed fills name, by id or alias."""

BINDING_DELTA = _keyed(
    "binding_delta",
    Column("user_alias", Text, primary_key=True),
    Column("source_id", Integer, primary_key=True, autoincrement=False),
    Column("user_id", Text, primary_key=True),
    Column("change", SmallInteger, nullable=False),
)
"""The bindings of disabling fills that are added and removed."""

FILLED_USER = _keyed(
    "filled_user",
    Column("user_id", Text, primary_key=True),
    Column("disabled", Boolean, nullable=False),
    Column("payload", Text, nullable=False),
    Column("digest", Text, nullable=False),
)
"""The changed users to whom fills add something, with that."""

NAME_DELTA = Table(
    "refresh_name_delta",
    TEMPORARY,
    Column("change", SmallInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("organization_id", Text, nullable=False),
    Column("item_id", Text, nullable=False),
    prefixes=["TEMPORARY"],
)
"""The search names that are added and removed."""
