"""How does a set of ids travel into a statement, whatever its size?

As one JSON parameter that the database takes apart, so that the number of statements and their texts never depend on
a batch's size.
"""

from collections.abc import Iterable

import orjson
from sqlalchemy import BigInteger, Connection, Select, Text, cast, column, func, literal, select
from sqlalchemy.dialects.postgresql import JSONB

from app.database.engine import is_sqlite


def texts(connection: Connection, values: Iterable[str]) -> Select[str]:
    """`values` as a subquery of one column, for `column.in_(…)`."""
    parameter = literal(orjson.dumps(list(values)).decode(), Text)
    if is_sqlite(connection):
        rows = func.json_each(parameter).table_valued(column("value", Text))
    else:
        rows = func.jsonb_array_elements_text(cast(parameter, JSONB)).table_valued(column("value", Text))
    return select(rows.c.value)


def integers(connection: Connection, values: Iterable[int]) -> Select[int]:
    """The same for whole numbers."""
    parameter = literal(orjson.dumps(list(values)).decode(), Text)
    if is_sqlite(connection):
        rows = func.json_each(parameter).table_valued(column("value", BigInteger))
        return select(rows.c.value)
    found = func.jsonb_array_elements_text(cast(parameter, JSONB)).table_valued(column("value", Text))
    return select(cast(found.c.value, BigInteger))


def dump(value: object) -> str:
    """JSON for a column."""
    return orjson.dumps(value).decode()


def load_object(text: str) -> dict[str, object]:
    """The JSON object in a column."""
    value: dict[str, object] = orjson.loads(text)
    return value


def load_list(text: str) -> list[str]:
    """The JSON list of strings in a column."""
    value: list[str] = orjson.loads(text)
    return value
