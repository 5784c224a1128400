"""The SQL source: reads everything, the changes since a cursor, or a part, in one snapshot.

Queries that are named as a list of records (``documents``) yield records. The others yield objects, of which rules make
records. The columns of all queries are checked before the first row is read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import cached_property
from zoneinfo import ZoneInfo

from sqlalchemy import URL

from app.directory.connector import ALL_ATTRIBUTES, Connector, CursorRefusedError, Objects, ReadError, RequestedFields
from app.directory.connectors.sql.changes import (
    Cursor,
    HighWaterMark,
    changed_since,
    check_not_restored,
    deleted_rows,
    ids_of_deleted,
    later,
    newest_rows,
    update_with_deleted,
)
from app.directory.connectors.sql.lookup import RowLookup
from app.directory.connectors.sql.rows import QueryRows, RowStep, Step
from app.directory.connectors.sql.settings import Query
from app.directory.connectors.sql.snapshot import SqlSnapshot, open_snapshot
from app.directory.source import EVERYTHING, Answered, End, MalformedTally, Part, Reading, ReadRequest, Source, Verdict
from app.foundation.clock import utc_now

_COMPLETE = End(Verdict.COMPLETE)


class SqlDatabase:
    """A database and its queries. Each read opens its own connection."""

    def __init__(
        self,
        url: URL,
        queries: Sequence[Query],
        *,
        timezone: str = "UTC",
        connect_timeout: float = 10,
        answer_timeout: float = 300,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """``timezone``: of times without a zone. ``connect_timeout``, ``answer_timeout``: seconds."""
        self._url = url
        self._queries = tuple(queries)
        self._zone = ZoneInfo(timezone)
        self._connect_timeout = connect_timeout
        self._answer_timeout = answer_timeout
        self._clock = clock

    @property
    def has_records(self) -> bool:
        return any(query.kind is not None for query in self._queries)

    @contextmanager
    def open(self, request: ReadRequest, wanted: Mapping[str, frozenset[str]]) -> Iterator["SqlRead"]:
        """A read of the queries of records, and of the queries of ``wanted`` with the columns that rules use.

        Raises ``ReadError``, which includes ``CursorRefusedError`` for ``request.since``.
        """
        with open_snapshot(
            self._url, connect_timeout=self._connect_timeout, answer_timeout=self._answer_timeout, zone=self._zone.key
        ) as snapshot:
            queries = []
            for query in self._queries:
                if query.kind is not None:
                    queries.append(QueryRows(query, snapshot, self._zone))
                elif (columns := wanted.get(query.name)) is not None:
                    queries.append(
                        QueryRows(query, snapshot, self._zone, None if ALL_ATTRIBUTES in columns else columns)
                    )
            marks = {
                rows.query.name: HighWaterMark(rows, self._clock(), self._zone) for rows in queries if rows.query.cursor
            }
            read = SqlRead(snapshot, queries, marks)
            read.begin(request)
            yield read


class SqlRead:
    """A read within one snapshot."""

    def __init__(self, snapshot: SqlSnapshot, queries: Sequence[QueryRows], marks: Mapping[str, HighWaterMark]) -> None:
        self.queries = queries
        self._snapshot = snapshot
        self._marks = marks
        self._has_cursor = len(marks) == len(queries) > 0
        self._since: Cursor | None = None
        """None: it is not incremental."""
        self._part: Part | None = None
        self._lookup = RowLookup(snapshot)

    def begin(self, request: ReadRequest) -> None:
        """Accepts the request, or everything instead of a part. Raises ``ReadError``, as ``CursorRefusedError``."""
        if request.since:
            if not self._has_cursor:
                raise CursorRefusedError("the cursor belongs to other queries")
            self._since = Cursor.parse(request.since, frozenset(self._marks))
            for rows in self.queries:
                check_not_restored(self._snapshot, rows, self._since)
        elif request.part is not None and all(self._lookup.supports(rows, request.part) for rows in self.queries):
            self._part = request.part

    @property
    def answered(self) -> Answered | None:
        """What the read is about. None: everything."""
        if self._since is not None:
            return Answered.CHANGES
        return Answered.PART if self._part is not None else None

    @cached_property
    def _cursor(self) -> str:
        """The cursor for the next incremental read, once all rows have been read. The ends of the objects and of the
        whole read contain the same one."""
        if not self._has_cursor or self._part is not None:
            return ""
        positions = {name: mark.position for name, mark in self._marks.items()}
        if self._since is not None:
            # The newest row of the last read may be in the future now, and then does not move the mark.
            positions = {name: later(position, self._since.positions[name]) for name, position in positions.items()}
        newest = {
            rows.query.name: newest_rows(self._snapshot, rows, positions[rows.query.name]) for rows in self.queries
        }
        return Cursor(positions, newest).to_json()

    def end(self, tally: MalformedTally, mapped: End = _COMPLETE) -> End:
        """The end of the read. ``mapped``: the end of the rules."""
        if mapped.verdict is Verdict.FAILED:
            return mapped
        rows = tally.end("malformed row")
        if rows.verdict is mapped.verdict is Verdict.COMPLETE:
            return End(Verdict.COMPLETE, cursor=self._cursor, answered=self.answered)
        excepted = all(end.verdict is Verdict.COMPLETE or end.except_malformed for end in (rows, mapped))
        return End(
            Verdict.PARTIAL,
            "; ".join(filter(None, [rows.reason, mapped.reason])),
            self._cursor if excepted else "",
            self.answered,
            except_malformed=excepted,
        )

    def steps(self, queries: Sequence[QueryRows], tally: MalformedTally) -> Iterator[Step]:
        for rows in queries:
            yield from tally.counted(rows.steps(self.requested(rows), report_deleted=self.answered is not None))

    def requested(self, rows: QueryRows) -> Iterator[RowStep]:
        query, mark = rows.query, self._marks.get(rows.query.name)
        observe = None if mark is None else mark.observe
        if self._part is not None:
            yield from self._lookup.part(rows, self._part)
        elif self._since is not None and mark is not None:
            where = changed_since(rows, self._since)
            yield from rows.convert(self._snapshot.stream(query.name, query.text, where), observe)
            if query.deleted_query:
                deleted = deleted_rows(self._snapshot, rows, where)
                mark.update(values[query.cursor] for values in deleted)
                # A deleted key may be in use again.
                yield from self._lookup.by_id(rows, ids_of_deleted(rows, deleted))
        else:
            yield from rows.convert(self._snapshot.stream(query.name, query.text), observe)
            if query.deleted_query and mark is not None:
                update_with_deleted(self._snapshot, rows, mark)


class SqlConnector:
    """The objects of a database. ``open_``: opens a read, such as ``SqlDatabase.open``."""

    def __init__(
        self, open_: Callable[[ReadRequest, Mapping[str, frozenset[str]]], AbstractContextManager[SqlRead]]
    ) -> None:
        self._open = open_

    def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Objects:
        try:
            with self._open(request, wanted.attributes) as read:
                queries = [
                    rows for rows in read.queries if rows.query.kind is None and rows.query.name in wanted.attributes
                ]
                tally = MalformedTally()
                yield from read.steps(queries, tally)  # type: ignore[misc] # only objects are yielded
                yield read.end(tally)
        except ReadError as error:
            yield error.end


class SqlSource:
    """A database whose queries yield records, and perhaps objects for rules."""

    def __init__(
        self,
        name: str,
        database: SqlDatabase,
        *,
        wanted: RequestedFields | None = None,
        mapped: Callable[[Connector], Source] | None = None,
    ) -> None:
        """``mapped`` makes a source of a connector, with rules that use ``wanted``."""
        self.name = name
        self._database = database
        self._wanted = wanted or RequestedFields()
        self._mapped = mapped

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        try:
            with self._database.open(request, self._wanted.attributes) as read:
                yield from self._steps(read, request)
        except ReadError as error:
            yield error.end

    def _steps(self, read: SqlRead, request: ReadRequest) -> Reading:
        queries = [rows for rows in read.queries if rows.query.kind is not None]
        tally, mapped = MalformedTally(), _COMPLETE
        yield from read.steps(queries, tally)  # type: ignore[misc] # only records are yielded
        if self._mapped is not None:
            # The rules read their objects from the same snapshot.
            for step in self._mapped(SqlConnector(lambda *_: nullcontext(read))).read(request):
                if isinstance(step, End):
                    mapped = step
                else:
                    yield step
        yield read.end(tally, mapped)
