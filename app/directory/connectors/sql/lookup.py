"""Finds rows of a query by id, organization and user."""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from uuid import UUID

from sqlalchemy import ColumnElement, String, and_, cast, func, or_

from app.directory.columns import split_row_id
from app.directory.connectors.sql.rows import DeletedRow, QueryRows, RowStep
from app.directory.connectors.sql.snapshot import SqlSnapshot, named_column, parameter
from app.directory.source import Malformed, Part
from app.foundation.batches import batches

_VALUES_PER_QUERY = 500

_KEYS_PER_QUERY = 100
"""Keys of several columns. SQLite nests conditions at most 1,000 deep."""

_COMPARABLE: frozenset[type | None] = frozenset({str, int, Decimal, UUID, None})
"""Types whose values can be restored from the text in an id."""

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,18})")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class RowLookup:
    """Finds rows by ids, which are text, while columns have any type.

    If the text cannot be converted to the column's type exactly, nothing is looked up, because a row that is not found
    is reported as gone.
    """

    def __init__(self, snapshot: SqlSnapshot) -> None:
        self._snapshot = snapshot
        self._types: dict[tuple[str, str], type | None] = {}

    def supports(self, rows: QueryRows, part: Part) -> bool:
        """Whether the rows of a part can be looked up exactly."""
        ids = [object_.id for object_ in part.objects if object_.set == rows.query.name]
        if not rows.key or any(split_row_id(identifier, len(rows.key)) is None for identifier in ids):
            return False
        columns = set(rows.key) if ids else set[str]()
        columns |= {"organizationId"} if part.organization_ids else set()
        columns |= {"userId"} if part.user_ids else set()
        return all(self._type(rows, column) in _COMPARABLE for column in columns & set(rows.columns))

    def part(self, rows: QueryRows, part: Part) -> Iterator[RowStep]:
        """The rows of a part, and a ``DeletedRow`` for each of its objects without a row."""
        name, seen = rows.query.name, set[str]()
        for where in self._conditions(rows, part):
            for row in rows.convert(self._snapshot.stream(name, rows.query.text, where)):
                if isinstance(row, Malformed):
                    seen.update([] if row.object is None else [row.object.id])
                    yield row
                elif row.id not in seen:
                    seen.add(row.id)
                    yield row
        ids = [object_.id for object_ in part.objects if object_.set == name and object_.id not in seen]
        yield from self.by_id(rows, ids)

    def _conditions(self, rows: QueryRows, part: Part) -> Iterator[ColumnElement[bool]]:
        for column, ids in (("organizationId", part.organization_ids), ("userId", part.user_ids)):
            for batch in batches(ids, _VALUES_PER_QUERY):
                where = self._is_in(rows, column, batch) if column in rows.columns else None
                if where is not None:
                    yield where
        if "userAlias" in rows.columns:
            # The column has aliases in any case. If the database folds one differently, its row is found by key.
            folded = func.lower(cast(named_column("userAlias"), String))
            for batch in batches(part.aliases, _VALUES_PER_QUERY):
                yield folded.in_([parameter(alias) for alias in batch])

    def by_id(self, rows: QueryRows, ids: Sequence[str]) -> Iterator[RowStep]:
        """The rows with these ids, and a ``DeletedRow`` for each id without a row."""
        for batch in batches(ids, _VALUES_PER_QUERY if len(rows.key) == 1 else _KEYS_PER_QUERY):
            missing = dict.fromkeys(batch)
            where = self._has_key(rows, [split_row_id(identifier, len(rows.key)) for identifier in missing])
            if where is not None:
                stream = self._snapshot.stream(rows.query.name, rows.query.text, where)
                for row in rows.convert(stream, ids=frozenset(batch)):
                    yield row
                    if not isinstance(row, Malformed):
                        missing.pop(row.id, None)
                    elif row.object is not None:
                        missing.pop(row.object.id, None)
            for identifier in missing:
                yield DeletedRow(identifier, f"{rows.query.name}, {identifier}")

    def _has_key(self, rows: QueryRows, keys: Sequence[Sequence[str] | None]) -> ColumnElement[bool] | None:
        """The condition that a row has one of these keys. None: no row can."""
        if len(rows.key) == 1:
            return self._is_in(rows, rows.key[0], [parts[0] for parts in keys if parts is not None])
        found = []
        for parts in filter(None, keys):
            columns = [self._is_in(rows, name, [part]) for name, part in zip(rows.key, parts, strict=True)]
            conditions = [condition for condition in columns if condition is not None]
            if len(conditions) == len(columns):
                found.append(and_(*conditions))
        return or_(*found) if found else None

    def _is_in(self, rows: QueryRows, column: str, texts: Sequence[str]) -> ColumnElement[bool] | None:
        """The condition that a column has one of these values, as text of ids. None: no value can be equal."""
        values = [value for text in texts if text for value in self._values(rows, column, text)]
        found: list[ColumnElement[bool]] = []
        if values:
            found.append(named_column(column).in_([parameter(value) for value in values]))
        if "" in texts:
            found.append(named_column(column).is_(None))
        return or_(*found) if found else None

    def _values(self, rows: QueryRows, column: str, text: str) -> Sequence[object]:
        """The values of a column that have this text in an id."""
        type_ = self._type(rows, column)
        number = int(text) if _NUMBER.fullmatch(text) else None
        if self._snapshot.database == "sqlite" and type_ is not None:
            # Its columns may have text and numbers.
            return [text] if number is None else [text, number]
        if type_ is str:
            return [text]
        if type_ is UUID:
            return [UUID(text)] if _UUID.fullmatch(text) else []
        return [] if type_ is None or number is None else [number]

    def _type(self, rows: QueryRows, column: str) -> type | None:
        """The type of a column's values. None: there are none."""
        at = rows.query.name, column
        if at not in self._types:
            row = self._snapshot.first(rows.query.name, rows.query.text, named_column(column).is_not(None))
            self._types[at] = None if row is None else type(row[rows.columns.index(column)])
        return self._types[at]
