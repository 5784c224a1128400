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
    # In the plans of SQLite and of PostgreSQL.
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
    """Fails for a scan of a table, or of all rows of one organization (except in ``organization``, which has one).

    ``through_organization`` permits a scan of the organization's rows, for a call that reads them until a page is full.
    """
    with engine.connect() as connection:
        if not is_sqlite(connection):
            # In small tables a scan is the fastest plan. Disabled, it is chosen only if no index can be used.
            for setting in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"):
                connection.execute(text(f"SET LOCAL {setting} = off"))
        for statement, parameters in statements:
            explained = plan(connection, statement, parameters)
            place = f"{name}\n{statement}\n{explained}"
            for table in tables:
                assert f"SCAN {table}\n" not in f"{explained}\n", place
                assert f"Seq Scan on {table} " not in explained, place
            if not through_organization:
                found = [re.search(pattern, explained, re.MULTILINE) for pattern in _ALL_OF_ONE_ORGANIZATION]
                through = [match[1] if match.groups() else "" for match in found if match]
                assert not any(table in tables and table != "organization" for table in through if table), place
                assert "" not in through or _ORGANIZATION_ITSELF.search(explained), place
