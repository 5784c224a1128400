"""The look-up of rows by their ids, and by organizations and users: what is run when a part is asked for.

Ids are texts, and columns of all types: where the text does not lead back to the value for certain, nothing is looked
up, because a row that was not found counts as gone.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, String, and_, bindparam, cast, func, or_
from sqlalchemy.types import NullType

from app.directory.connectors.sql.query import parts_of
from app.directory.connectors.sql.rows import Lost, Rows, Taken
from app.directory.connectors.sql.snapshot import SqlSnapshot, named_column
from app.directory.source import Malformed, Part

AT_A_TIME = 500
"""Values that are asked for together."""

_KEYS_AT_A_TIME = 100
"""Keys of several columns that are asked for together: SQLite nests conditions 1,000 deep at most."""


class Lookup:
    """Questions for rows, within one snapshot."""

    def __init__(self, snapshot: SqlSnapshot) -> None:
        self._snapshot = snapshot
        self._types: dict[tuple[str, str], type | None] = {}

    def part(self, rows: Rows, part: Part) -> Iterator[Taken]:
        """The rows of a part; the ``Rows`` are ones that ``is_possible`` was true of."""
        name, seen = rows.query.name, set[str]()
        for where in self._of_part(rows, part):
            for row in rows.taken(self._snapshot.stream(name, rows.query.text, where)):
                if isinstance(row, Malformed):
                    seen.update([] if row.object is None else [row.object.id])
                    yield row
                elif row.id not in seen:
                    seen.add(row.id)
                    yield row
        wanted = [one.id for one in part.objects if one.set == name and one.id not in seen]
        yield from self.by_id(rows, wanted)

    def _of_part(self, rows: Rows, part: Part) -> Iterator[ColumnElement[bool]]:
        """The conditions of the rows of these organizations and users."""
        for name, ids in (("organizationId", part.organization_ids), ("userId", part.user_ids)):
            for some in _some(ids):
                where = self._is_one_of(rows, name, some) if name in rows.columns else None
                if where is not None:
                    yield where
        if "userAlias" in rows.columns:
            # They are written in any case. What the database folds in another way is found by its key, if it was there.
            folded = func.lower(cast(named_column("userAlias"), String))
            for some in _some(part.aliases):
                yield folded.in_([given(alias) for alias in some])

    def is_possible(self, rows: Rows, part: Part) -> bool:
        """Whether the rows of a part can be asked for: by keys that the database compares as they were told."""
        name = rows.query.name
        ids = [one.id for one in part.objects if one.set == name]
        if not rows.key or any(parts_of(identifier, len(rows.key)) is None for identifier in ids):
            return False
        columns = set(rows.key) if ids else set[str]()
        columns |= {"organizationId"} if part.organization_ids else set()
        columns |= {"userId"} if part.user_ids else set()
        return all(self._type(rows, column) in _COMPARABLE for column in columns & set(rows.columns))

    def _type(self, rows: Rows, column: str) -> type | None:
        """Of what type the values of a column are; None: there are none."""
        at = rows.query.name, column
        if at not in self._types:
            row = self._snapshot.first(rows.query.name, rows.query.text, named_column(column).is_not(None))
            self._types[at] = None if row is None else type(row[rows.columns.index(column)])
        return self._types[at]

    def _is_one_of(self, rows: Rows, column: str, texts: Sequence[str]) -> ColumnElement[bool] | None:
        """That a column has one of these values, which an id gave as texts; None: it cannot."""
        values = [value for text in texts if text for value in self._as_in(rows, column, text)]
        found: list[ColumnElement[bool]] = []
        if values:
            found.append(named_column(column).in_([given(value) for value in values]))
        if "" in texts:
            found.append(named_column(column).is_(None))
        return or_(*found) if found else None

    def _as_in(self, rows: Rows, column: str, text: str) -> Sequence[object]:
        """The value of a column that is this text in an id."""
        wanted = self._type(rows, column)
        number = int(text) if _NUMBER.fullmatch(text) else None
        if self._snapshot.database == "sqlite" and wanted is not None:
            # Its columns hold texts and numbers side by side.
            return [text] if number is None else [text, number]
        if wanted is str:
            return [text]
        if wanted is UUID:
            return [UUID(text)] if _UUID.fullmatch(text) else []
        return [] if wanted is None or number is None else [number]

    def by_id(self, rows: Rows, ids: Sequence[str]) -> Iterator[Taken]:
        """The rows with these ids, and ``Lost`` for those that have none."""
        size = AT_A_TIME if len(rows.key) == 1 else _KEYS_AT_A_TIME
        for start in range(0, len(ids), size):
            yield from self._by_some_ids(rows, dict.fromkeys(ids[start : start + size]))

    def _by_some_ids(self, rows: Rows, ids: Mapping[str, None]) -> Iterator[Taken]:
        missing = dict(ids)
        keys = [parts_of(identifier, len(rows.key)) for identifier in ids]
        if len(rows.key) == 1:
            where = self._is_one_of(rows, rows.key[0], [parts[0] for parts in keys if parts is not None])
        else:
            found = [self._is_key(rows, parts) for parts in keys if parts is not None]
            where = or_(*[one for one in found if one is not None]) if any(one is not None for one in found) else None
        if where is not None:
            stream = self._snapshot.stream(rows.query.name, rows.query.text, where)
            for row in rows.taken(stream, wanted=frozenset(ids)):
                yield row
                if not isinstance(row, Malformed):
                    missing.pop(row.id, None)
                elif row.object is not None:
                    missing.pop(row.object.id, None)
        for identifier in missing:
            yield Lost(identifier, f"{rows.query.name}, {identifier}")

    def _is_key(self, rows: Rows, parts: Sequence[str]) -> ColumnElement[bool] | None:
        found = [self._is_one_of(rows, column, [part]) for column, part in zip(rows.key, parts, strict=True)]
        given = [one for one in found if one is not None]
        return and_(*given) if len(given) == len(found) else None


_COMPARABLE: frozenset[type | None] = frozenset({str, int, Decimal, UUID, None})
"""Types of which the text in an id leads back to the value."""

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,18})")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def given(value: object) -> Any:
    """A value for a statement, which the driver passes on as it is."""
    return bindparam(None, value, type_=NullType(), unique=True)


def _some(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), AT_A_TIME):
        yield ids[start : start + AT_A_TIME]
