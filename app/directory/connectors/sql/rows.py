"""The rows of a query, as what is made of them: records, objects, or the word that one is gone."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, tzinfo
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

from app.directory.casters import caster
from app.directory.casting import disabling_record, record_from_object
from app.directory.connector import DirectoryObject, ObjectGone
from app.directory.connectors.sql.columns import check_columns, converters, is_field, record_converters, takes_texts
from app.directory.connectors.sql.cursor import Mark, NoCursorError, latest, mark_of
from app.directory.connectors.sql.query import Query, digest_of, id_of, ids_of
from app.directory.connectors.sql.snapshot import SqlSnapshot
from app.directory.connectors.sql.trouble import SqlTroubleError
from app.directory.connectors.sql.values import NotPlainError, check_texts, plain
from app.directory.fields import MalformedRecordError
from app.directory.source import Found, Gone, Malformed, ObjectId, Origin, Remark
from app.text import quoted

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
        self._dropped = tuple(
            name
            for name in self.columns
            if (
                name not in wanted
                if wanted is not None
                else kind is not None and not is_field(name, query.own_columns, kind)
            )
        )
        kept = [name for name in self.columns if name not in self._dropped]
        self._converters = converters(kind, self.columns, zone)
        texts_too = takes_texts(kind, self.columns)
        self._converting = [(name, self._converters[name], name in texts_too) for name in kept]
        self._flag = query.deleted if query.deleted and not query.deleted_is_query else ""
        self._zone = zone
        self._kept = [self.columns.index(name) for name in kept]
        self._cast = None
        if kind is not None and self.key:
            convert = record_converters(kind, kept, zone)
            self._cast = caster(kind, kept, convert, null_is_absent=query.null_is_absent)

    def found(self, partitions: Iterable[Sequence[Any]], seen: "Top | None" = None) -> Iterator[Step]:
        """What all rows of a kind stand for: the same as ``records`` of what is ``taken``, made many at a time."""
        number = 0
        for partition in partitions:
            if seen is not None:
                seen.look(row[seen.index] for row in partition)
            for start in range(0, len(partition), _TOGETHER):
                rows = partition[start : start + _TOGETHER]
                found, odd = self._found(rows, number)
                if not odd:
                    yield from found
                for row in range(len(rows) if odd else 0):
                    if row in odd:
                        left = self.taken([rows[row : row + 1]], before=number + row)
                        yield from self.records(left, tell_lost=False)
                    else:
                        yield found[row]
                number += len(rows)

    def _found(self, rows: Sequence[Any], number: int) -> tuple[Sequence[Found], Collection[int]]:
        """The records of rows, and which rows have to be looked at by themselves. ``number``: of those before."""
        if self._cast is None:
            return [], range(len(rows))
        columns = list(zip(*rows, strict=True))
        records = list(map(self._cast, *[columns[index] for index in self._kept]))
        ids = self._ids_of(columns)
        name = self.query.name
        origins = map(_ORIGIN, zip(map(_OBJECT_ID, zip(repeat(name), ids)), repeat("")))
        places = [f"{name}, row {row}" for row in range(number + 1, number + len(rows) + 1)]
        found = list(map(_FOUND, zip(records, places, origins, strict=True)))
        if all(records) and all(ids) and not self._flag:
            return found, ()
        flags = columns[self.columns.index(self._flag)] if self._flag else repeat(None)
        judged = enumerate(zip(records, ids, flags, strict=False))
        return found, {row for row, (record, id_, flag) in judged if record is None or not id_ or _is_set(flag)}

    def _ids_of(self, columns: Sequence[Sequence[object]]) -> Sequence[str]:
        """The ids of rows, by their columns; empty, where ``id_of_row`` has something to say."""
        try:
            ids = ids_of([self._parts(columns[self.columns.index(name)]) for name in self.key])
        except NotPlainError:
            return [""] * len(columns[0])
        nothing = "/" * (len(self.key) - 1)
        if nothing in ids or not _is_fit("".join(ids)):
            return [one if one != nothing and _is_fit(one) else "" for one in ids]
        return ids

    def _parts(self, values: Sequence[Any]) -> Sequence[str]:
        if set(map(type, values)) == {str}:
            return values
        return [value if type(value) is str else self._part(value) for value in values]

    def _part(self, value: object) -> str:
        """Of an id, what stands for a value that is no text."""
        return "" if value is None else _text(plain(value, self._zone))

    def taken(
        self,
        partitions: Iterable[Sequence[Any]],
        seen: "Top | None" = None,
        wanted: frozenset[str] | None = None,
        before: int = 0,
    ) -> Iterator[Taken]:
        """Every row; with ``wanted`` those alone that have one of these ids. ``seen`` is told of their cursors.

        ``before``: how many rows came before these.
        """
        name, columns, key, flag = self.query.name, self.columns, self.key, self._flag
        number = before
        for rows in partitions:
            if seen is not None:
                seen.look(row[seen.index] for row in rows)
            for row in rows:
                number += 1
                values = dict(zip(columns, row, strict=True))
                try:
                    identifier = self.id_of_row(values) if key else digest_of(repr(tuple(row)))
                except NotPlainError as error:
                    yield Malformed(f"{name}, row {number}", str(error))
                    continue
                if wanted is not None and identifier not in wanted:
                    continue
                if flag and _is_set(values[flag]):
                    yield Lost(identifier, f"{name}, row {number}")
                    continue
                try:
                    self._make_plain(values)
                except NotPlainError as error:
                    object_id, disabled = self._object(identifier), self._is_disabled(values)
                    yield Malformed(f"{name}, row {number}", str(error), object_id, disabled)
                    continue
                yield Row(identifier, values, f"{name}, row {number}")

    def _make_plain(self, values: dict[str, Any]) -> None:
        """Leaves plain values of the columns that are asked for. Raises ``NotPlainError``."""
        for column in self._dropped:
            del values[column]
        for column, convert, texts_too in self._converting:
            value = values[column]
            if value is None:
                absent = column in self.query.null_is_absent
            elif texts_too or type(value) is not str:
                try:
                    values[column] = convert(value)
                except NotPlainError as error:
                    raise NotPlainError(f"{column}: {error}") from None
                # ``infinity`` is no end.
                absent = column == "expiresAt" and values[column] is None
            else:
                absent = False
            if absent:
                del values[column]

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
        parts = []
        for column in self.key:
            value = values[column]
            parts.append(value if type(value) is str else self._part(value))
        if not any(parts):
            raise NotPlainError(f"{', '.join(self.key)}: is empty, and identifies the row")
        try:
            identifier = id_of(parts)
            check_texts(identifier)
        except NotPlainError as error:
            raise NotPlainError(f"{', '.join(self.key)}: {error}") from None
        return identifier

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


_TOGETHER = 100
"""Rows of which records are made together: few, because what outlives the collection of garbage makes it slow."""

# These are made by the million; as C makes them.
_FOUND: Callable[[Iterable[object]], Found] = partial(tuple.__new__, Found)
_ORIGIN: Callable[[Iterable[object]], Origin] = partial(tuple.__new__, Origin)
_OBJECT_ID: Callable[[Iterable[object]], ObjectId] = partial(tuple.__new__, ObjectId)


def _is_fit(text: str) -> bool:
    try:
        check_texts(text)
    except NotPlainError:
        return False
    return True


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
