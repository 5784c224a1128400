"""Sets of ids as a parameter of a statement.

A set is one parameter that the database unpacks (JSON on SQLite, an array on PostgreSQL). So the number and texts of
statements do not depend on the size of a batch.
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
    """``values`` as a subquery of one column of integers."""
    return _rows(connection, values, BigInteger)


def among(connection: Connection, tested: ColumnElement[str], values: Iterable[str]) -> ColumnElement[bool]:
    """Whether a column has one of ``values``.

    Use it for conditions, and ``texts`` for joins: PostgreSQL estimates a comparison with an array better than a join
    with a set.
    """
    if is_sqlite(connection):
        return tested.in_(texts(connection, values))
    return tested == any_(literal(list(values), ARRAY(Text)))


def _rows(connection: Connection, values: Iterable[object], kind: type[TypeEngine[Any]]) -> Select[Any]:
    elements = list(values)
    if is_sqlite(connection):
        parameter = literal(orjson.dumps(elements).decode(), Text)
        return select(func.json_each(parameter).table_valued(column("value", kind)).c.value)
    # The planner of PostgreSQL reads the size of an array. Of a JSON list it would assume 100 elements.
    rows = func.unnest(literal(elements, ARRAY(kind))).table_valued(column("value", kind)).render_derived()
    return select(rows.c.value)
