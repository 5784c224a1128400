"""Records statements and checks their query plans."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, event, text

from app.foundation.database.engine import is_sqlite

Statements = list[tuple[str, Any]]
"""Statements with their parameters."""

_ALL_OF_ONE_ORGANIZATION = (
    # SQLite's words, and PostgreSQL's.
    r"SEARCH (\w+) .*\(api_key_id=\? AND organization_id=\?\)$",
    r"Index Cond: \(\(\(api_key_id\)::text = '[^']*'::text\) AND \(\(organization_id\)::text = '[^']*'::text\)\)$",
)

_ORGANIZATION_ITSELF = re.compile(r"Index (Only )?Scan using \w+ on organization\b")


@contextmanager
def recorded(engine: Engine, tables: Collection[str]) -> Iterator[Statements]:
    """Records the statements on these tables within the block, except inserts of many rows."""
    statements: Statements = []
    named = re.compile(rf"\b({'|'.join(tables)})\b")

    def record(_: Connection, __: object, statement: str, parameters: Any, ___: object, many: bool) -> None:
        if not many and not statement.startswith("INSERT") and named.search(statement):
            statements.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", record)
    yield statements
    event.remove(engine, "before_cursor_execute", record)


def plan(connection: Connection, statement: str, parameters: Any) -> str:
    """The query plan of a statement."""
    explain = "EXPLAIN QUERY PLAN " if is_sqlite(connection) else "EXPLAIN "
    return "\n".join(str(row[-1]) for row in connection.exec_driver_sql(explain + statement, parameters))


def check_plans(
    engine: Engine, name: str, statements: Statements, tables: Collection[str], *, through_organization: bool = False
) -> None:
    """Fails for a statement that reads through a table, or through all that one organization has of it (but for
    ``organization``, which has one row for each).

    ``through_organization``: the call may read its organization's own rows, which it does from one end until a page is
    full.
    """
    with engine.connect() as connection:
        if not is_sqlite(connection):
            # In tables as small as these it is quick to read everything and to pick from it afterwards; whether there
            # is a better way in large ones is the question.
            for way in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"):
                connection.execute(text(f"SET LOCAL {way} = off"))
        for statement, parameters in statements:
            told = plan(connection, statement, parameters)
            place = f"{name}\n{statement}\n{told}"
            for table in tables:
                assert f"SCAN {table}\n" not in f"{told}\n", place
                assert f"Seq Scan on {table} " not in told, place
            if not through_organization:
                found = [re.search(pattern, told, re.MULTILINE) for pattern in _ALL_OF_ONE_ORGANIZATION]
                through = [match[1] if match.groups() else "" for match in found if match]
                assert not any(table in tables and table != "organization" for table in through if table), place
                assert "" not in through or _ORGANIZATION_ITSELF.search(told), place
