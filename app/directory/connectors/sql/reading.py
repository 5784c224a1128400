"""A read of a database: which rows of its queries are asked for, and how far it came.

| asked for | what is run |
|---|---|
| everything | each query as it stands |
| changes | the rows whose cursor column has at least the cursor's value, less the overlap, and those where it is null |
| a part | the rows of the organizations and users, and those whose keys the objects have (``lookup.py``) |
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import URL, ColumnElement, or_

from app.directory.connector import ALL_ATTRIBUTES
from app.directory.connectors.sql.cursor import Mark, Newest, NoCursorError, before, later, mark_of, marks_of, text_of
from app.directory.connectors.sql.lookup import AT_A_TIME, Lookup, given
from app.directory.connectors.sql.query import Query
from app.directory.connectors.sql.rows import Rows, Step, Taken, Top
from app.directory.connectors.sql.snapshot import SqlSnapshot, named_column, open_snapshot
from app.directory.connectors.sql.trouble import SqlTroubleError
from app.directory.connectors.sql.values import NotPlainError
from app.directory.source import Answered, Part, ReadRequest
from app.foundation.clock import utc_now
from app.foundation.text import quoted

REMEMBERED = 16
"""Rows of each query that changed last and that a cursor remembers."""


class SqlDatabase:
    """A database and the queries that are put to it; it is connected to for each read anew."""

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
        """``timezone``: of times that have none. ``connect_timeout``, ``answer_timeout``: seconds."""
        self._url = url
        self.queries = tuple(queries)
        self.zone = ZoneInfo(timezone)
        self._connect_timeout = connect_timeout
        self._answer_timeout = answer_timeout
        self._clock = clock

    @property
    def gives_records(self) -> bool:
        """Whether there is a query whose rows are records."""
        return any(query.kind is not None for query in self.queries)

    @contextmanager
    def open(self, request: ReadRequest, wanted: Mapping[str, frozenset[str]]) -> Iterator["SqlRead"]:
        """A read of those queries that give records, and of those that ``wanted`` names with their columns.

        Each of them has been looked at. Raises ``SqlTroubleError``, and ``NoCursorError`` for ``request.since``.
        """
        with open_snapshot(
            self._url,
            connect_timeout=self._connect_timeout,
            answer_timeout=self._answer_timeout,
            zone=self.zone.key,
        ) as snapshot:
            all_rows: list[Rows] = []
            for query in self.queries:
                if query.kind is not None:
                    all_rows.append(Rows(query, snapshot, self.zone))
                elif query.name in wanted:
                    named = wanted[query.name]
                    all_rows.append(Rows(query, snapshot, self.zone, None if ALL_ATTRIBUTES in named else named))
            yield SqlRead(snapshot, all_rows, request, self._clock(), self.zone)


class SqlRead:
    """One read, within one snapshot."""

    def __init__(
        self, snapshot: SqlSnapshot, all_rows: Sequence[Rows], request: ReadRequest, now: datetime, zone: ZoneInfo
    ) -> None:
        self._snapshot = snapshot
        self.all_rows = all_rows
        self._tops = {rows.query.name: Top(rows, now, zone) for rows in all_rows if rows.query.cursor}
        self._tells_changes = len(self._tops) == len(all_rows) > 0
        self._marks: Mapping[str, Mark] = {}
        self._newest: Mapping[str, Newest] = {}
        self._part: Part | None = None
        self._lookup = Lookup(snapshot)
        if request.since:
            if not self._tells_changes:
                raise NoCursorError("is of other queries")
            self._marks, self._newest = marks_of(request.since, frozenset(self._tops))
            self._see_that_it_went_on()
        elif request.part is not None and all(self._lookup.is_possible(rows, request.part) for rows in all_rows):
            self._part = request.part
        self._since = bool(request.since)

    @property
    def answered(self) -> Answered | None:
        """What the read is about."""
        if self._since:
            return Answered.CHANGES
        return Answered.PART if self._part is not None else None

    @property
    def cursor(self) -> str:
        """From where changes can be asked for next, once everything was taken."""
        if not self._tells_changes or self._part is not None:
            return ""
        marks = {name: top.mark for name, top in self._tops.items()}
        for name, mark in self._marks.items():
            # Nothing that was read this time may be as new as the newest of last time, if that lies ahead by now.
            marks[name] = later(marks[name], mark)
        return text_of(
            marks, {rows.query.name: self._newest_of(rows, marks[rows.query.name]) for rows in self.all_rows}
        )

    def _newest_of(self, rows: Rows, mark: Mark) -> Newest:
        """The rows that changed last."""
        if mark is None or not rows.key:
            return {}
        name, column = rows.query.name, rows.query.cursor
        last = self._snapshot.last(name, rows.query.text, column, given(mark), REMEMBERED)
        return dict(_positions(rows, last))

    def records(self, rows: Rows) -> Iterator[Step]:
        """What the rows of a query of a kind stand for, of those that were asked for."""
        return rows.records(self.taken(rows), tell_lost=self.answered is not None)

    def taken(self, rows: Rows) -> Iterator[Taken]:
        """The rows of a query that were asked for, plain; a ``Lost`` for each that is known to be gone."""
        if self._part is not None:
            yield from self._lookup.part(rows, self._part)
        elif self._since:
            yield from self._changes(rows)
        else:
            query, top = rows.query, self._tops.get(rows.query.name)
            yield from rows.taken(self._snapshot.stream(query.name, query.text), top)
            self._look_at_deleted(rows, top)

    # Changes.

    def _see_that_it_went_on(self) -> None:
        """Raises ``NoCursorError`` where the newest row of last time is nowhere: a database that was restored from
        yesterday would give no changes for a day."""
        for rows in self.all_rows:
            mark, query = self._marks[rows.query.name], rows.query
            if mark is None:
                continue
            at_least = named_column(query.cursor) >= given(mark)
            statements = [query.text, query.deleted] if query.deleted_is_query else [query.text]
            if all(self._snapshot.first(query.name, statement, at_least) is None for statement in statements):
                raise NoCursorError(f"is ahead of queries.{query.name}")
            self._see_that_nothing_was_undone(rows)

    def _see_that_nothing_was_undone(self, rows: Rows) -> None:
        """Raises ``NoCursorError`` if a remembered row is missing or older: the database was restored, and what was
        written since then is newer than the cursor."""
        query, left = rows.query, dict(self._newest[rows.query.name])
        start = next(iter(left.values()), None)
        for one in left.values():
            start = one if later(one, start) == start else start
        if start is None:
            return
        where = named_column(query.cursor) >= given(start)
        for partition in self._snapshot.stream(query.name, query.text, where):
            for identifier, position in _positions(rows, partition):
                if identifier in left and later(left[identifier], position) == position:
                    del left[identifier]
        if left and query.deleted_is_query:
            for some in self._deleted(rows, where):
                for values in some:
                    left.pop(_id_of(rows, values), None)
        if left:
            raise NoCursorError(
                f"remembers {quoted(min(left))} of queries.{query.name}, which is older now or gone, as after a restore"
            )

    def _changes(self, rows: Rows) -> Iterator[Taken]:
        query, top = rows.query, self._tops[rows.query.name]
        where = self._since_mark(rows)
        yield from rows.taken(self._snapshot.stream(query.name, query.text, where), top)
        if not query.deleted_is_query:
            return
        # A key that was deleted may be in use again.
        for partition in self._deleted(rows, where):
            top.look(values[query.cursor] for values in partition)
            try:
                deleted = [rows.id_of_row(values) for values in partition]
            except NotPlainError as error:
                raise SqlTroubleError(f"queries.{query.name}.deleted: {error}") from None
            yield from self._lookup.by_id(rows, deleted)

    def _since_mark(self, rows: Rows) -> ColumnElement[bool] | None:
        start = before(self._marks[rows.query.name], rows.query.overlap)
        if start is None:
            return None
        column = named_column(rows.query.cursor)
        return or_(column >= given(start), column.is_(None))

    def _deleted(self, rows: Rows, where: ColumnElement[bool] | None) -> Iterator[Sequence[Mapping[str, Any]]]:
        """The keys and cursors of what was deleted. Raises ``SqlTroubleError`` for a query that has them not."""
        query = rows.query
        columns = self._snapshot.columns(query.name, query.deleted)
        lacking = [name for name in (*rows.key, query.cursor) if name not in columns]
        if lacking:
            raise SqlTroubleError(
                f"queries.{query.name}.deleted: has no column {', '.join(lacking)}; it gives the key of what was"
                " deleted, and the cursor"
            )
        # Taken to the end at once: other questions are put to the database in between, and some answer one at a time.
        found = [
            dict(zip(columns, row, strict=True))
            for partition in self._snapshot.stream(query.name, query.deleted, where)
            for row in partition
        ]
        for start in range(0, len(found), AT_A_TIME):
            yield found[start : start + AT_A_TIME]

    def _look_at_deleted(self, rows: Rows, top: Top | None) -> None:
        """How far deletions were told when everything was read."""
        query = rows.query
        if top is None or not query.deleted_is_query:
            return
        columns = self._snapshot.columns(query.name, query.deleted)
        if query.cursor not in columns:
            raise SqlTroubleError(f"queries.{query.name}.deleted: has no column {query.cursor}, which is the cursor")
        index = columns.index(query.cursor)
        for partition in self._snapshot.stream(query.name, query.deleted):
            top.look(row[index] for row in partition)


def _positions(rows: Rows, some: Sequence[Any]) -> Iterator[tuple[str, Mark]]:
    """The ids of rows, with their positions."""
    for row in some:
        values = dict(zip(rows.columns, row, strict=True))
        position = values[rows.query.cursor]
        if position is not None and (identifier := _id_of(rows, values)):
            yield identifier, mark_of(position)


def _id_of(rows: Rows, values: Mapping[str, object]) -> str:
    """The id of a row; empty if it has none."""
    try:
        return rows.id_of_row(values)
    except NotPlainError:
        return ""
