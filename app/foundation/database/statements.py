"""One SQL text for both databases.

A statement is a constant text. Its markers, such as ``@list(name)``, are replaced by the syntax of the database:
``_MARKERS`` defines them all. ``{name}`` is replaced by a constant of the caller's module, never by data. Data is only
passed as parameters.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection, CursorResult, TextClause, text

from app.foundation.database.engine import is_sqlite


class _Marker(NamedTuple):
    """The syntax of each database. ``{0}``, ``{1}`` are the arguments."""

    sqlite: str
    postgresql: str


_TEXTS = "jsonb_array_elements_text(CAST({0} AS JSONB)) AS listed (value)"

_MARKERS = {
    # @list(name): a query for the texts, as `value`, in the JSON list that is the parameter `name`.
    "list": _Marker("SELECT value FROM json_each(:{0})", f"SELECT value FROM {_TEXTS.replace('{0}', ':{0}')}"),  # noqa: S608 - constants
    # @numbers(name): the same for whole numbers, as in `p.ordinal IN (@numbers(ordinals))`.
    "numbers": _Marker(
        "SELECT value FROM json_each(:{0})", "SELECT CAST(jsonb_array_elements_text(CAST(:{0} AS JSONB)) AS BIGINT)"
    ),
    # @each(column): a table with the column `value`: the texts of a JSON list in a column.
    "each": _Marker("json_each({0})", f"LATERAL (SELECT value FROM {_TEXTS})"),  # noqa: S608 - constants
    # @numbered(column): a table with `key`, the position from 0, and `value`: the texts of a JSON list in a column.
    "numbered": _Marker(
        "json_each({0})",
        "LATERAL (SELECT position - 1 AS key, value"
        " FROM jsonb_array_elements_text(CAST({0} AS JSONB)) WITH ORDINALITY AS listed (value, position))",
    ),
    # @rows(query), in a join: a table with the column `value` of a query that uses columns of the tables before it.
    "rows": _Marker("json_each((SELECT json_group_array(value) FROM ({0})))", "LATERAL ({0})"),
    # @part(column, 0): the first text of a JSON list in a column.
    "part": _Marker("json_extract({0}, '$[{1}]')", "CAST({0} AS JSONB) ->> {1}"),
    # @json(expression): a text as a JSON string.
    "json": _Marker("json_quote({0})", "CAST(to_json(CAST({0} AS TEXT)) AS TEXT)"),
    # @minute(expression): epoch milliseconds as `2026-11-20 12:00 UTC`.
    "minute": _Marker(
        "strftime('%Y-%m-%d %H:%M', ({0}) / 1000, 'unixepoch') || ' UTC'",
        "to_char(to_timestamp(({0}) / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC'",
    ),
    # @by(index), after a table: use this index. SQLite has no statistics here and may prefer the primary key.
    "by": _Marker("INDEXED BY {0}", ""),
    # @bytes, in ORDER BY: compare bytes instead of using the locale.
    "bytes": _Marker("", 'COLLATE "C"'),
    # @separator: U+0001. @escaped(column): a text without it. @joined(column): the texts of a group, separated by it.
    "separator": _Marker("char(1)", "chr(1)"),
    "escaped": _Marker(
        "replace(replace({0}, char(2), char(2, 2)), char(1), char(2, 3))",
        "replace(replace({0}, chr(2), chr(2) || chr(2)), chr(1), chr(2) || chr(3))",
    ),
    "joined": _Marker("group_concat({0}, char(1))", "string_agg({0}, chr(1))"),
    # @keyed, after the definition of a temporary table: clustered by its key, dropped at the commit.
    "keyed": _Marker("WITHOUT ROWID", "ON COMMIT DROP"),
    # @brief, after the definition of a temporary table: dropped at the commit.
    "brief": _Marker("", "ON COMMIT DROP"),
    # @distinct, after SELECT, if all rows differ: PostgreSQL expects at most a few ten thousand then.
    "distinct": _Marker("", "DISTINCT"),
    # @ordinal, the type of a column of a temporary table: numbers the rows in the order of their inserts.
    "ordinal": _Marker("INTEGER PRIMARY KEY", "BIGINT GENERATED ALWAYS AS IDENTITY"),
}
_MARKER = re.compile(rf"@({'|'.join(_MARKERS)})\b(?:\(((?:[^()]|\([^()]*\))*)\))?")


def statement(connection: Connection, template: str, **parts: str) -> TextClause:
    """The template in the syntax of the connection's database, with ``parts`` in place of ``{name}``."""
    return _compiled(template, tuple(parts.items()), sqlite=is_sqlite(connection))[0]


