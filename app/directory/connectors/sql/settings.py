"""The settings of SQL sources: the database and its queries."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from app.access.kinds import KINDS
from app.directory.casting import KINDS_BY_PLURAL
from app.directory.mapping.settings import RuleList
from app.directory.spelling import intended_name
from app.foundation.configuration.schema import SettingsSection

_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
"""The drivers of the extras, for URLs without a driver."""


def parse_source_url(text: str) -> URL:
    """The URL of a database, with its driver. Raises ``ValueError``, whose message does not contain the URL."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ValueError("not a database URL; write postgresql://USER:PASSWORD@HOST/NAME or the like") from None
    if url.get_backend_name() != "sqlite" and text.count("@") > 1:
        # A part of the password would become the host, which messages show.
        raise ValueError(
            "each @ but the one before the host is written as %40, as in a password (and a / there as %2F)"
        )
    if url.get_backend_name() == "sqlite" and (not url.database or url.database == ":memory:"):
        raise ValueError("a SQLite database needs a file, as in sqlite:////srv/app.db")
    return url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))


_LITERALS = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \$(\w*)\$.*?\$\1\$ | --[^\n]* | /\*.*?\*/""", re.DOTALL | re.VERBOSE
)
"""String literals, quoted names and comments."""


def single_statement(text: str) -> str:
    """The statement without surrounding white space and semicolons.

    Usher puts statements in parentheses. Raises ``ValueError`` for more than one statement, and for unbalanced
    parentheses, with which a part of the text would be outside.
    """
    query = text.strip()
    while query.endswith(";"):
        query = query[:-1].rstrip()
    if not query:
        raise ValueError("is empty; write a SELECT")
    if "\0" in query:
        raise ValueError("contains a NUL character")
    syntax = _LITERALS.sub(" ", query)
    if ";" in syntax:
        raise ValueError("is more than one statement; a query is one SELECT")
    depth = 0
    for parenthesis in re.findall(r"[()]", syntax):
        depth += 1 if parenthesis == "(" else -1
        if depth < 0:
            break
    if depth:
        raise ValueError("has a parenthesis too many or too few")
    return query


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a source, as ``QuerySettings`` configures it."""

    name: str
    text: str
    key: tuple[str, ...] = ()
    """The columns that identify a row, as configured; ``key_among`` has the defaults."""
    cursor: str = ""
    """The column that grows with every change of a row. Empty: no incremental reads."""
    deleted: str = ""
    """The column that marks deleted rows, or a query for the keys of deleted rows. Empty: neither."""
    overlap: int = 0
    """How far before the cursor changes are read again, in seconds or in units of a numeric cursor."""
    null_is_absent: frozenset[str] = frozenset()
    """The fields in which NULL means that the record does not have the field."""

    @property
    def kind(self) -> str | None:
        """The kind of record that a row is. None: a row is an object for rules."""
        return KINDS_BY_PLURAL.get(self.name)

    @property
    def deleted_query(self) -> str:
        """The query for deleted rows. Empty: there is none."""
        return self.deleted if len(self.deleted.split()) > 1 else ""

    @property
    def deleted_column(self) -> str:
        """The column that marks deleted rows. Empty: there is none."""
        return "" if self.deleted_query else self.deleted

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns that the settings name."""
        return tuple(dict.fromkeys(filter(None, (*self.key, self.cursor, self.deleted_column))))

    def key_among(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The key columns: as configured, else the key fields of the kind, else the column ``id``. Empty: no key."""
        if self.key:
            return self.key
        if self.kind is None:
            return ("id",) if "id" in columns else ()
        return tuple(field.name for field in KINDS[self.kind].keys if field.name in columns)


def _usable_url(url: SecretStr) -> SecretStr:
    parse_source_url(url.get_secret_value())
    return url


def _usable_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError("not a time zone; write UTC, Europe/Berlin or the like") from None
    return name


def _columns(value: object) -> object:
    """``key: id`` is short for ``key: [id]``."""
    return [value] if isinstance(value, str) else value


def _deleted(value: object) -> object:
    return single_statement(value) if isinstance(value, str) and len(value.split()) > 1 else value


def _query(value: object) -> object:
    return {"query": value} if isinstance(value, str) else value


Column = Annotated[str, Field(min_length=1, max_length=200)]
Columns = Annotated[tuple[Column, ...], BeforeValidator(_columns)]
TimeZone = Annotated[str, AfterValidator(_usable_zone)]
NullIsAbsent = frozenset[Literal["expiresAt", "accessType"]]

# The length is separate from the pattern: the regular expression of a hundred letters of any alphabet takes 10 MB.
QueryName = Annotated[str, Field(pattern=r"^[A-Za-z]\w*$", max_length=100)]


