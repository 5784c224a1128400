"""The directory's sources: how each was last read, and its last good records.

Each kind of record has a table ``source_<kind>`` with the columns of its access table, the alias by which it names a
user, the source, the object of the source and the rule that it was made from and by, and the place where it stood when
it last changed. They hold all that the sources say, wrong or right; the access model is what remains of them after
merging.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, PrimaryKeyConstraint, String, Table, Text, text
from sqlalchemy.types import TypeEngine
from sqlmodel import Field

from app.access.kinds import KINDS_BY_REFERENCE, RecordKind
from app.access.record_tables import NO_ALIASES, kept_fields
from app.access.records import Sort
from app.foundation.database.tables import METADATA, StoreTable


class DirectorySourceRow(StoreTable, table=True):
    """One source, by its name in the configuration."""

    __tablename__ = "directory_source"

    source_id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True)
    position: int
    """Its position in the configuration as of the last refresh; of the sources that give a key, the lowest owns it."""
    reads_begun: int = Field(default=0, sa_type=BigInteger)
    """Each read takes the next number, so that of two reads at the same time the one that began last wins."""
    read_in_force: int = Field(default=0, sa_type=BigInteger)
    """The number of the read whose records are kept; 0: never read well."""
    records: int = Field(default=0, sa_type=BigInteger)
    """How many records are kept."""
    malformed: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})
    """How many records of the last read could not be understood."""
    last_verdict: str = ""
    """complete, partial, failed; empty before the first read."""
    last_reason: str = ""
    last_read_at: int | None = Field(default=None, sa_type=BigInteger)
    last_good_at: int | None = Field(default=None, sa_type=BigInteger)
    """When it was last read completely or partially."""
    last_complete_at: int | None = Field(default=None, sa_type=BigInteger)
    last_answered: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """What the last read was about: empty: everything; ``changes`` or ``part``."""
    last_read_ms: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})
    """How many milliseconds the last read took."""
    cursor: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """From where changes can be asked for next: the kept records are as of it. Empty: only everything can be."""
    settings_digest: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """Of the settings under which the cursor was given."""
    last_full_at: int | None = Field(default=None, sa_type=BigInteger)
    """When it was last read completely as a whole."""
    refused: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """Why what it gave last is not taken although it was whole; empty: it is, or it was not whole."""
    last_refusal: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """What was last refused, of its records by us or of our cursor by it."""
    last_refused_at: int | None = Field(default=None, sa_type=BigInteger)
    login_refused: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})
    """Whether the last read failed because the source refused the name or the password."""
    polled_at: int | None = Field(default=None, sa_type=BigInteger)
    """When a worker last set out to ask it for changes between syncs."""


class DirectoryStateRow(StoreTable, table=True):
    """One row, which refreshes lock."""

    __tablename__ = "directory_state"

    state_id: int = Field(default=1, primary_key=True)
    merge_all: bool = Field(default=False)
    """Whether the next refresh merges all keys: after an upgrade, or if a push moved sources in their order."""
    changes: int = Field(default=0, sa_type=BigInteger)
    """How many transactions changed records of sources, or the order of the sources."""
    counted_changes: int = Field(default=-1, sa_type=BigInteger, sa_column_kwargs={"server_default": "-1"})
    """``changes`` when problems were last counted; see ``app.access.stored_problems``."""
    counted_revision: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})
    """The revision at which they were counted."""
    counted_at: int | None = Field(default=None, sa_type=BigInteger)
    """When, in epoch milliseconds; None: never."""


class FillBindingRow(StoreTable, table=True):
    """A user whom a source disabled by an alias, for as long as the source disables that alias; see
    ``app.access.refresh.users``."""

    __tablename__ = "fill_binding"
    __table_args__ = (Index(None, "user_id"), {"sqlite_with_rowid": False})

    user_alias: str = Field(primary_key=True)
    source_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    user_id: str = Field(primary_key=True)


class ProblemCountRow(StoreTable, table=True):
    """How many problems of a sort a source has; none: no row. See ``app.access.stored_problems``."""

    __tablename__ = "problem_count"
    __table_args__ = ({"sqlite_with_rowid": False},)

    source_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    """0: no source alone has them."""
    sort: str = Field(primary_key=True)
    """A ``ProblemSort`` or ``UnclearDisabling`` of ``app.access.problems``."""
    by_read: bool = Field(primary_key=True)
    """Whether a read of the source found them; otherwise they were counted."""
    problems: int = Field(sa_type=BigInteger)
    since: int = Field(sa_type=BigInteger)
    """When the first of them was found, in epoch milliseconds."""


class ProblemRow(StoreTable, table=True):
    """One of the first hundred problems of a source and sort; the fields of ``app.access.problems.Problem``."""

    __tablename__ = "problem"
    __table_args__ = ({"sqlite_with_rowid": False},)

    source_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    sort: str = Field(primary_key=True)
    by_read: bool = Field(primary_key=True)
    ordinal: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    """From 1 on."""
    kind: str
    """Of the record; empty: it could not be understood."""
    key: str
    """The values of the record's key, as a JSON list."""
    cause: str
    detail: str
    """The values of the sentence, as a JSON list."""
    place: str
    """Where the record is in the source; may be empty."""
    origin: str
    """The object of the source, if a read found the problem; may be empty."""


