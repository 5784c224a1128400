"""The settings of directories in databases."""

from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator
from sqlalchemy import URL

from app.directory.connectors.sql.query import KINDS_BY_PLURAL, Query
from app.directory.connectors.sql.snapshot import parse_source_url
from app.directory.connectors.sql.statement import tidy
from app.directory.mapping.settings import RuleList
from app.directory.spelling import meant


def _usable_url(url: SecretStr) -> SecretStr:
    parse_source_url(url.get_secret_value())
    return url


def _usable_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError("not a time zone; write UTC, Europe/Berlin or the like") from None
    return name


def _columns(given: object) -> object:
    """``key: id`` is short for ``key: [id]``."""
    return [given] if isinstance(given, str) else given


def _deleted(given: object) -> object:
    """``false`` is a word of its own: rows are not deleted, or nobody needs to know before the next full read."""
    if isinstance(given, str) and len(given.split()) > 1:
        return tidy(given)
    return given


Column = Annotated[str, Field(min_length=1, max_length=200)]


# The length stands beside the pattern: the regular expression of a hundred letters of any alphabet takes 10 MB.
QueryName = Annotated[str, Field(pattern=r"^[A-Za-z]\w*$", max_length=100)]


class QuerySettings(BaseModel):
    """A query, and what tells its rows apart and new ones from old ones. A text alone is its ``query``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    query: Annotated[str, AfterValidator(tidy)]
    """One SELECT, which may stand in parentheses."""
    key: Annotated[tuple[Column, ...], BeforeValidator(_columns)] = ()
    """The columns that identify a row for good. Without it: of a query that is called after a kind those that identify
    its records; of another the column ``id``, or else the row as a whole."""
    cursor: Column | None = None
    """A column that grows with every change of a row, as a time or a number: it makes the source tell changes."""
    deleted: Annotated[str | Literal[False] | None, BeforeValidator(_deleted)] = None
    """With a cursor: the column that says that a row is gone (true, or a time), or a SELECT of the key and the cursor
    of rows that are; false: rows are never deleted, or it may wait for the next full read."""
    overlap: int = Field(default=300, ge=0, le=7 * 24 * 3600)
    """How far before the cursor rows are read again: seconds, or so many numbers; longer than the longest transaction
    that writes them."""

    @model_validator(mode="after")
    def _fits(self) -> "QuerySettings":
        if self.cursor is None and self.deleted is not None:
            raise ValueError("deleted belongs to a cursor: without one everything is read each time")
        if self.cursor is not None and self.deleted is None:
            raise ValueError(
                "a cursor tells what was changed, and not what was deleted; name in deleted a column or a SELECT that"
                " does, or write deleted: false if that may wait for the next full read"
            )
        return self


def _query(given: object) -> object:
    return {"query": given} if isinstance(given, str) else given


class SqlSettings(BaseModel):
    """What a source of type ``sql`` has beside what every source has: queries whose rows are records, or objects of
    which rules make some."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["sql"]
    """Which sort of source this is."""
    name: str = Field(min_length=1, max_length=200)
    """What the source is called in reports and for ``--accept-empty``."""
    url: Annotated[SecretStr, AfterValidator(_usable_url)]
    """Any URL of SQLAlchemy; ``postgresql://`` and ``mysql://`` (MariaDB, too) have their drivers in extras."""
    queries: Annotated[
        dict[QueryName, Annotated[QuerySettings, BeforeValidator(_query)]],
        Field(min_length=1),
    ]
    """Name → query. One that is called as a list of records in a file is (``documents``, ``grants``) gives such
    records, with columns named as their fields; others give objects to rules."""
    map: RuleList = ()
    """Rules, which make records of the rows of the other queries (``app/directory/mapping/README.md``)."""
    null_is_absent: frozenset[Literal["expiresAt", "accessType"]] = frozenset()
    """The columns in which NULL means that the record does not have the field: no end in ``expiresAt``, inherited in
    ``accessType``. In all other columns that decide about access, NULL makes the row malformed."""
    timezone: Annotated[str, AfterValidator(_usable_zone)] = "UTC"
    """The time zone of times in the database that have none."""
    connect_timeout: float = Field(default=10, ge=1, le=600)
    """Seconds that connecting may take."""
    answer_timeout: float = Field(default=300, ge=1, le=24 * 3600)
    """Seconds that the database may take to answer a query, and then for each of its next rows."""

    @model_validator(mode="after")
    def _queries_fit(self) -> "SqlSettings":
        for name, query in self.queries.items():
            if name in KINDS_BY_PLURAL:
                continue
            near = meant(name, KINDS_BY_PLURAL)
            if near is not None:
                raise ValueError(f"queries.{name}: is not a list of records; did you mean {near}?")
            self._check_object_query(name, query)
        for number, rule in enumerate(self.map, start=1):
            if rule.from_ not in self.queries or rule.from_ in KINDS_BY_PLURAL:
                raise ValueError(f"map, rule {number}: there is no query {rule.from_!r} whose rows are objects")
            if rule.each is not None:
                raise ValueError(f"map, rule {number}: rows have no members; write each: of LDAP's groups only")
        without = [name for name, query in self.queries.items() if query.cursor is None]
        if without and len(without) < len(self.queries):
            raise ValueError(
                f"queries.{without[0]}: has no cursor while others have; a source tells of all changes or of none: give"
                " it one, or put it into a source of its own"
            )
        return self

    def _check_object_query(self, name: str, query: QuerySettings) -> None:
        if query.cursor is not None and not query.key:
            raise ValueError(f"queries.{name}: with a cursor it needs key, the column that identifies a row for good")
        if all(rule.from_ != name for rule in self.map):
            raise ValueError(
                f"queries.{name}: is not called as a list of records is ({', '.join(KINDS_BY_PLURAL)}), and no rule of"
                " map is from it"
            )

    @property
    def database(self) -> str:
        """Which database it is, without a secret."""
        url = parse_source_url(self.url.get_secret_value())
        return URL.create(url.get_backend_name(), None, None, url.host, url.port, url.database).render_as_string()

    def made_queries(self) -> list[Query]:
        """The queries, for the reader; records first, in the order of the kinds."""
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
