"""Statements that write or select any number of rows.

Their number and their texts are the same for batches of all sizes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import orjson
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    column,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from app.foundation.database.engine import is_sqlite

SelectT = TypeVar("SelectT", bound=Select[*tuple[Any, ...]])
Writable = dict[str, object]
"""A row to write, by column."""


def among(connection: Connection, tested: ColumnElement[Any], values: Iterable[object]) -> ColumnElement[bool]:
    """Whether a column has one of ``values``: one parameter that the database unpacks."""
    kind = BigInteger if isinstance(tested.type, Integer) else Text
    if is_sqlite(connection):
        parameter = literal(orjson.dumps(list(values)).decode(), Text)
        return tested.in_(select(func.json_each(parameter).table_valued(column("value", kind)).c.value))
    # The planner of PostgreSQL reads the size of an array. Of a JSON list it would assume 100 elements.
    return tested == any_(literal(list(values), postgresql.ARRAY(kind)))


def where_given(
    connection: Connection, query: SelectT, *filters: tuple[ColumnElement[Any], str | Collection[str] | None]
) -> SelectT:
    """Filters ``query`` by columns and their value or values. None filters nothing."""
    for tested, value in filters:
        if value is not None:
            query = query.where(tested == value if isinstance(value, str) else among(connection, tested, value))
    return query


def insert_rows(connection: Connection, table: Table, rows: Iterable[Mapping[str, object]]) -> None:
    """Inserts rows in one statement. Without rows, there is no statement."""
    if listed := list(rows):
        connection.execute(insert(table), listed)


def update_rows(
    connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[Mapping[str, object]]
) -> None:
    """Updates these columns of the rows with the same primary keys, like ``insert_rows``."""
    keys = [column.name for column in table.primary_key]
    listed = [{f"key_{key}": row[key] for key in keys} | {name: row[name] for name in columns} for row in rows]
    if listed:
        statement = update(table).where(*(table.c[key] == bindparam(f"key_{key}") for key in keys))
        connection.execute(statement, listed)


def upsert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT with ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    return sqlite.insert(table) if is_sqlite(connection) else postgresql.insert(table)
