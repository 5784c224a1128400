"""The cursor of a source of queries: how far each of them was read, as one text.

A query's position is the greatest value of its cursor column that was read and does not lie in the future: a single row
from next year would otherwise hide everything until then. Changes are asked for from a little before it (``overlap``),
because what was begun earlier may be committed later.
"""

import json
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta, tzinfo
from decimal import Decimal

Mark = datetime | int | str | None
"""A position in a cursor column; None: before everything. Text is a time as SQLite keeps it."""

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)([T ])(\d\d:\d\d(?::\d\d)?)(\.\d+)?(Z|[+-]\d\d:?\d\d)?")


class NoCursorError(ValueError):
    """A text that is no cursor of these queries, or a value that is no position in a cursor column."""


def mark_of(value: object) -> Mark:
    """The value of a cursor column. Raises ``NoCursorError`` for what does not grow."""
    if isinstance(value, bool):
        raise NoCursorError("is true or false")
    if isinstance(value, datetime | int):
        return value
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    if isinstance(value, str) and _TIME.fullmatch(value):
        return value
    if isinstance(value, date):
        raise NoCursorError("is a date without a time, which does not tell two changes of one day apart")
    raise NoCursorError("is neither a time nor a whole number")


def latest(value: object, now: datetime, zone: tzinfo) -> object:
    """The greatest value like this one that may be a position: that of ``now``; None where any may."""
    if isinstance(value, datetime):
        return now if value.tzinfo is not None else now.astimezone(zone).replace(tzinfo=None)
    if isinstance(value, str):
        # Texts may be times of any zone: up to a day is no future.
        return f"{(now + timedelta(days=1)).date().isoformat()}~"
    return None


def before(mark: Mark, overlap: int) -> Mark:
    """The position a little before: ``overlap`` seconds, or so many numbers."""
    if isinstance(mark, int):
        return mark - overlap
    try:
        if isinstance(mark, datetime):
            return mark - timedelta(seconds=overlap)
        found = _TIME.fullmatch(mark) if mark is not None else None
        if found is None:
            return None
        # As the column writes it, and to the second: whatever follows that makes a text greater.
        earlier = datetime.fromisoformat(f"{found[1]}T{found[3]}") - timedelta(seconds=overlap)
    except OverflowError:
        return None
    return earlier.isoformat(found[2], "seconds")


def later(one: Mark, other: Mark) -> Mark:
    """The one that lies further on; the first where they cannot be compared, since the column changed its type."""
    if isinstance(one, datetime) and isinstance(other, datetime) and (one.tzinfo is None) == (other.tzinfo is None):
        return max(one, other)
    if isinstance(one, int) and isinstance(other, int):
        return max(one, other)
    if isinstance(one, str) and isinstance(other, str):
        return max(one, other)
    return other if one is None else one


Newest = Mapping[str, Mark]
"""Ids of the rows of a query that changed last, each with its position."""


def text_of(marks: Mapping[str, Mark], newest: Mapping[str, Newest]) -> str:
    """The cursor of queries, by name."""
    packed = {
        name: {"mark": _packed(mark), "newest": {id_: _packed(one) for id_, one in newest[name].items()}}
        for name, mark in sorted(marks.items())
    }
    return json.dumps(packed, separators=(",", ":"))


def _packed(mark: Mark) -> object:
    return {"time": mark.isoformat()} if isinstance(mark, datetime) else mark


def marks_of(text: str, names: frozenset[str]) -> tuple[dict[str, Mark], dict[str, Newest]]:
    """The positions of these queries, and the rows that changed last. Raises ``NoCursorError``."""
    try:
        packed = json.loads(text)
    except (ValueError, RecursionError):
        raise NoCursorError("is no JSON") from None
    if not isinstance(packed, dict) or packed.keys() != names:
        raise NoCursorError("is of other queries")
    if not all(isinstance(one, dict) and isinstance(one.get("newest"), dict) for one in packed.values()):
        raise NoCursorError("is of another version")
    marks: dict[str, Mark] = {name: _unpacked(one.get("mark")) for name, one in packed.items()}
    newest: dict[str, Newest] = {
        name: {id_: _unpacked(at) for id_, at in one["newest"].items()} for name, one in packed.items()
    }
    return marks, newest


def _unpacked(value: object) -> Mark:
    if isinstance(value, dict) and isinstance(value.get("time"), str):
        try:
            return datetime.fromisoformat(value["time"])
        except ValueError:
            raise NoCursorError("holds something that is not a time") from None
    return None if value is None else mark_of(value)
