"""Incremental reads of a database: cursors, and the detection of a restored database.

The position of a query is the greatest value of its cursor column that is not in the future: otherwise a single row
from next year would hide all changes until then. Changes are read from ``overlap`` before the position, because a
transaction that began earlier may commit later. A cursor also contains the rows of each query that changed last. If one
of them is older, or missing without having been deleted, the database was restored, and the cursor is refused.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, or_

from app.directory.connector import CursorRefusedError, ReadError
from app.directory.connectors.sql.rows import QueryRows
from app.directory.connectors.sql.snapshot import SqlSnapshot, named_column, parameter
from app.directory.fields import MalformedRecordError
from app.foundation.text import quoted

REMEMBERED = 16
"""The number of rows of each query in a cursor: those that changed last."""

Position = datetime | int | str | None
"""A value of a cursor column. None: before all rows. SQLite has times as text."""

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)([T ])(\d\d:\d\d(?::\d\d)?)(\.\d+)?(Z|[+-]\d\d:?\d\d)?")


class NoPositionError(ValueError):
    """A value that cannot be a position."""


def position_of(value: object) -> Position:
    """The value of a cursor column as a position. Raises ``NoPositionError``."""
    if isinstance(value, bool):
        raise NoPositionError("is true or false")
    if isinstance(value, datetime | int):
        return value
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    if isinstance(value, str) and _TIME.fullmatch(value):
        return value
    if isinstance(value, date):
        raise NoPositionError("is a date without a time, which does not order two changes of one day")
    raise NoPositionError("is neither a time nor a whole number")


def _latest(value: object, now: datetime, zone: tzinfo) -> object:
    """The greatest value of the same type that is not in the future. None if there is no such limit."""
    if isinstance(value, datetime):
        return now if value.tzinfo is not None else now.astimezone(zone).replace(tzinfo=None)
    if isinstance(value, str):
        # Text may be a time of any zone, so that a day ahead is not the future. "~" is greater than all times of a day.
        return f"{(now + timedelta(days=1)).date().isoformat()}~"
    return None


def _before(position: Position, overlap: int) -> Position:
    """The position ``overlap`` earlier, in seconds or as a number. None if there is no such time."""
    if isinstance(position, int):
        return position - overlap
    try:
        if isinstance(position, datetime):
            return position - timedelta(seconds=overlap)
        match = _TIME.fullmatch(position) if position is not None else None
        if match is None:
            return None
        # In the format of the column, without fractions and zone, because longer text is greater.
        earlier = datetime.fromisoformat(f"{match[1]}T{match[3]}") - timedelta(seconds=overlap)
    except (OverflowError, ValueError):
        # SQLite also stores times that do not exist, such as 2026-02-30.
        return None
    return earlier.isoformat(match[2], "seconds")


def later(first: Position, second: Position) -> Position:
    """The later position, or the first if they cannot be compared because the type of the column has changed."""
    positions: list[Any] = [first, second]
    try:
        latest: Position = max(positions)
    except TypeError:
        return second if first is None else first
    return latest


def earliest(positions: Sequence[Position]) -> Position:
    """The earliest position. None if there are none. One that cannot be compared with those before is ignored."""
    found = positions[0] if positions else None
    for position in positions[1:]:
        found = position if later(position, found) == found else found
    return found


class HighWaterMark:
    """The greatest position of a query's rows that is not in the future."""

    def __init__(self, rows: QueryRows, now: datetime, zone: tzinfo) -> None:
        self._where, self._now, self._zone = f"queries.{rows.query.name}", now, zone
        self._column = rows.query.cursor
        self._index = rows.columns.index(self._column)
        self._greatest: Any = None

    def observe(self, batch: Sequence[Any]) -> None:
        """Updates the mark from rows of the query. Raises as ``update``."""
        self.update(row[self._index] for row in batch)

    def update(self, values: Iterable[Any]) -> None:
        """Updates the mark from values of the cursor column. Raises ``ReadError`` if one cannot be a position."""
        present = [value for value in values if value is not None]
        if not present:
            return
        try:
            greatest = max(present)
            position_of(greatest)
            limit: Any = _latest(greatest, self._now, self._zone)
            if limit is not None and greatest > limit:
                greatest = max((value for value in present if value <= limit), default=None)
            if greatest is not None and (self._greatest is None or greatest > self._greatest):
                self._greatest = greatest
        except NoPositionError as error:
            raise ReadError(
                f"{self._where}: the cursor column {quoted(self._column)} {error}; name a column of times or numbers"
                " that grows with every change"
            ) from None
        except TypeError:
            raise ReadError(
                f"{self._where}: the cursor column {quoted(self._column)} has values of several types"
            ) from None

    @property
    def position(self) -> Position:
        return None if self._greatest is None else position_of(self._greatest)


class Cursor(NamedTuple):
    """The positions of all queries of a source, and the rows of each that changed last (id → position)."""

    positions: Mapping[str, Position]
    newest: Mapping[str, Mapping[str, Position]]

    @classmethod
    def parse(cls, text: str, names: frozenset[str]) -> "Cursor":
        """Raises ``CursorRefusedError`` unless the text is a cursor of the queries ``names``."""
        try:
            packed = json.loads(text)
        except (ValueError, RecursionError):
            raise CursorRefusedError("the cursor is not valid JSON") from None
        if not isinstance(packed, dict) or packed.keys() != names:
            raise CursorRefusedError("the cursor belongs to other queries")
        if not all(isinstance(entry, dict) and isinstance(entry.get("newest"), dict) for entry in packed.values()):
            raise CursorRefusedError("the cursor was written by another version")
        try:
            return cls(
                {name: _unpacked(entry.get("mark")) for name, entry in packed.items()},
                {
                    name: {id_: _unpacked(position) for id_, position in entry["newest"].items()}
                    for name, entry in packed.items()
                },
            )
        except ValueError:
            raise CursorRefusedError("the cursor contains an invalid position") from None

    def to_json(self) -> str:
        packed = {
            name: {
                "mark": _packed(position),
                "newest": {id_: _packed(value) for id_, value in self.newest[name].items()},
            }
            for name, position in sorted(self.positions.items())
        }
        return json.dumps(packed, separators=(",", ":"))


