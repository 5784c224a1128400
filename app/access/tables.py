"""The tables of the access model: one for each kind of record, as of the current revision.

For each key they contain what the most authoritative source provides, whether or not the record is effective: what a
record refers to may be missing. ``source_id`` is that source. Only ``app.access.effective`` and the merge may read them
without checking references.

Absent ids are stored as the empty string, so that they can be part of primary keys and compare by ``=``; no real id is
empty. So is an access type that is inherited. ``payload`` contains the record's own id and its descriptive fields,
including unknown ones, as canonical JSON (sorted keys, no spaces). ``digest`` is a hash of it, so that planning need
not parse it. Times are epoch milliseconds, UTC.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, PrimaryKeyConstraint, String, Table, false, text
from sqlalchemy.types import TypeEngine
from sqlmodel import Field

from app.access.kinds import KINDS_BY_REFERENCE, RecordKind
from app.access.records import FieldType, Fill
from app.foundation.database.tables import METADATA, ONLY_ON, StoreTable

KEYED = {"sqlite_with_rowid": False}
"""SQLite stores the rows in the primary key itself: half the size, and one lookup instead of two."""

ZERO = {"server_default": "0"}
"""Arguments of a column that was added later: existing rows get 0."""

NO_ALIASES = "[]"
"""The column ``aliases`` of a user without aliases; it contains a sorted JSON list."""

_TYPES: Mapping[FieldType, TypeEngine[Any]] = {FieldType.FLAG: Boolean(), FieldType.TIME: BigInteger()}
"""Type of a field → type of its column; the others are texts."""

_DEFAULTS = {FieldType.ALIAS: "", FieldType.ALIASES: NO_ALIASES}

TableIndex = tuple[str | None, Sequence[str], str]
"""The name of an index (None: from its columns), its columns, and the condition of its rows, or empty text."""


def access_keys(kind: RecordKind) -> tuple[str, ...]:
    """The columns that identify a record in the access model."""
    return tuple(field.attribute for field in kind.keys if field.type is not FieldType.ALIAS)


def record_table(
    prefix: str,
    kind: RecordKind,
    *columns: Column[Any],
    keys: Sequence[str],
    indexes: Iterable[TableIndex],
    has_aliases: bool,
    with_rowid: bool = False,
) -> Table:
    """A table of a kind's records: their fields, in the order of ``VALUES_FROM_RECORD``, then the ``columns``.

    ``has_aliases``: with the columns of aliases. ``with_rowid``: see ``KEYED``.
    """
    table = Table(
        f"{prefix}_{kind.snake_name}",
        METADATA,
        *(
            Column(
                field.attribute,
                _TYPES.get(field.type, String()),
                nullable=field.type is FieldType.TIME,
                server_default=_DEFAULTS.get(field.type),
            )
            for field in kind.column_fields
            if has_aliases or field.type not in _DEFAULTS
        ),
        *(Column(name, String(), nullable=False) for name in ("payload", "digest") if kind.carries),
        *columns,
        PrimaryKeyConstraint(*keys),
        sqlite_with_rowid=with_rowid,
    )
    for name, indexed, condition in indexes:
        where = text(condition) if condition else None
        Index(name, *(table.c[column] for column in indexed), sqlite_where=where, postgresql_where=where)
    return table


_TO_GROUP = "user_id = ''"
_ENDS = "expires_at IS NOT NULL"
_OPEN = "access_type <> '' AND access_type <> 'restricted'"

_INDEXES: Mapping[str, Sequence[TableIndex]] = {
    "membership": [
        (None, ("user_id", "organization_id"), ""),
        ("ix_model_membership_ending", ("expires_at",), _ENDS),
    ],
    "groupMember": [
        (None, ("organization_id", "user_id", "organization_user_group_id"), ""),
        (None, ("organization_id", "member_group_id", "organization_user_group_id"), ""),
        (None, ("user_id", "organization_id"), ""),
    ],
    # Lists of what a user may open begin with the folders and documents that their own access type opens.
    "folder": [
        ("ix_model_folder_within", ("organization_id", "parent_folder_id", "folder_id"), ""),
        ("ix_model_folder_open", ("organization_id", "access_type", "folder_id"), _OPEN),
    ],
    "document": [
        ("ix_model_document_within", ("organization_id", "folder_id", "document_id"), ""),
        ("ix_model_document_open", ("organization_id", "access_type", "document_id"), _OPEN),
    ],
    "grant": [
        # Covers the queries for a user's grants, so that they do not read the table.
        (None, ("user_id", "organization_id", "folder_id", "document_id", "access_role", "expires_at"), ""),
        # There are far fewer grants to groups than to users. For pages: the grants of a group by folder and document.
        (
            "ix_model_grant_to_group",
            ("organization_id", "organization_user_group_id", "folder_id", "document_id"),
            _TO_GROUP,
        ),
        # For decisions: the grants of groups on one folder or document.
        (
            "ix_model_grant_of_groups",
            ("organization_id", "folder_id", "document_id", "organization_user_group_id", "access_role", "expires_at"),
            _TO_GROUP,
        ),
        ("ix_model_grant_ending", ("expires_at",), _ENDS),
    ],
}

ACCESS_TABLES = {
    kind.name: record_table(
        "model",
        kind,
        Column("source_id", Integer, nullable=False, default=0, server_default="0"),
        keys=access_keys(kind),
        indexes=_INDEXES.get(kind.name, ()),
        has_aliases=False,
        with_rowid=kind.name in {"organization", "group"},
    )
    for kind in KINDS_BY_REFERENCE
    if kind.name != Fill.kind
}
"""kind → the table of its records, referred-to kinds first. Aliases have a table of their own; fills have none."""

# Pages of lists are in the order of the bytes of the ids. On PostgreSQL, other indexes have the order of the locale.
for _kind, _keys in {
    "user": ("user_id",),
    "membership": ("organization_id", "user_id"),
    "folder": ("organization_id", "folder_id"),
    "document": ("organization_id", "document_id"),
}.items():
    _table = ACCESS_TABLES[_kind]
    _columns = [_table.c[name] for name in _keys]
    Index(
        f"ix_{_table.name}_bytes",
        *_columns,
        postgresql_ops={_keys[-1]: 'COLLATE "C"'},
        info={ONLY_ON: "postgresql"},
    ).ddl_if(dialect="postgresql")


class ModelUserAliasRow(StoreTable, table=True):
    """An alias of a user, case-folded. Records cannot refer to a user by an alias of several users."""

    __table_args__ = (Index(None, "user_id"), KEYED)

    alias: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)


class FormerPayloadRow(StoreTable, table=True):
    """The payload of a record before it was changed or removed; see ``app.access.refresh.merge``."""

    __table_args__ = (KEYED,)

    kind: str = Field(primary_key=True)
    """organization, user, group, folder or document."""
    organization_id: str = Field(primary_key=True)
    """Empty for organizations themselves and for users."""
    item_id: str = Field(primary_key=True)
    digest: str = Field(primary_key=True)
    payload: str


class AccessCountRow(StoreTable, table=True):
    """The number of records of a kind in the access model. Refreshes update it by their changes."""

    __table_args__ = (KEYED,)

    organization_id: str = Field(primary_key=True)
    """Empty: the total, including users and organizations."""
    kind: str = Field(primary_key=True)
    records: int = Field(sa_type=BigInteger)
    """Never 0 for an organization."""


BYTEWISE = String().with_variant(String(collation="C"), "postgresql")
"""A text that is compared byte by byte, so that texts with the same beginning are one range in any locale."""


class AccessNameRow(StoreTable, table=True):
    """A name by which a record of the access model is found; see ``app.access.search``."""

    __table_args__ = (KEYED,)

    kind: str = Field(primary_key=True)
    """organization, user, group, folder or document."""
    name: str = Field(sa_column=Column(BYTEWISE, primary_key=True))
    """Without case and accents, 64 characters at most."""
    organization_id: str = Field(primary_key=True)
    """Empty for organizations themselves and for users."""
    item_id: str = Field(primary_key=True)


class RevisionRow(StoreTable, table=True):
    """The revisions of the access model; the highest one is the current one. No row: never read."""

    __tablename__ = "access_revision"

    revision: int = Field(primary_key=True, sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)
    changes: str
    """The changes of this revision, as JSON: kind → {added, updated, removed}."""
    logged: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    """Whether ``access_change`` contains all changes of this revision."""


class AccessChangeRow(StoreTable, table=True):
    """An entry of the index that a revision changes; see ``app.access.refresh.model_changes``."""

    __table_args__ = (Index(None, "revision", "kind"),)

    change_id: int | None = Field(
        default=None, sa_column=Column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    )
    revision: int = Field(sa_type=BigInteger)
    kind: str
    """The letter of the entry's kind (``app.access.index.layout``)."""
    organization_id: str
    item_id: str
    detail: str
    """Of a grant: the resource or the group. Of a context grant: group, field, value and document, as a JSON list."""
