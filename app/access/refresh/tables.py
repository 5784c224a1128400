"""The temporary tables of a refresh, and the placeholders of its statements.

The tables belong to one connection, so filling them locks nothing. For each kind of record there are:

================  ================================================================  ==============================
table             contents                                                          filled by
================  ================================================================  ==============================
``staged``        the records that were just read, in the order of reading          ``staging``, ``source_changes``
``source_delta``  the rows of ``source_<kind>`` to add, update and remove           ``source_changes``, ``pushes``,
                                                                                    ``pushed_keys``
``changed``       the keys of the access model to merge again                       ``merge``
``merged``        the rows of the access model under these keys, as they are to be  ``merge``
``delta``         the rows of the access model to add, update and remove            ``merge``
================  ================================================================  ==============================

The functions of a refresh hand over their results in these tables.

Statements about a kind are SQL text with these placeholders. They are the only parts that differ from kind to kind:

===================  =================================================================================
``{kind}``           the name of the kind
``{source}``         the table ``source_<kind>``; ``{model}``, ``{staged}``, ``{changed}`` … are the others
``{keys}``           the key of the access model: ``organization_id, folder_id``
``{keys:s}``         the same as columns of ``s``: ``s.organization_id, s.folder_id``
``{keys:s=c}``       the same as a condition: ``s.organization_id = c.organization_id AND s.folder_id = c.folder_id``
``{other_keys}``     the key without ``user_id``, of kinds that refer to users
``{written_keys}``   the key as a source writes it: with ``user_alias`` and ``source_id``
``{pushed_keys}``    the same without ``source_id``; ``{pushed_values}``: their values in the JSON list ``key``
``{source_keys}``    the same as ``{written_keys}`` with ``origin`` and ``rule``: the key of ``source_<kind>``
``{columns}``        all columns of the access model; ``{source_columns}``: of ``source`` and ``staged``
``{merged_columns}`` all columns of ``merged``: those of the access model, and of users their aliases
``{disabled_row}``   the columns of the source's row ``s``, with ``disabled`` true
``{values}``         the columns beside the key, of kinds that refer to users; ``{combined}``: of several rows
``{organization}``   ``organization_id``, or ``''`` for kinds that belong to none; ``{item}``: the record's own id
``{content}``        columns that differ if two rows of the access model differ; the digest represents the payload
``{source_content}`` the same of two rows of a source
``{add}``            a value of the column ``change`` (``RowChange``); likewise ``{update}``, ``{remove}``, ``{owner}``
``{rows}``           the table that the caller names
===================  =================================================================================
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from typing import Any

from sqlalchemy import (
    BigInteger,
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
from app.access.records import User
from app.access.source_tables import SOURCE_TABLES, pushed_keys, source_keys, written_keys
from app.access.tables import ACCESS_TABLES, access_keys
from app.foundation.database.statements import run


class RowChange(IntEnum):
    """The change of a row."""

    ADD = 1
    UPDATE = 2
    REMOVE = 3
    OWNER = 4
    """Another source provides the same content. The row is stored, but the access model does not change."""


CHANGE_PARTS: Mapping[str, str] = {change.name.lower(): str(int(change)) for change in RowChange}
"""The placeholders ``{add}``, ``{update}``, ``{remove}`` and ``{owner}`` of statements, with their values."""


class Columns(tuple[str, ...]):
    """Names of columns. The format specification is described at the head of this module."""

    __slots__ = ()

    def __format__(self, specification: str) -> str:
        left, _, right = specification.partition("=")
        if right:
            return " AND ".join(f"{left}.{name} = {right}.{name}" for name in self)
        return ", ".join(f"{left}.{name}" if left else name for name in self) or "''"


class _ListedValues(Columns):
    """The values of these columns in a JSON list, which is in the column ``key``."""

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
        return Columns(pushed_keys(self.record_kind))

    @cached_property
    def source_keys(self) -> Columns:
        """The columns that identify one of a source's records, with the object and rule that it was made from."""
        return Columns(source_keys(self.record_kind))

    @cached_property
    def source_columns(self) -> Columns:
        """The columns of a record of a source, in the order of its values."""
        return Columns(column.name for column in self.source.columns)

    @property
    def may_be_disabled(self) -> bool:
        return "disabled" in self.source.c

    @cached_property
    def names(self) -> dict[str, object]:
        """The placeholders."""
        without_content = {*self.source_keys, "payload", "place"}
        return {
            "kind": self.kind,
            "source": self.source.name,
            "staged": self.staged.name,
            "source_delta": self.source_delta.name,
            "keys": self.keys,
            "other_keys": Columns(name for name in self.keys if name != "user_id"),
            "written_keys": self.written_keys,
            "pushed_keys": self.pushed_keys,
            "pushed_values": _ListedValues(self.pushed_keys),
            "source_keys": self.source_keys,
            "source_columns": self.source_columns,
            "disabled_row": ", ".join("TRUE" if name == "disabled" else f"s.{name}" for name in self.source_columns),
            # With a column of the key, so that it is never empty.
            "source_content": Columns((self.keys[0], *(n for n in self.source_columns if n not in without_content))),
            **CHANGE_PARTS,
        }

    def text(self, statement: str, *, rows: str = "") -> str:
        """The statement for this kind."""
        return _render(self, statement, rows)

    def run(
        self,
        connection: Connection,
        statement: str,
        parameters: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
        *,
        rows: str = "",
    ) -> CursorResult[*tuple[Any, ...]]:
        """Executes the statement for this kind. See ``app.foundation.database.statements.run``."""
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
        without_content = {*self.keys, "payload", "source_id"}
        return super().names | {
            "model": self.model.name,
            "changed": self.changed.name,
            "merged": self.merged.name,
            "delta": self.delta.name,
            "columns": columns,
            "merged_columns": Columns(column.name for column in self.merged.columns),
            "values": Columns(name for name in columns if name not in self.keys),
            "combined": ", ".join(_COMBINED.get(name, name) for name in columns if name not in self.keys),
            "organization": Columns(["organization_id"] if len(self.keys) > 1 else []),
            "item": Columns([self.keys[-1]]),
            "content": Columns((self.keys[0], *(name for name in columns if name not in without_content))),
        }