class QuerySettings(SettingsSection):
    """A query, its key, and its changes. A text alone is its ``query``."""

    query: Annotated[str, AfterValidator(single_statement)]
    """One SELECT that is valid in parentheses."""
    key: Columns = ()
    """The columns that identify a row permanently. Default: the key fields of the records, or the column
    ``id`` of objects, or the whole row."""
    cursor: Column | None = None
    """A column of times or whole numbers that grows with every change of a row. It enables incremental reads."""
    deleted: Annotated[str | Literal[False] | None, BeforeValidator(_deleted)] = None
    """With a cursor: the column that marks deleted rows (true, or a time), or a SELECT of the key and the cursor of
    deleted rows. ``false``: rows are never deleted, or deletions may wait for the next full read."""
    overlap: int = Field(default=300, ge=0, le=7 * 24 * 3600)
    """How far before the cursor rows are read again, in seconds or in units of a numeric cursor. It must exceed the
    longest transaction that writes these rows."""

    @model_validator(mode="after")
    def _cursor_and_deleted_are_set_together(self) -> "QuerySettings":
        if self.cursor is None and self.deleted is not None:
            raise ValueError("deleted belongs to a cursor: without one everything is read each time")
        if self.cursor is not None and self.deleted is None:
            raise ValueError(
                "a cursor finds changed rows, but not deleted ones; set deleted to a column or a SELECT that does, or"
                " write deleted: false if deletions may wait for the next full read"
            )
        return self


class SqlSettings(SettingsSection):
    """The settings of a source of type ``sql``, in addition to those of every source."""

    type: Literal["sql"]
    name: str = Field(min_length=1, max_length=200)
    url: Annotated[SecretStr, AfterValidator(_usable_url)]
    """A URL of SQLAlchemy. The drivers of ``postgresql://`` and ``mysql://`` (also MariaDB) are extras."""
    queries: Annotated[dict[QueryName, Annotated[QuerySettings, BeforeValidator(_query)]], Field(min_length=1)]
    """Name → query. The rows of a query that is named as a list of records (``documents``, ``grants``) are such
    records, with a column per field. The rows of other queries are objects for rules."""
    map: RuleList = ()
    """Rules that make records of the rows of the other queries (``app/directory/mapping/README.md``)."""
    null_is_absent: NullIsAbsent = frozenset()
    """The columns in which NULL means a missing field: no end in ``expiresAt``, inherited in ``accessType``. In other
    columns that decide about access, NULL makes the row malformed."""
    timezone: TimeZone = "UTC"
    """The time zone of times without a zone."""
    connect_timeout: float = Field(default=10, ge=1, le=600)
    """Connect timeout, in seconds."""
    answer_timeout: float = Field(default=300, ge=1, le=24 * 3600)
    """Timeout of a query, and of each fetch of its rows, in seconds."""

    @model_validator(mode="after")
    def _queries_fit(self) -> "SqlSettings":
        for name, query in self.queries.items():
            if name not in KINDS_BY_PLURAL:
                self._check_object_query(name, query)
        for number, rule in enumerate(self.map, start=1):
            if rule.from_ not in self.queries or rule.from_ in KINDS_BY_PLURAL:
                raise ValueError(f"map, rule {number}: there is no query {rule.from_!r} whose rows are objects")
            if rule.each is not None:
                raise ValueError(f"map, rule {number}: rows have no members; each: is for groups of LDAP only")
        without = [name for name, query in self.queries.items() if query.cursor is None]
        if without and len(without) < len(self.queries):
            raise ValueError(
                f"queries.{without[0]}: has no cursor while others have; all queries of a source need one, or none: add"
                " it, or move the query into a source of its own"
            )
        return self

    def _check_object_query(self, name: str, query: QuerySettings) -> None:
        if near := intended_name(name, KINDS_BY_PLURAL):
            raise ValueError(f"queries.{name}: is not a list of records; did you mean {near}?")
        if query.cursor is not None and not query.key:
            raise ValueError(
                f"queries.{name}: with a cursor it needs key, the column that identifies a row permanently"
            )
        if all(rule.from_ != name for rule in self.map):
            raise ValueError(
                f"queries.{name}: is not named as a list of records ({', '.join(KINDS_BY_PLURAL)}), and no rule of map"
                " is from it"
            )

    @property
    def parsed_url(self) -> URL:
        """The URL, with its secrets."""
        return parse_source_url(self.url.get_secret_value())

    @property
    def database(self) -> str:
        """The database without user and password."""
        url = self.parsed_url
        return URL.create(url.get_backend_name(), None, None, url.host, url.port, url.database).render_as_string()

    def ordered_queries(self) -> list[Query]:
        """The queries: first those of records, in the order of the kinds."""
        order = {name: number for number, name in enumerate(KINDS_BY_PLURAL)}
        return [
            Query(
                name=name,
                text=query.query,
                key=query.key,
                cursor=query.cursor or "",
                deleted=query.deleted or "",
                overlap=query.overlap,
                null_is_absent=frozenset(self.null_is_absent),
            )
            for name, query in sorted(self.queries.items(), key=lambda item: order.get(item[0], len(order)))
        ]
