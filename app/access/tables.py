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
from typing import Any, NamedTuple

from pydantic.alias_generators import to_snake
from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, PrimaryKeyConstraint, String, Table, false, text
from sqlalchemy.types import TypeEngine
from sqlmodel import Field

from app.access.kinds import KINDS_BY_REFERENCE, RecordField, RecordKind
from app.access.records import FieldType, Fill
from app.foundation.database.tables import BYTEWISE, CLUSTERED, METADATA, ONLY_ON, StoreTable

NO_ALIASES = "[]"
"""The value of the column ``aliases``, a sorted JSON list, of a user without aliases."""

_TYPES: Mapping[FieldType, TypeEngine[Any]] = {FieldType.FLAG: Boolean(), FieldType.TIME: BigInteger()}
"""Type of a field → type of its column. The others are texts."""

_ALIAS_DEFAULTS = {FieldType.ALIAS: "", FieldType.ALIASES: NO_ALIASES}
"""The types of the fields with aliases → the default of the column."""


class TableIndex(NamedTuple):
    """An index of a table of records."""

    columns: tuple[str, ...]
    condition: str = ""
    """The condition of its rows in SQL. Empty: all rows."""
    name: str | None = None
    """None: it follows from the columns."""


def access_keys(kind: RecordKind) -> tuple[str, ...]:
    """The columns that identify a record in the access model."""
    return tuple(field.attribute for field in kind.keys if field.type is not FieldType.ALIAS)


def record_table(
    prefix: str,
    kind: RecordKind,
    fields: Iterable[RecordField],
    *columns: Column[Any],
    keys: Sequence[str],
    indexes: Iterable[TableIndex],
    with_rowid: bool = False,
) -> Table:
    """A table of a kind's records: these fields, payload and digest if the kind has them, then the ``columns``.

    The fields are in the order of ``VALUES_FROM_RECORD``. ``with_rowid``: the table is not ``CLUSTERED``.
    """
    table = Table(
        f"{prefix}_{to_snake(kind.name)}",
        METADATA,
        *(
            Column(
                field.attribute,
                _TYPES.get(field.type, String()),
                nullable=field.type is FieldType.TIME,
                server_default=_ALIAS_DEFAULTS.get(field.type),
            )
            for field in fields
        ),
        *(Column(name, String(), nullable=False) for name in ("payload", "digest") if kind.has_extra_fields),
        *columns,
        PrimaryKeyConstraint(*keys),
        sqlite_with_rowid=with_rowid,
    )
    for index in indexes:
        where = text(index.condition) if index.condition else None
        indexed = (table.c[column] for column in index.columns)
        Index(index.name, *indexed, sqlite_where=where, postgresql_where=where)
    return table


_TO_GROUP = "user_id = ''"
_ENDS = "expires_at IS NOT NULL"
_OPEN = "access_type <> '' AND access_type <> 'restricted'"

_INDEXES: Mapping[str, Sequence[TableIndex]] = {
    "membership": [
        TableIndex(("user_id", "organization_id")),
        TableIndex(("expires_at",), _ENDS, name="ix_model_membership_ending"),
    ],
    "groupMember": [
        TableIndex(("organization_id", "user_id", "organization_user_group_id")),
        TableIndex(("organization_id", "member_group_id", "organization_user_group_id")),
        TableIndex(("user_id", "organization_id")),
    ],
    # Lists of what a user may open begin with the folders and documents that their own access type opens.
    "folder": [
        TableIndex(("organization_id", "parent_folder_id", "folder_id"), name="ix_model_folder_within"),
        TableIndex(("organization_id", "access_type", "folder_id"), _OPEN, name="ix_model_folder_open"),
    ],
    "document": [
        TableIndex(("organization_id", "folder_id", "document_id"), name="ix_model_document_within"),
        TableIndex(("organization_id", "access_type", "document_id"), _OPEN, name="ix_model_document_open"),
    ],
    "grant": [
        # Covers the queries for a user's grants, so that they do not read the table.
        TableIndex(("user_id", "organization_id", "folder_id", "document_id", "access_role", "expires_at")),
        # There are far fewer grants to groups than to users. For pages: the grants of a group by folder and document.
        TableIndex(
            ("organization_id", "organization_user_group_id", "folder_id", "document_id"),
            _TO_GROUP,
            name="ix_model_grant_to_group",
        ),
        # For decisions: the grants of groups on one folder or document.
        TableIndex(
            ("organization_id", "folder_id", "document_id", "organization_user_group_id", "access_role", "expires_at"),
            _TO_GROUP,
            name="ix_model_grant_of_groups",
        ),
        TableIndex(("expires_at",), _ENDS, name="ix_model_grant_ending"),
    ],
}