_COMBINED = {
    "source_id": "n.source_id",
    # Editor is before viewer in the alphabet.
    "access_role": "MIN(access_role)",
    "expires_at": "CASE WHEN COUNT(expires_at) < COUNT(*) THEN NULL ELSE MAX(expires_at) END",
}
"""Column → its value from several rows of one source: the most permissive role, the latest end or none."""


@cache
def _render(tables: RefreshTables, statement: str, rows: str) -> str:
    return statement.format(**tables.names, rows=tables.names.get(rows, rows))


_TEMPORARY = MetaData()


def _temporary(name: str, *columns: Column[Any], key: Sequence[str] = ()) -> Table:
    return Table(
        f"refresh_{name}",
        _TEMPORARY,
        *columns,
        *([PrimaryKeyConstraint(*key)] if key else []),
        prefixes=["TEMPORARY"],
        sqlite_with_rowid=not key,
    )


def _copies(table: Table, names: Sequence[str]) -> list[Column[Any]]:
    return [
        Column(column.name, column.type, nullable=column.nullable, server_default=column.server_default)
        for column in (table.c[name] for name in names)
    ]


def _delta(name: str, table: Table, key: Sequence[str]) -> Table:
    return _temporary(name, *_copies(table, key), Column("change", SmallInteger, nullable=False), key=key)


def _make_tables(kind: RecordKind) -> RefreshTables:
    source = SOURCE_TABLES[kind.name]
    suffix = source.name.removeprefix("source_")
    staged = _temporary(
        f"staged_{suffix}",
        Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        *_copies(source, source.columns.keys()),
    )
    index = Index(f"ix_refresh_staged_{suffix}", *(staged.c[name] for name in (*source_keys(kind), "seq")))
    source_delta = _delta(f"source_delta_{suffix}", source, source_keys(kind))
    if kind.name not in ACCESS_TABLES:
        return RefreshTables(kind, source, staged, index, source_delta)
    model, keys = ACCESS_TABLES[kind.name], access_keys(kind)
    aliases = [Column("aliases", Text, nullable=False)] if kind.name == User.kind else []
    return ModelTables(
        kind,
        source,
        staged,
        index,
        source_delta,
        model=model,
        changed=_temporary(f"changed_{suffix}", *_copies(model, keys), key=keys),
        merged=_temporary(f"merged_{suffix}", *_copies(model, model.columns.keys()), *aliases, key=keys),
        delta=_delta(f"delta_{suffix}", model, keys),
    )


REFRESH_TABLES: Sequence[RefreshTables] = tuple(map(_make_tables, KINDS_BY_REFERENCE))
"""One per kind, referred-to kinds first."""

REFRESH_TABLES_OF_KIND = {tables.kind: tables for tables in REFRESH_TABLES}

MODEL_TABLES: Sequence[ModelTables] = tuple(tables for tables in REFRESH_TABLES if isinstance(tables, ModelTables))
"""The tables of the kinds that the access model contains."""

MODEL_TABLES_OF_KIND = {tables.kind: tables for tables in MODEL_TABLES}

OTHER_TABLES = {
    # The objects whose records a read of changes, or of a part, replaces.
    "refresh_reread_object": "source_id INTEGER, origin TEXT, PRIMARY KEY (source_id, origin)",
    # Objects that a read could not convert: what they provided before is kept, disabled if the object is.
    "refresh_malformed_object": "source_id INTEGER, origin TEXT, disabled BOOLEAN, PRIMARY KEY (source_id, origin)",
    # Staged records of one kind with the number of the later record that replaces them.
    "refresh_replaced": "seq BIGINT PRIMARY KEY, last_seq BIGINT",
    # The aliases of the changed users, as they are to be.
    "refresh_user_alias": "alias TEXT, user_id TEXT, PRIMARY KEY (alias, user_id)",
    # The aliases that are added to the access model and removed from it.
    "refresh_alias_delta": "alias TEXT, user_id TEXT, change SMALLINT, PRIMARY KEY (alias, user_id)",
    # The aliases whose set of holders changes, with the only holder before and after; null: none, or several.
    "refresh_changed_alias": "alias TEXT PRIMARY KEY, former_user_id TEXT, user_id TEXT",
    # The users that changed fills name, by id or alias.
    "refresh_changed_fill": "user_id TEXT, user_alias TEXT, PRIMARY KEY (user_id, user_alias)",
    # The bindings of disabling fills that are added and removed.
    "refresh_binding_delta": (
        "user_alias TEXT, source_id INTEGER, user_id TEXT, change SMALLINT,"
        " PRIMARY KEY (user_alias, source_id, user_id)"
    ),
    # The changed users to whom fills add fields, with these.
    "refresh_filled_user": "user_id TEXT PRIMARY KEY, disabled BOOLEAN, payload TEXT, digest TEXT",
    # The search names that are added and removed.
    "refresh_name_delta": "change SMALLINT, kind TEXT, name TEXT, organization_id TEXT, item_id TEXT",
}
"""The tables that are not about one kind, with their columns."""

TABLES_BY_KIND: Sequence[Table] = _TEMPORARY.sorted_tables

TEMPORARY_TABLES = (*(table.name for table in TABLES_BY_KIND), *OTHER_TABLES)
"""The names of all temporary tables, which a session creates on its connection."""
