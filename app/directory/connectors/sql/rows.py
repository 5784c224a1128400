"""The rows of a query, as what is made of them: records, objects, or the word that one is gone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, tzinfo
from typing import Any, NamedTuple

from app.directory.casting import disabling_record, record_from_object
from app.directory.connector import DirectoryObject, ObjectGone
from app.directory.connectors.sql.columns import check_columns, converters, is_field, takes_texts
from app.directory.connectors.sql.cursor import Mark, NoCursorError, latest, mark_of
from app.directory.connectors.sql.query import Query, digest_of, id_of
from app.directory.connectors.sql.snapshot import SqlSnapshot
from app.directory.connectors.sql.trouble import SqlTroubleError
from app.directory.connectors.sql.values import NotPlainError, check_texts, plain
from app.directory.fields import MalformedRecordError
from app.directory.source import Found, Gone, Malformed, ObjectId, Origin, Remark
from app.foundation.text import quoted

Step = Found | Gone | Malformed | Remark
ObjectStep = DirectoryObject | ObjectGone | Malformed | Remark


class Row(NamedTuple):
    """A row in plain values."""

    id: str
    values: dict[str, object]
    place: str


class Lost(NamedTuple):
    """A row whose flag says that it is gone."""

    id: str
    place: str


Taken = Row | Lost | Malformed


class Rows:
    """A query whose columns were looked at, and how its rows are taken in."""

    def __init__(self, query: Query, snapshot: SqlSnapshot, zone: tzinfo, wanted: frozenset[str] | None = None) -> None:
        """``wanted``: the columns that somebody asks for, besides those of the settings; None: all. Raises
        ``SqlTroubleError`` for a query that cannot be used."""
        self.query = query
        self.columns = tuple(snapshot.columns(query.name, query.text))
        check_columns(query.name, self.columns, query.own_columns, query.kind, snapshot.database)
        self.key = query.key_among(self.columns)
        lacking = sorted((wanted or frozenset()) - set(self.columns))
        if lacking:
            raise SqlTroubleError(
                f"queries.{query.name}: has no column {', '.join(map(quoted, lacking))}, which a rule of map names; it"
                f" has {', '.join(map(quoted, self.columns))}"
            )
        kind = query.kind
        if wanted is not None:
            kept = [name for name in self.columns if name in wanted]
        else:
            kept = [name for name in self.columns if kind is None or is_field(name, query.own_columns, kind)]
        self._converters = converters(kind, self.columns, zone)
        texts_too = takes_texts(kind, self.columns)
        self._kept = [
            (self.columns.index(name), name, self._converters[name], name in texts_too, name in query.null_is_absent)
            for name in kept
        ]
        self._key_at = [self.columns.index(name) for name in self.key]
        self._flag_at = None
        if query.deleted and not query.deleted_is_query:
            self._flag_at = self.columns.index(query.deleted)
        self._zone = zone

    def taken(
        self,
        partitions: Iterable[Sequence[Any]],
        seen: "Top | None" = None,
        wanted: frozenset[str] | None = None,
    ) -> Iterator[Taken]:
        """Every row; with ``wanted`` those alone that have one of these ids. ``seen`` is told of their cursors."""
        number = 0
        for rows in partitions:
            if seen is not None:
                seen.look(row[seen.index] for row in rows)
            for row in rows:
                number += 1
                place = f"{self.query.name}, row {number}"
                try:
                    identifier = (
                        self._id_of([row[at] for at in self._key_at]) if self.key else digest_of(repr(tuple(row)))
                    )
                except NotPlainError as error:
                    yield Malformed(place, str(error))
                    continue
                if wanted is not None and identifier not in wanted:
                    continue
                if self._flag_at is not None and _is_set(row[self._flag_at]):
                    yield Lost(identifier, place)
                    continue
                try:
                    values = self._plain(row)
                except NotPlainError as error:
                    disabled = self._is_disabled(dict(zip(self.columns, row, strict=True)))
                    yield Malformed(place, str(error), self._object(identifier), disabled)
                    continue
                yield Row(identifier, values, place)

    def _plain(self, row: Sequence[Any]) -> dict[str, object]:
        """The values of the columns that are asked for, in plain. Raises ``NotPlainError``."""
        values: dict[str, object] = {}
        for at, column, convert, texts_too, null_is_absent in self._kept:
            value = row[at]
            if value is None:
                if not null_is_absent:
                    values[column] = None
            elif texts_too or type(value) is not str:
                try:
                    plain_value = convert(value)
                except NotPlainError as error:
                    raise NotPlainError(f"{column}: {error}") from None
                # ``infinity`` is no end.
                if plain_value is not None or column != "expiresAt":
                    values[column] = plain_value
            else:
                values[column] = value
        return values

    def _object(self, identifier: str) -> ObjectId | None:
        """The object that a row is, if it has a key; otherwise its id goes with any change of it."""
        return ObjectId(self.query.name, identifier) if self.key else None

    def _is_disabled(self, values: Mapping[str, object]) -> bool:
        """Whether a row that is no record says that it is disabled."""
        if self.query.kind is None or "disabled" not in values:
            return False
        with suppress(NotPlainError):
            return self._converters["disabled"](values["disabled"]) is True
        return False

    def id_of_row(self, values: Mapping[str, object]) -> str:
        """The id by the columns of the key. Raises ``NotPlainError``."""
        return self._id_of([values[column] for column in self.key])

    def _id_of(self, key: Sequence[object]) -> str:
        parts = [value if type(value) is str else self._part(value) for value in key]
        if not any(parts):
            raise NotPlainError(f"{', '.join(self.key)}: is empty, and identifies the row")
        try:
            identifier = id_of(parts)
            check_texts(identifier)
        except NotPlainError as error:
            raise NotPlainError(f"{', '.join(self.key)}: {error}") from None
        return identifier

    def _part(self, value: object) -> str:
        """Of an id, what stands for a value that is no text."""
        return "" if value is None else _text(plain(value, self._zone))

    def records(self, rows: Iterable[Taken], *, tell_lost: bool) -> Iterator[Step]:
        """What rows of a kind stand for."""
        kind, name = self.query.kind, self.query.name
        for row in rows:
            if type(row) is Row:
                try:
                    record, remarks = record_from_object(row.values, kind)
                except MalformedRecordError as error:
                    only_disables = disabling_record(row.values, kind) if kind is not None else None
                    if only_disables is not None:
                        yield Found(only_disables, row.place, Origin(ObjectId(name, row.id)))
                    yield Malformed(row.place, str(error), self._object(row.id), self._is_disabled(row.values))
                    continue
                yield Found(record, row.place, Origin(ObjectId(name, row.id)))
                for remark in remarks:
                    yield Remark(row.place, remark)
            elif isinstance(row, Malformed):
                yield row
            elif tell_lost:
                yield Gone(ObjectId(name, row.id))

    def objects(self, rows: Iterable[Taken], *, tell_lost: bool) -> Iterator[ObjectStep]:
        """What rows are to rules."""
        name = self.query.name
        for row in rows:
            if type(row) is Row:
                present = {column: value for column, value in row.values.items() if value is not None}
                wrong = next(filter(None, (_wrong_text(*item) for item in present.items())), None)
                if wrong is not None:
                    yield Malformed(row.place, wrong, self._object(row.id))
                    continue
                yield DirectoryObject(ObjectId(name, row.id), present, row.place)
            elif isinstance(row, Malformed):
                yield row
            elif tell_lost:
                yield ObjectGone(ObjectId(name, row.id))


def _is_set(value: object) -> bool:
    """A flag, a time of deletion or a text: whatever is not null, false, zero or empty."""
    return value not in (None, False, 0, "", b"", b"\0", "0", "f", "false")


def _wrong_text(column: str, value: object) -> str | None:
    try:
        check_texts(value)
    except NotPlainError as error:
        return f"{column}: {error}"
    return None


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class Top:
    """The greatest value of a query's cursor column that does not lie in the future."""

    def __init__(self, rows: Rows, now: datetime, zone: tzinfo) -> None:
        self._name, self._column = rows.query.name, rows.query.cursor
        self._now, self._zone = now, zone
        self._top: Any = None
        self.index = rows.columns.index(self._column)

    def look(self, values: Iterable[Any]) -> None:
        """Takes note of some values. Raises ``SqlTroubleError`` for such as do not grow."""
        given = [value for value in values if value is not None]
        if not given:
            return
        try:
            greatest = max(given)
            mark_of(greatest)
            limit: Any = latest(greatest, self._now, self._zone)
            if limit is not None and greatest > limit:
                greatest = max((value for value in given if value <= limit), default=None)
            if greatest is not None and (self._top is None or greatest > self._top):
                self._top = greatest
        except NoCursorError as error:
            raise SqlTroubleError(
                f"queries.{self._name}: the cursor column {quoted(self._column)} {error}; name one that grows with"
                " every change, as a time or a number"
            ) from None
        except TypeError:
            raise SqlTroubleError(
                f"queries.{self._name}: the cursor column {quoted(self._column)} holds values of several types"
            ) from None

    @property
    def mark(self) -> Mark:
        """The position for the next cursor."""
        return None if self._top is None else mark_of(self._top)