ACCESS_TABLES = {
    kind.name: record_table(
        "model",
        kind,
        [field for field in kind.column_fields if field.type not in _ALIAS_DEFAULTS],
        Column("source_id", Integer, nullable=False, default=0, server_default="0"),
        keys=access_keys(kind),
        indexes=_INDEXES.get(kind.name, ()),
        with_rowid=kind.name in {"organization", "group"},
    )
    for kind in KINDS_BY_REFERENCE
    if kind.name != Fill.kind
}
"""kind → the table of its records, referred-to kinds first. Aliases have a table of their own. Fills have none."""


def _add_bytewise_index(kind: str, *columns: str) -> None:
    """Adds an index for pages of lists, which are in the order of the bytes of the ids. On PostgreSQL, other indexes
    have the order of the locale."""
    table = ACCESS_TABLES[kind]
    Index(
        f"ix_{table.name}_bytes",
        *(table.c[name] for name in columns),
        postgresql_ops={columns[-1]: 'COLLATE "C"'},
        info={ONLY_ON: "postgresql"},
    ).ddl_if(dialect="postgresql")


_add_bytewise_index("user", "user_id")
_add_bytewise_index("membership", "organization_id", "user_id")
_add_bytewise_index("folder", "organization_id", "folder_id")
_add_bytewise_index("document", "organization_id", "document_id")


class ModelUserAliasRow(StoreTable, table=True):
    """An alias of a user, case-folded. Records cannot refer to a user by an alias of several users."""

    __table_args__ = (Index(None, "user_id"), CLUSTERED)

    alias: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)


class FormerPayloadRow(StoreTable, table=True):
    """The payload of a record before it was changed or removed. See ``app.access.refresh.model_changes``."""

    __table_args__ = (CLUSTERED,)

    kind: str = Field(primary_key=True)
    """organization, user, group, folder or document."""
    organization_id: str = Field(primary_key=True)
    """Empty for organizations themselves and for users."""
    item_id: str = Field(primary_key=True)
    digest: str = Field(primary_key=True)
    payload: str


class AccessCountRow(StoreTable, table=True):
    """The number of records of a kind in the access model. Refreshes update it by their changes."""

    __table_args__ = (CLUSTERED,)

    organization_id: str = Field(primary_key=True)
    """Empty: the total, including users and organizations."""
    kind: str = Field(primary_key=True)
    records: int = Field(sa_type=BigInteger)
    """Never 0 for an organization."""


class AccessNameRow(StoreTable, table=True):
    """A name by which a record of the access model is found. See ``app.access.search``."""

    __table_args__ = (CLUSTERED,)

    kind: str = Field(primary_key=True)
    """organization, user, group, folder or document."""
    name: str = Field(sa_column=Column(BYTEWISE, primary_key=True))
    """Without case and accents, 64 characters at most."""
    organization_id: str = Field(primary_key=True)
    """Empty for organizations themselves and for users."""
    item_id: str = Field(primary_key=True)


class RevisionRow(StoreTable, table=True):
    """The revisions of the access model. The highest one is the current one. No row: never read."""

    __tablename__ = "access_revision"

    revision: int = Field(primary_key=True, sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)
    changes: str
    """The changes of this revision, as JSON: kind → {added, updated, removed}."""
    logged: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    """Whether ``access_change`` contains all changes of this revision."""


class AccessChangeRow(StoreTable, table=True):
    """An entry of the index that a revision changes. See ``app.access.refresh.change_log``."""

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
    """The resource or the group of a grant. For a context grant: group, field, value and document, as a JSON list."""
