"""Sets of ids on their way into a statement, whatever their size.

As one parameter that the database takes apart (JSON on SQLite, an array on PostgreSQL), so that the number of
statements and their texts never depend on a batch's size.
"""

from collections.abc import Iterable
from typing import Any

import orjson
from sqlalchemy import BigInteger, ColumnElement, Connection, Select, Text, any_, column, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import TypeEngine

from app.foundation.database.engine import is_sqlite


def texts(connection: Connection, values: Iterable[str]) -> Select[str]:
    """``values`` as a subquery of one column, for ``column.in_(…)``."""
    return _rows(connection, values, Text)


def integers(connection: Connection, values: Iterable[int]) -> Select[int]:
    """The same for whole numbers."""
    return _rows(connection, values, BigInteger)


def among(connection: Connection, one: ColumnElement[str], values: Iterable[str]) -> ColumnElement[bool]:
    """Whether a column of few different values, as the folder that a document lies in, is one of ``values``.

    PostgreSQL takes it for granted that every row of a join has its match, and reads through all of them to find it; of
    a comparison with an array it knows better.
    """
    if is_sqlite(connection):
        return one.in_(texts(connection, values))
    return one == any_(literal(list(values), ARRAY(Text)))


def _rows(connection: Connection, values: Iterable[object], kind: type[TypeEngine[Any]]) -> Select[Any]:
    listed = list(values)
    if is_sqlite(connection):
        parameter = literal(orjson.dumps(listed).decode(), Text)
        return select(func.json_each(parameter).table_valued(column("value", kind)).c.value)
    # PostgreSQL looks into an array when it plans; of a JSON list it would guess that it holds a hundred.
    rows = func.unnest(literal(listed, ARRAY(kind))).table_valued(column("value", kind)).render_derived()
    return select(rows.c.value)


def dump(value: object) -> str:
    """JSON for a column."""
    return orjson.dumps(value).decode()


def without_none(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def load_object(text: str) -> dict[str, object]:
    """The JSON object in a column."""
    value: dict[str, object] = orjson.loads(text)
    return value


def load_list(text: str) -> list[str]:
    """The JSON list of strings in a column."""
    value: list[str] = orjson.loads(text)
    return value