def _packed(position: Position) -> object:
    return {"time": position.isoformat()} if isinstance(position, datetime) else position


def _unpacked(value: object) -> Position:
    if isinstance(value, dict) and isinstance(value.get("time"), str):
        return datetime.fromisoformat(value["time"])
    return None if value is None else position_of(value)


def newest_rows(snapshot: SqlSnapshot, rows: QueryRows, position: Position) -> Mapping[str, Position]:
    """The rows of a query that changed last, up to ``position``."""
    if position is None or not rows.key:
        return {}
    query = rows.query
    return dict(_positions(rows, snapshot.last(query.name, query.text, query.cursor, parameter(position), REMEMBERED)))


def check_not_restored(snapshot: SqlSnapshot, rows: QueryRows, cursor: Cursor) -> None:
    """Raises ``CursorRefusedError`` if the database was restored to a state before the cursor."""
    query, position = rows.query, cursor.positions[rows.query.name]
    if position is None:
        return
    not_older = named_column(query.cursor) >= parameter(position)
    statements = filter(None, [query.text, query.deleted_query])
    if all(snapshot.first(query.name, statement, not_older) is None for statement in statements):
        raise CursorRefusedError(f"the cursor is ahead of queries.{query.name}")
    # A restored database that was written to since then is not behind the cursor.
    missing = dict(cursor.newest[query.name])
    start = earliest(list(missing.values()))
    if start is None:
        return
    since_start = named_column(query.cursor) >= parameter(start)
    for batch in snapshot.stream(query.name, query.text, since_start):
        for identifier, found in _positions(rows, batch):
            if identifier in missing and later(missing[identifier], found) == found:
                del missing[identifier]
    if missing and query.deleted_query:
        for values in deleted_rows(snapshot, rows, since_start):
            missing.pop(_id_or_none(rows, values) or "", None)
    if missing:
        raise CursorRefusedError(
            f"row {quoted(min(missing))} of queries.{query.name} is missing or older than in the cursor: the database"
            " was probably restored"
        )


def changed_since(rows: QueryRows, cursor: Cursor) -> ColumnElement[bool] | None:
    """The condition of rows that may have changed since the cursor. None: all rows."""
    start = _before(cursor.positions[rows.query.name], rows.query.overlap)
    if start is None:
        return None
    column = named_column(rows.query.cursor)
    return or_(column >= parameter(start), column.is_(None))


def deleted_rows(
    snapshot: SqlSnapshot, rows: QueryRows, where: ColumnElement[bool] | None
) -> Sequence[Mapping[str, Any]]:
    """The key and cursor columns of deleted rows. Raises ``ReadError`` if the query lacks one of them."""
    query = rows.query
    columns = snapshot.columns(query.name, query.deleted_query)
    if missing := [name for name in (*rows.key, query.cursor) if name not in columns]:
        raise ReadError(
            f"queries.{query.name}.deleted: has no column {', '.join(missing)}; it must select the key of deleted rows,"
            " and the cursor"
        )
    # Read completely: other queries run in between, and some drivers support one result at a time.
    return [
        dict(zip(columns, row, strict=True))
        for batch in snapshot.stream(query.name, query.deleted_query, where)
        for row in batch
    ]


def ids_of_deleted(rows: QueryRows, deleted: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ids of deleted rows. Raises ``ReadError``."""
    try:
        return [rows.id_of_row(values) for values in deleted]
    except MalformedRecordError as error:
        raise ReadError(f"queries.{rows.query.name}.deleted: {error}") from None


def update_with_deleted(snapshot: SqlSnapshot, rows: QueryRows, mark: HighWaterMark) -> None:
    """Updates the mark of a full read with the cursors of all deleted rows."""
    query = rows.query
    columns = snapshot.columns(query.name, query.deleted_query)
    if query.cursor not in columns:
        raise ReadError(f"queries.{query.name}.deleted: has no column {query.cursor}, which is the cursor")
    index = columns.index(query.cursor)
    for batch in snapshot.stream(query.name, query.deleted_query):
        mark.update(row[index] for row in batch)


def _positions(rows: QueryRows, batch: Sequence[Any]) -> Iterator[tuple[str, Position]]:
    """The ids of rows with their positions, without rows that have none. Raises ``CursorRefusedError``."""
    for row in batch:
        values = dict(zip(rows.columns, row, strict=True))
        position = values[rows.query.cursor]
        if position is not None and (identifier := _id_or_none(rows, values)) is not None:
            try:
                yield identifier, position_of(position)
            except NoPositionError as error:
                raise CursorRefusedError(f"the cursor column of queries.{rows.query.name} {error}") from None


def _id_or_none(rows: QueryRows, values: Mapping[str, object]) -> str | None:
    try:
        return rows.id_of_row(values)
    except MalformedRecordError:
        return None