_MAX_ORIGIN_BYTES = 64
"""The longest origin that is kept as it is. It stands in the key, and must fit into one index entry of PostgreSQL
(2,704 bytes) beside five ids of 512."""

_BETWEEN = "\x1f"


def origin_text(object_set: str, object_id: str) -> str:
    """How an object of a source stands in the column ``origin``: its set and its id; a long or odd one as a digest."""
    origin = f"{object_set}{_BETWEEN}{object_id}"
    data = origin.encode(errors="surrogatepass")
    if len(data) <= _MAX_ORIGIN_BYTES and "\0" not in origin and data == origin.encode(errors="replace"):
        return origin
    digest = blake2b(data, digest_size=16).hexdigest()
    shown = object_set.replace("\0", "").encode(errors="ignore")[:16].decode(errors="ignore")
    return f"{shown}{_BETWEEN}#{digest}"


def object_of_origin(origin: str) -> tuple[str, str]:
    """The set and the id of an origin, empty where the source has no objects; of a long id its digest after a ``#``."""
    object_set, _, object_id = origin.partition(_BETWEEN)
    return object_set, object_id


_TYPES: dict[Sort, TypeEngine[Any]] = {Sort.FLAG: Boolean(), Sort.TIME: BigInteger()}
"""Sort of value → type of its column; the others are texts."""


def record_columns(kind: RecordKind) -> list[Column[object]]:
    """New columns for what a record says, in the order of the values that the codecs make of it."""
    columns: list[Column[object]] = []
    for field in kept_fields(kind):
        default = {Sort.ALIAS: "", Sort.ALIASES: NO_ALIASES}.get(field.sort)
        columns.append(
            Column(
                field.attribute,
                _TYPES.get(field.sort, String()),
                nullable=field.sort is Sort.TIME,
                server_default=default,
            )
        )
    if kind.carries:
        columns += [Column("payload", String(), nullable=False), Column("digest", String(), nullable=False)]
    return columns


def access_keys(kind: RecordKind) -> tuple[str, ...]:
    """The columns that identify a record in the access model."""
    return tuple(field.attribute for field in kind.keys if field.sort is not Sort.ALIAS)


def written_keys(kind: RecordKind) -> tuple[str, ...]:
    """The columns that identify a record as its source writes it: by a user's id or alias."""
    return (*access_keys(kind), *(("user_alias",) if kind.names_user else ()), "source_id")


def source_keys(kind: RecordKind) -> tuple[str, ...]:
    """The columns that identify one of a source's records."""
    return (*written_keys(kind), "origin", "rule")


_LOOKED_UP_BY: dict[str, Sequence[tuple[tuple[str, ...], str]]] = {
    "folder": [(("organization_id", "parent_folder_id"), "")],
    "document": [(("organization_id", "folder_id"), "folder_id <> ''")],
    "membership": [(("user_id",), "user_id <> ''")],
    "groupMember": [
        (("user_id",), "user_id <> ''"),
        (("organization_id", "member_group_id"), "member_group_id <> ''"),
    ],
    "grant": [
        (("user_id",), "user_id <> ''"),
        (("organization_id", "organization_user_group_id"), "organization_user_group_id <> ''"),
    ],
    "contextGrant": [
        (("user_id",), "user_id <> ''"),
        (("organization_id", "document_id"), "document_id <> ''"),
    ],
    "fill": [(("source_id", "user_alias"), "disabled")],
}
"""kind → columns by which those are found that refer to a record, where that is not the beginning of the key; and which
rows have such a reference at all."""


def _source_table(kind: RecordKind, name: str) -> Table:
    columns = record_columns(kind)
    table = Table(
        name,
        METADATA,
        *columns,
        Column("source_id", Integer, nullable=False, autoincrement=False),
        Column("origin", String(), nullable=False, server_default=""),
        Column("rule", String(), nullable=False, server_default=""),
        Column("place", Text, nullable=False),
        # The key is most of the row, so storing it once, in order, halves the size and the time.
        sqlite_with_rowid=False,
    )
    table.append_constraint(PrimaryKeyConstraint(*source_keys(kind)))
    looked_up_by = [*_LOOKED_UP_BY.get(kind.name, ()), (("source_id", "origin"), "origin <> ''")]
    if kind.names_user:
        looked_up_by.append((("user_alias",), "user_alias <> ''"))
    for names, rows in looked_up_by:
        where = text(rows) if rows else None
        Index(None, *(table.c[one] for one in names), sqlite_where=where, postgresql_where=where)
    return table


_NAMES = {"groupMember": "group_member", "contextGrant": "context_grant"}

SOURCE_TABLES = {
    kind.name: _source_table(kind, f"source_{_NAMES.get(kind.name, kind.name)}") for kind in KINDS_BY_REFERENCE
}
"""kind → its table of the sources' records."""
