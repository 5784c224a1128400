"""Writes any number of rows in one statement (without rows, there is no statement), and groups read ones."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection, Table, bindparam, insert, update
from sqlalchemy.dialects import postgresql, sqlite

from app.foundation.database.engine import is_sqlite

K = TypeVar("K")
V = TypeVar("V")
Writable = dict[str, object]
"""A row to write, by column."""


def insert_rows(connection: Connection, table: Table, rows: Iterable[Mapping[str, object]]) -> None:
    if listed := list(rows):
        connection.execute(insert(table), listed)


def update_rows(
    connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[Mapping[str, object]]
) -> None:
    """Updates these columns of the rows with the same primary keys."""
    keys = [column.name for column in table.primary_key]
    listed = [{f"key_{key}": row[key] for key in keys} | {name: row[name] for name in columns} for row in rows]
    if listed:
        statement = update(table).where(*(table.c[key] == bindparam(f"key_{key}") for key in keys))
        connection.execute(statement, listed)


def upsert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT with ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    return sqlite.insert(table) if is_sqlite(connection) else postgresql.insert(table)


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values by key, in the order of the pairs."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
