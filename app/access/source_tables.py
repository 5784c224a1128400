"""The tables of the sources: how each was last read, its records, their problems, what is pushed, and what is pending.

Each kind of record has a table ``source_<kind>``. Its columns are those of the table of the access model, the alias by
which the record names a user, the source, the object and the rule that the record was made from, and its place in the
source when it last changed. The tables contain all records of the sources, right or wrong. Merged, they are the access
model.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from sqlalchemy import BigInteger, Column, Index, Integer, String, Text, text
from sqlmodel import Field

from app.access.kinds import KINDS_BY_REFERENCE, RecordKind
from app.access.records import ORIGIN_SEPARATOR
from app.access.tables import TableIndex, access_keys, record_table
from app.foundation.database.tables import CLUSTERED, ZERO, StoreTable


class DirectorySourceRow(StoreTable, table=True):
    """One source, by its name in the configuration."""

    source_id: int | None = Field(default=None, primary_key=True)
    name: str = Field(unique=True)
    position: int
    """Its position in the configuration as of the last refresh. The source with the lowest position owns a key."""
    reads_begun: int = Field(default=0, sa_type=BigInteger)
    """Each read takes the next number. Of two reads at the same time the one that began last wins."""
    read_in_force: int = Field(default=0, sa_type=BigInteger)
    """The number of the read whose records are stored. 0: no read has succeeded."""
    records: int = Field(default=0, sa_type=BigInteger)
    """The number of stored records."""
    malformed: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs=ZERO)
    """The number of malformed records of the last read."""
    last_verdict: str = ""
    """complete, partial, failed. Empty before the first read."""
    last_reason: str = ""
    last_read_at: int | None = Field(default=None, sa_type=BigInteger)
    last_good_at: int | None = Field(default=None, sa_type=BigInteger)
    """When it was last read completely or partially."""
    last_complete_at: int | None = Field(default=None, sa_type=BigInteger)
    last_answered: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """The extent of the last read: ``changes`` or ``part``. Empty for everything."""
    last_read_ms: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs=ZERO)
    """The duration of the last read in milliseconds."""
    cursor: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """The cursor for the next read of changes, as of the stored records. Empty: only complete reads are possible."""
    settings_digest: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """The digest of the settings with which the cursor was stored."""
    last_full_at: int | None = Field(default=None, sa_type=BigInteger)
    """When everything was last read."""
    last_changes: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """What the last read that changed its records changed, as JSON: kind → counts. Empty: none has."""
    last_changed_at: int | None = Field(default=None, sa_type=BigInteger)
    """When that read was."""
    refused: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """Why its last complete read was not used as complete. Otherwise empty."""
    last_refusal: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """The reason of the last refusal: of its records by the guard, or of the cursor by the source."""
    last_refusal_acceptance: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """The option that accepts the read of the last refusal, an ``app.access.refresh.reads.Acceptance``. Empty: none."""
    last_refused_at: int | None = Field(default=None, sa_type=BigInteger)
    login_refused: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})
    """Whether the last read failed because the source refused the name or the password."""
    polled_at: int | None = Field(default=None, sa_type=BigInteger)
    """When a worker last polled it for changes between syncs."""


class DirectoryStateRow(StoreTable, table=True):
    """One row, which refreshes lock."""

    state_id: int = Field(default=1, primary_key=True)
    merge_all: bool = Field(default=False)
    """Whether the next refresh merges all keys: after an upgrade, or if a push moved sources in their order."""
    changes: int = Field(default=0, sa_type=BigInteger)
    """The number of transactions that changed records of sources, or the order of the sources."""
    counted_changes: int = Field(default=-1, sa_type=BigInteger, sa_column_kwargs={"server_default": "-1"})
    """``changes`` when problems were last counted. See ``app.access.stored_problems``."""
    counted_revision: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs=ZERO)
    """The revision at which they were counted."""
    counted_at: int | None = Field(default=None, sa_type=BigInteger)
    """When they were counted, in epoch milliseconds. None: never."""


class FillBindingRow(StoreTable, table=True):
    """A user whom a source disabled by an alias, as long as the source disables that alias. See
    ``app.access.refresh.fills``."""

    __table_args__ = (Index(None, "user_id"), CLUSTERED)

    user_alias: str = Field(primary_key=True)
    source_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    user_id: str = Field(primary_key=True)


class ProblemCountRow(StoreTable, table=True):
    """The number of problems of a sort that a source has, if any. See ``app.access.stored_problems``."""

    __table_args__ = (CLUSTERED,)

    source_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    """0 for problems that do not belong to one source."""
    sort: str = Field(primary_key=True)
    """A ``ProblemSort`` or ``UnclearDisabling`` of ``app.access.problems``."""
    by_read: bool = Field(primary_key=True)
    """Whether a read of the source found them. Otherwise they were counted."""
    problems: int = Field(sa_type=BigInteger)
    since: int = Field(sa_type=BigInteger)
    """When the first of them was found, in epoch milliseconds."""


class ProblemRow(StoreTable, table=True):
    """One of the first hundred problems of a source and sort, as in ``app.access.problems.Problem``."""

    __table_args__ = (CLUSTERED,)

    source_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    sort: str = Field(primary_key=True)
    by_read: bool = Field(primary_key=True)
    ordinal: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    """Its number among them, from 1 on."""
    kind: str
    """The kind of the record. Empty if it could not be read."""
    key: str
    """The values of the record's key, as a JSON list."""
    cause: str
    """A ``ProblemCause``, or the text of a problem without one."""
    detail: str
    """The values of the sentence, as a JSON list."""
    place: str
    """The place of the record in the source. May be empty."""
    origin: str
    """The object of the source, if a read found the problem. May be empty."""


