"""Statements: one SQL text for both databases.

A statement is a constant text with a few words in it that each database spells its own way:

====================  ==========================================================================================
``@list(name)``       a query for the texts, as ``value``, in the JSON list that the parameter ``name`` holds
``@numbers(name)``    the same for whole numbers: ``p.ordinal IN (@numbers(ordinals))``
``@part(column, 0)``   of a column that holds a JSON list of texts: its first, as text
``@each(column)``      a table with the column ``value``: the texts in a column that holds a JSON list
``@json(expression)``  the expression, a text, as a JSON string
``@minute(expression)``  the expression, epoch milliseconds, as people read it: ``2026-11-20 12:00 UTC``
``@keyed``            ends the definition of a temporary table: clustered by its key, gone with the transaction
``@ordinal``          a column of a temporary table: the number of the row, in the order in which they are inserted
``@brief``            ends the definition of a temporary table: gone with the transaction
``@by(index)``          after a table: find its rows by this index (SQLite, which keeps no statistics and may prefer
                      the primary key for being there; PostgreSQL chooses for itself)
``@bytes``            after an expression in ORDER BY: compare byte by byte, whatever the database's locale is
====================  ==========================================================================================

Parts of a text that differ from call to call stand as ``{name}`` and are filled in from constants of the same module,
never from data: data travels in parameters alone.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Any

from sqlalchemy import Connection, CursorResult, TextClause, text

from app.foundation.database.engine import is_sqlite

_WORD = re.compile(
    r"@(?:list\((?P<list>\w+)\)|numbers\((?P<numbers>\w+)\)|part\((?P<part>[\w.]+), (?P<index>\d+)\)"
    r"|each\((?P<each>[\w.]+)\)|json\((?P<json>[\w.]+)\)|minute\((?P<minute>[^()]*(?:\([^()]*\)[^()]*)*)\)"
    r"|by\((?P<by>\w+)\)|(?P<keyed>keyed)\b|(?P<ordinal>ordinal)\b|(?P<brief>brief)\b|(?P<bytes>bytes)\b)"
)


def statement(connection: Connection, template: str, **parts: str) -> TextClause:
    """The template in the spelling of the connection's database, its ``{name}`` parts filled in."""
    return _spelled(template, tuple(parts.items()), sqlite=is_sqlite(connection))[0]


def run(
    connection: Connection,
    template: str,
    parameters: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
    /,
    **parts: str,
) -> CursorResult[*tuple[Any, ...]]:
    """Executes the template with its parameters, those that the text does not mention left out; or once for each of
    several, which are those that it mentions."""
    clause, wanted = _spelled(template, tuple(parts.items()), sqlite=is_sqlite(connection))
    if isinstance(parameters, Sequence):
        return connection.execute(clause, parameters)
    return connection.execute(clause, {name: (parameters or {})[name] for name in wanted})


_MOST_PARAMETERS = 240
"""Of one INSERT: to begin a statement takes as long as to write two or three rows, and with more nothing is gained."""


def insert_on_sqlite(connection: Connection, insert: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Executes ``INSERT INTO table (columns)`` for rows of as many values, of which each statement takes several."""
    if not rows:
        return
    width = len(rows[0])
    at_once = max(1, _MOST_PARAMETERS // width)
    whole = len(rows) - len(rows) % at_once
    if whole:
        several = [tuple(chain.from_iterable(rows[at : at + at_once])) for at in range(0, whole, at_once)]
        connection.exec_driver_sql(f"{insert} VALUES {_marks(width, at_once)}", several)
    if whole < len(rows):
        connection.exec_driver_sql(f"{insert} VALUES {_marks(width, 1)}", list(rows[whole:]))


@cache
def _marks(width: int, rows: int) -> str:
    return ", ".join([f"({', '.join('?' * width)})"] * rows)


def json_list(values: Iterable[int | str]) -> str:
    """The value of a parameter that ``@list`` or ``@numbers`` takes apart: however many there are, it is one statement
    with one parameter."""
    return json.dumps(list(values), ensure_ascii=False)


@lru_cache(maxsize=1024)
def _spelled(template: str, parts: tuple[tuple[str, str], ...], *, sqlite: bool) -> tuple[TextClause, tuple[str, ...]]:
    """The statement, and the names of its parameters. There are as many as the modules have constants."""
    for name, part in parts:
        template = template.replace("{" + name + "}", part)
    clause = text(_WORD.sub(_spell_sqlite if sqlite else _spell_postgresql, template))
    return clause, tuple(clause.compile().params)


def _spell_sqlite(word: re.Match[str]) -> str:
    if name := word["list"] or word["numbers"]:
        return f"SELECT value FROM json_each(:{name})"  # noqa: S608 - a name out of a constant template
    if word["part"]:
        return f"json_extract({word['part']}, '$[{word['index']}]')"
    if column := word["each"]:
        return f"json_each({column})"
    if expression := word["json"]:
        return f"json_quote({expression})"
    if expression := word["minute"]:
        return f"strftime('%Y-%m-%d %H:%M', ({expression}) / 1000, 'unixepoch') || ' UTC'"
    if index := word["by"]:
        return f"INDEXED BY {index}"
    if word["ordinal"]:
        return "INTEGER PRIMARY KEY"
    return "WITHOUT ROWID" if word["keyed"] else ""


def _spell_postgresql(word: re.Match[str]) -> str:
    if name := word["list"]:
        return f"SELECT value FROM jsonb_array_elements_text(CAST(:{name} AS JSONB)) AS listed (value)"  # noqa: S608 - as above
    if name := word["numbers"]:
        return f"SELECT CAST(jsonb_array_elements_text(CAST(:{name} AS JSONB)) AS BIGINT)"
    if word["part"]:
        return f"CAST({word['part']} AS JSONB) ->> {word['index']}"
    if column := word["each"]:
        return f"LATERAL (SELECT value FROM jsonb_array_elements_text(CAST({column} AS JSONB)) AS listed (value))"  # noqa: S608 - as above
    if expression := word["json"]:
        return f"CAST(to_json(CAST({expression} AS TEXT)) AS TEXT)"
    if expression := word["minute"]:
        return f"to_char(to_timestamp(({expression}) / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC'"
    if word["by"]:
        return ""
    if word["ordinal"]:
        return "BIGINT GENERATED ALWAYS AS IDENTITY"
    return 'COLLATE "C"' if word["bytes"] else "ON COMMIT DROP"