def run(
    connection: Connection,
    template: str,
    parameters: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
    /,
    **parts: str,
) -> CursorResult[*tuple[Any, ...]]:
    """Executes the template, once for each of several parameter sets. If there is a single set, parameters that the
    template does not use are ignored."""
    clause, names = _compiled(template, tuple(parts.items()), sqlite=is_sqlite(connection))
    if isinstance(parameters, Sequence):
        return connection.execute(clause, parameters)
    return connection.execute(clause, {name: (parameters or {})[name] for name in names})


def prefer_indexes(connection: Connection, *, on: bool = True) -> None:
    """Makes PostgreSQL look up rows by index for the rest of the transaction, whatever its statistics of the tables.
    ``on=False`` ends that."""
    if not is_sqlite(connection):
        value = "off" if on else "DEFAULT"
        settings = ("enable_hashjoin", "enable_mergejoin", "enable_seqscan")
        connection.exec_driver_sql("; ".join(f"SET LOCAL {setting} = {value}" for setting in settings))


def keep_join_order(connection: Connection, *, on: bool = True) -> None:
    """Makes PostgreSQL join tables in the order of the statement for the rest of the transaction, as ``CROSS JOIN``
    does on SQLite. ``on=False`` ends that."""
    if not is_sqlite(connection):
        connection.exec_driver_sql(f"SET LOCAL join_collapse_limit = {'1' if on else 'DEFAULT'}")


_MAX_PARAMETERS = 240
"""The parameters of one INSERT. More gain nothing: the overhead of a statement is that of two or three rows."""


def insert_on_sqlite(connection: Connection, insert: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Executes ``INSERT INTO table (columns)`` with several rows per statement. All rows have the same length."""
    if not rows:
        return
    width = len(rows[0])
    size = max(1, _MAX_PARAMETERS // width)
    full = len(rows) - len(rows) % size
    if full:
        batches = [tuple(chain.from_iterable(rows[at : at + size])) for at in range(0, full, size)]
        connection.exec_driver_sql(f"{insert} VALUES {_placeholders(width, size)}", batches)
    if full < len(rows):
        connection.exec_driver_sql(f"{insert} VALUES {_placeholders(width, 1)}", list(rows[full:]))


@cache
def _placeholders(width: int, rows: int) -> str:
    return ", ".join([f"({', '.join('?' * width)})"] * rows)


def json_list(values: Iterable[int | str]) -> str:
    """The value of a parameter of ``@list`` or ``@numbers``: one parameter for any number of values."""
    return json.dumps(list(values), ensure_ascii=False)


def json_lists(keys: Iterable[Sequence[str]]) -> str:
    """The same for lists of texts, as JSON: ``@part`` returns their texts."""
    return json_list(json.dumps(key, ensure_ascii=False) for key in keys)


@lru_cache(maxsize=1024)
def _compiled(template: str, parts: tuple[tuple[str, str], ...], *, sqlite: bool) -> tuple[TextClause, tuple[str, ...]]:
    """The statement and the names of its parameters. The number of templates is bounded: they are constants."""
    for name, part in parts:
        template = template.replace("{" + name + "}", part)

    def replacement(match: re.Match[str]) -> str:
        marker = _MARKERS[match[1]]
        inner = _MARKER.sub(replacement, match[2] or "")
        arguments = inner.split(", ") if match[1] == "part" else [inner]
        return (marker.sqlite if sqlite else marker.postgresql).format(*arguments)

    clause = text(_MARKER.sub(replacement, template))
    return clause, tuple(clause.compile().params)