class DirectoryPushRow(StoreTable, table=True):
    """The last push to a source, if there was one."""

    source_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    sequence: int = Field(sa_type=BigInteger)
    answer: str
    """The answer as JSON, for clients that did not receive it and repeat the push. Empty: not stored yet."""
    pushed_at: int = Field(sa_type=BigInteger)
    """When it was applied, in epoch milliseconds."""
    pushed_by: str
    """The fingerprint of the token."""
    pushes: int = Field(sa_type=BigInteger)
    """The number of pushes so far."""
    digests: str = Field(default="[]", sa_column_kwargs={"server_default": "[]"})
    """The sequences of the latest pushes with digests of their content, as a JSON list of pairs."""


class PushedKeyRow(StoreTable, table=True):
    """A key that was pushed or removed since the last complete read of its source."""

    __table_args__ = (CLUSTERED,)

    source_id: int = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    key_digest: str = Field(primary_key=True)
    """BLAKE2b-128 of ``key``: the key itself may be too long for an index."""
    key: str
    """The key's ids as a JSON list, in the order of the columns of its table."""
    read_number: int = Field(sa_type=BigInteger)
    """How many reads of the source had begun: those up to this number do not include the push."""


class ScimResourceRow(StoreTable, table=True):
    """A user or group that a directory pushed with SCIM."""

    __table_args__ = (Index(None, "source_id", "type", "created", "resource_id"), CLUSTERED)

    source_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    resource_id: str = Field(primary_key=True)
    type: str
    """``User`` or ``Group``."""
    created: int = Field(sa_type=BigInteger)
    modified: int = Field(sa_type=BigInteger)
    """Both in epoch milliseconds."""
    version: int = Field(sa_type=BigInteger)
    content: str
    """Its attributes as a JSON object, without ``id``, ``meta``, ``members`` and ``password``."""


class ScimKeyRow(StoreTable, table=True):
    """A value by which a resource is looked up, such as its ``userName``."""

    __table_args__ = (Index(None, "source_id", "resource_id"), CLUSTERED)

    source_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    attribute: str = Field(primary_key=True)
    """``userName``, ``externalId``, ``displayName`` or ``emails``. ``member`` for members that do not exist yet."""
    value: str = Field(primary_key=True)
    """In NFC and lower case, except ``externalId``. A long value is replaced by a digest."""
    resource_id: str = Field(primary_key=True)
    """The resource. For a member that does not exist yet, its name."""


