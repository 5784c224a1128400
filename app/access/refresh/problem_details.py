"""Looks up the details of problems, such as the place where another source provides the key.

A push reports every record without effect, in its transaction. So the number of statements depends on the causes, the
columns and the sources, and not on the number of problems.
"""

# ruff: noqa: S608 - these texts consist of constants of this module and of names of columns and tables

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Row

from app.access.problems import ProblemCause
from app.access.refresh.tables import REFRESH_TABLES_OF_KIND, RefreshTables
from app.access.tables import ACCESS_TABLES
from app.foundation.database.statements import json_list, json_lists, run

Detail = tuple[ProblemCause, tuple[str, ...]]
"""The cause of a problem, and ``Problem.detail``."""

_Key = tuple[str, ...]


def find_details(
    connection: Connection, tables: RefreshTables, rows: Sequence[Row[Any]], names: Mapping[int, str]
) -> list[Detail]:
    """The details of problems of one kind, in the order of ``rows``. ``names``: source → its name."""
    aliases: set[str] = set()
    keys_of_source: dict[int, set[_Key]] = defaultdict(set)
    keys_of_column: dict[str, set[_Key]] = defaultdict(set)
    for row in rows:
        match row.cause_or_column:
            case ProblemCause.REPEATED:
                keys_of_source[row.source_id].add(_key(tables, row))
            case ProblemCause.OWNED:
                keys_of_source[row.owner].add(_key(tables, row))
            case ProblemCause.SHARED_ALIAS:
                aliases.add(row.user_alias)
            case column if column in tables.record_kind.by_attribute:
                keys_of_column[column].add(_referenced_key(tables, row))
    places = {source_id: _places(connection, tables, source_id, keys) for source_id, keys in keys_of_source.items()}
    existing = {column: _existing(connection, tables, column, keys) for column, keys in keys_of_column.items()}
    users = _users_of_aliases(connection, aliases)

    def detail(row: Row[Any]) -> Detail:
        match row.cause_or_column:
            case ProblemCause.REPEATED:
                return ProblemCause.REPEATED, (places[row.source_id].get(_key(tables, row), ""),)
            case ProblemCause.OWNED:
                place = places[row.owner].get(_key(tables, row), "")
                return ProblemCause.OWNED, (names.get(row.owner, ""), place)
            case ProblemCause.UNKNOWN_ALIAS:
                return ProblemCause.UNKNOWN_ALIAS, (row.user_alias,)
            case ProblemCause.SHARED_ALIAS:
                return ProblemCause.SHARED_ALIAS, (row.user_alias, *users.get(row.user_alias, ()))
            case ProblemCause.FOLDER_CYCLE:
                return ProblemCause.FOLDER_CYCLE, ()
        # Everything else is the column of a reference.
        reference, key = tables.record_kind.by_attribute[row.cause_or_column], _referenced_key(tables, row)
        cause = ProblemCause.WITHOUT_EFFECT if key in existing[row.cause_or_column] else ProblemCause.UNKNOWN
        return cause, (reference.refers_to, key[-1], reference.name)

    return [detail(row) for row in rows]


def _key(tables: RefreshTables, row: Row[Any]) -> _Key:
    """The key of the access model."""
    names_user = tables.record_kind.names_user
    return tuple(row.named_user if names_user and name == "user_id" else getattr(row, name) for name in tables.keys)


def _referenced_key(tables: RefreshTables, row: Row[Any]) -> _Key:
    """The key of the record to which the column of the problem refers."""
    column = row.cause_or_column
    target = ACCESS_TABLES[tables.record_kind.by_attribute[column].refers_to]
    *within, _ = target.primary_key.columns
    value = row.named_user if column == "user_id" else getattr(row, column)
    return (*(getattr(row, other.name) for other in within), value)


def _places(connection: Connection, tables: RefreshTables, source_id: int, keys: Collection[_Key]) -> dict[_Key, str]:
    """Where a source provides each key first."""
    first: dict[_Key, tuple[tuple[str, int, str], str]] = {}
    for row in run(connection, _places_statement(tables.kind), {"keys": json_lists(keys), "source_id": source_id}):
        key, order = tuple(json.loads(row.key)), (row.origin, len(row.rule), row.rule)
        if key not in first or order < first[key][0]:
            first[key] = order, row.place
    return {key: place for key, (_, place) in first.items()}


@cache
def _places_statement(kind: str) -> str:
    tables = REFRESH_TABLES_OF_KIND[kind]
    names_user = tables.record_kind.names_user
    same = _same("p", [None if names_user and name == "user_id" else name for name in tables.keys])
    columns = "SELECT requested.value AS key, p.place, p.origin, p.rule FROM (@list(keys)) AS requested"
    rows = f"CROSS JOIN {tables.source.name} p WHERE p.source_id = :source_id AND {same}"
    if not names_user:
        return f"{columns} {rows}"
    # The source names the user by the id, or by an alias.
    user = f"@part(requested.value, {tables.keys.index('user_id')})"
    return f"""
{columns} {rows} AND p.user_id = {user} AND p.user_alias = ''
UNION ALL
{columns} CROSS JOIN model_user_alias h {rows}
  AND {user} <> '' AND h.user_id = {user} AND p.user_id = '' AND p.user_alias = h.alias"""


def _existing(connection: Connection, tables: RefreshTables, column: str, keys: Collection[_Key]) -> set[_Key]:
    """The keys of records that exist, of those to which a column refers."""
    target = ACCESS_TABLES[tables.record_kind.by_attribute[column].refers_to]
    same = _same("t", [key.name for key in target.primary_key.columns])
    query = f"SELECT requested.value AS key FROM (@list(keys)) AS requested CROSS JOIN {target.name} t WHERE {same}"
    return {tuple(json.loads(key)) for key in run(connection, query, {"keys": json_lists(keys)}).scalars()}


def _same(table: str, columns: Sequence[str | None]) -> str:
    """The condition that the columns have the values of a requested key. None: any value."""
    return " AND ".join(
        f"{table}.{name} = @part(requested.value, {number})" for number, name in enumerate(columns) if name is not None
    )


_USERS_OF_ALIASES = """
SELECT alias, user_id FROM (
  SELECT h.alias, h.user_id, ROW_NUMBER() OVER (PARTITION BY h.alias ORDER BY h.user_id @bytes) AS ordinal
  FROM model_user_alias h WHERE h.alias IN (@list(aliases))) AS numbered
WHERE ordinal <= 3 ORDER BY alias, ordinal
"""


def _users_of_aliases(connection: Connection, aliases: Collection[str]) -> dict[str, list[str]]:
    """Alias → the first three users who have it."""
    users: dict[str, list[str]] = defaultdict(list)
    if aliases:
        for row in run(connection, _USERS_OF_ALIASES, {"aliases": json_list(aliases)}):
            users[row.alias].append(row.user_id)
    return users
