"""Looks up the details of problems, such as the place where another source provides the key.

A push reports every record without effect, in its transaction. So the number of statements depends on the causes and
the columns, and not on the number of problems.
"""

# ruff: noqa: S608 - these texts consist of constants of this module and of names of columns and tables

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Row, Table

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
    rows_of_cause: dict[str, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        rows_of_cause[row.cause_or_column].append(row)
    details = {
        cause: iter(_details_of_cause(connection, tables, cause, of_cause, names))
        for cause, of_cause in rows_of_cause.items()
    }
    return [next(details[row.cause_or_column]) for row in rows]


def _details_of_cause(
    connection: Connection,
    tables: RefreshTables,
    cause_or_column: str,
    rows: Sequence[Row[Any]],
    names: Mapping[int, str],
) -> list[Detail]:
    """The details of problems that have the same cause, or are in the same column."""
    match cause_or_column:
        case ProblemCause.REPEATED:
            places = _places(connection, tables, [(row.source_id, _key(tables, row)) for row in rows])
            return [(ProblemCause.REPEATED, (place,)) for place in places]
        case ProblemCause.OWNED:
            places = _places(connection, tables, [(row.owner, _key(tables, row)) for row in rows])
            owners = [names.get(row.owner, "") for row in rows]
            return [(ProblemCause.OWNED, detail) for detail in zip(owners, places, strict=True)]
        case ProblemCause.UNKNOWN_ALIAS:
            return [(ProblemCause.UNKNOWN_ALIAS, (row.user_alias,)) for row in rows]
        case ProblemCause.SHARED_ALIAS:
            users = _users_of_aliases(connection, {row.user_alias for row in rows})
            return [(ProblemCause.SHARED_ALIAS, (row.user_alias, *users.get(row.user_alias, ()))) for row in rows]
        case ProblemCause.FOLDER_CYCLE:
            return [(ProblemCause.FOLDER_CYCLE, ())] * len(rows)
    # Everything else is the column of a reference.
    reference = tables.record_kind.by_attribute[cause_or_column]
    target = ACCESS_TABLES[reference.refers_to]
    keys = [_referenced_key(target, cause_or_column, row) for row in rows]
    existing = _existing(connection, target, keys)
    causes = [ProblemCause.WITHOUT_EFFECT if key in existing else ProblemCause.UNKNOWN for key in keys]
    return [(cause, (reference.refers_to, key[-1], reference.name)) for cause, key in zip(causes, keys, strict=True)]


def _key(tables: RefreshTables, row: Row[Any]) -> _Key:
    """The key of the access model."""
    may_use_alias = tables.record_kind.may_use_alias
    return tuple(row.named_user if may_use_alias and name == "user_id" else getattr(row, name) for name in tables.keys)


def _referenced_key(target: Table, column: str, row: Row[Any]) -> _Key:
    """The key of the record in ``target`` to which the column refers. It begins as the key of the row itself."""
    *outer_columns, _ = target.primary_key.columns
    value = row.named_user if column == "user_id" else getattr(row, column)
    return (*(getattr(row, outer.name) for outer in outer_columns), value)


def _places(connection: Connection, tables: RefreshTables, keys: Sequence[tuple[int, _Key]]) -> list[str]:
    """Where each source provides each key first, in the order of ``keys``. Empty if it does not."""
    texts = [json.dumps([str(source_id), *key], ensure_ascii=False) for source_id, key in keys]
    rows = run(connection, _places_statement(tables.kind), {"keys": json_list(set(texts))})
    first: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: (row.origin, len(row.rule), row.rule)):
        first.setdefault(row.key, row.place)
    return [first.get(text, "") for text in texts]


@cache
def _places_statement(kind: str) -> str:
    tables = REFRESH_TABLES_OF_KIND[kind]
    may_use_alias = tables.record_kind.may_use_alias
    same = _conditions("p", [None if may_use_alias and name == "user_id" else name for name in tables.keys], first=1)
    columns = "SELECT requested.value AS key, p.place, p.origin, p.rule FROM (@list(keys)) AS requested"
    rows = f"""CROSS JOIN {tables.source.name} p
WHERE p.source_id = CAST(@part(requested.value, 0) AS INTEGER) AND {same}"""
    if not may_use_alias:
        return f"{columns} {rows}"
    # The source names the user by the id, or by an alias.
    user = f"@part(requested.value, {tables.keys.index('user_id') + 1})"
    return f"""
{columns} {rows} AND p.user_id = {user} AND p.user_alias = ''
UNION ALL
{columns} CROSS JOIN model_user_alias h {rows}
  AND {user} <> '' AND h.user_id = {user} AND p.user_id = '' AND p.user_alias = h.alias"""


def _existing(connection: Connection, target: Table, keys: Collection[_Key]) -> set[_Key]:
    """Those of the keys that exist."""
    same = _conditions("t", [key.name for key in target.primary_key.columns])
    query = f"SELECT requested.value AS key FROM (@list(keys)) AS requested CROSS JOIN {target.name} t WHERE {same}"
    return {tuple(json.loads(key)) for key in run(connection, query, {"keys": json_lists(set(keys))}).scalars()}


def _conditions(table: str, columns: Sequence[str | None], *, first: int = 0) -> str:
    """The condition that the columns have the values of a requested key, which begins at ``first``. None: any value."""
    return " AND ".join(
        f"{table}.{name} = @part(requested.value, {number})" for number, name in enumerate(columns, first) if name
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
    for row in run(connection, _USERS_OF_ALIASES, {"aliases": json_list(aliases)}):
        users[row.alias].append(row.user_id)
    return users