class ScimMemberRow(StoreTable, table=True):
    """A member of a group, as the directory stated it. It may not exist yet."""

    __table_args__ = (Index(None, "source_id", "value", "group_id"), CLUSTERED)

    source_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    group_id: str = Field(primary_key=True)
    value: str = Field(primary_key=True)
    """The id of a resource. Of a member that does not exist yet, any name of it."""
    type: str
    """``User``, ``Group``, or empty."""
    display: str


class TouchedRow(StoreTable, table=True):
    """A pending organization or user. See ``app.access.pending``."""

    __table_args__ = (CLUSTERED,)

    sort: str = Field(primary_key=True)
    """``organization`` or ``user``."""
    item_id: str = Field(primary_key=True)
    since: int = Field(sa_type=BigInteger)
    """When it changed first, in epoch milliseconds."""


_MAX_ORIGIN_BYTES = 64
"""The longest origin that is stored as it is. It is part of the key, which must fit into one index entry of PostgreSQL
(2,704 bytes) with five ids of 512 bytes."""


def origin_text(object_set: str, object_id: str) -> str:
    """The value of the column ``origin`` for an object: its set and its id, or a digest if they cannot be stored."""
    origin = f"{object_set}{ORIGIN_SEPARATOR}{object_id}"
    data = origin.encode(errors="surrogatepass")
    if len(data) <= _MAX_ORIGIN_BYTES and "\0" not in origin and data == origin.encode(errors="replace"):
        return origin
    digest = blake2b(data, digest_size=16).hexdigest()
    short_set = object_set.replace("\0", "").encode(errors="ignore")[:16].decode(errors="ignore")
    return f"{short_set}{ORIGIN_SEPARATOR}#{digest}"


def object_of_origin(origin: str) -> tuple[str, str]:
    """The set and the id of an origin. Both are empty if the source has no objects. Instead of a long id, ``#`` and its
    digest."""
    object_set, _, object_id = origin.partition(ORIGIN_SEPARATOR)
    return object_set, object_id


def pushed_keys(kind: RecordKind) -> tuple[str, ...]:
    """The columns by which pushes identify a record of one source: by a user's id or alias, as the source writes it."""
    return (*access_keys(kind), *(("user_alias",) if kind.may_use_alias else ()))


def written_keys(kind: RecordKind) -> tuple[str, ...]:
    """The columns that identify a record as its source writes it."""
    return (*pushed_keys(kind), "source_id")


def source_keys(kind: RecordKind) -> tuple[str, ...]:
    """The columns that identify one of a source's records, with the object and rule that it was made from."""
    return (*written_keys(kind), "origin", "rule")


_INDEXES: Mapping[str, Sequence[TableIndex]] = {
    "folder": [TableIndex(("organization_id", "parent_folder_id"))],
    "document": [TableIndex(("organization_id", "folder_id"), "folder_id <> ''")],
    "membership": [TableIndex(("user_id",), "user_id <> ''")],
    "groupMember": [
        TableIndex(("user_id",), "user_id <> ''"),
        TableIndex(("organization_id", "member_group_id"), "member_group_id <> ''"),
    ],
    "grant": [
        TableIndex(("user_id",), "user_id <> ''"),
        TableIndex(("organization_id", "organization_user_group_id"), "organization_user_group_id <> ''"),
    ],
    "contextGrant": [
        TableIndex(("user_id",), "user_id <> ''"),
        TableIndex(("organization_id", "document_id"), "document_id <> ''"),
    ],
    "fill": [TableIndex(("source_id", "user_alias"), "disabled")],
}
"""kind → the indexes of its references that do not begin the key."""

_OF_OBJECT = TableIndex(("source_id", "origin"), "origin <> ''")
_OF_ALIAS = TableIndex(("user_alias",), "user_alias <> ''")

SOURCE_TABLES = {
    kind.name: record_table(
        "source",
        kind,
        kind.column_fields,
        Column("source_id", Integer, nullable=False, autoincrement=False),
        Column("origin", String(), nullable=False, server_default=""),
        Column("rule", String(), nullable=False, server_default=""),
        Column("place", Text, nullable=False),
        keys=source_keys(kind),
        indexes=[*_INDEXES.get(kind.name, ()), _OF_OBJECT, *([_OF_ALIAS] if kind.may_use_alias else [])],
    )
    for kind in KINDS_BY_REFERENCE
}
"""kind → the table of its records."""
