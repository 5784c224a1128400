"""How does the database find feature data? Through an index that leads to few rows, however much there is of others."""

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text

from app.backend.call import Scope
from app.backend.features import deletion
from app.database.engine import is_sqlite, writing
from tests.bench.features import fill, operations

from .conftest import World

TABLES = (
    "activity",
    "comment",
    "comment_annotation",
    "notification",
    "notification_user",
    "reaction",
    "recording",
    "thread_user",
    "user_entry",
)
RECORDS = 30_000
USERS = 3_000
WHOLE_ORGANIZATION = {
    "activities of an organization",
    "activities, oldest first",
    "threads of an organization",
    "notifications of an organization",
}
"""What reads the organization's own index from one end, row by row until the page is full."""


@contextmanager
def heard(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """The statements that run meanwhile, with their parameters; not those for many rows at once, which insert."""
    statements: list[tuple[str, Any]] = []

    def hear(_: Connection, __: object, statement: str, parameters: Any, ___: object, many: bool) -> None:
        if not many and not statement.startswith("INSERT") and re.search(rf"\b({'|'.join(TABLES)})\b", statement):
            statements.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", hear)
    yield statements
    event.remove(engine, "before_cursor_execute", hear)


def plan(connection: Connection, statement: str, parameters: Any) -> str:
    explain = "EXPLAIN QUERY PLAN " if is_sqlite(connection) else "EXPLAIN "
    return "\n".join(str(row[-1]) for row in connection.exec_driver_sql(explain + statement, parameters))


ALL_OF_ONE_ORGANIZATION = (
    # SQLite's words, and PostgreSQL's.
    r"SEARCH (\w+) .*\(api_key_id=\? AND organization_id=\?\)$",
    r"Index Cond: \(\(\(api_key_id\)::text = '[^']*'::text\) AND \(\(organization_id\)::text = '[^']*'::text\)\)$",
)


def check(engine: Engine, name: str, statements: list[tuple[str, Any]]) -> None:
    with engine.connect() as connection:
        if not is_sqlite(connection):
            # In tables as small as these a scan is quick; whether there is a better way in large ones is the question.
            connection.execute(text("SET LOCAL enable_seqscan = off"))
        for statement, parameters in statements:
            told = plan(connection, statement, parameters)
            place = f"{name}\n{statement}\n{told}"
            for table in TABLES:
                assert f"SCAN {table}\n" not in f"{told}\n", place
                assert f"Seq Scan on {table} " not in told, place
            if name not in WHOLE_ORGANIZATION:
                found = [re.search(pattern, told, re.MULTILINE) for pattern in ALL_OF_ONE_ORGANIZATION]
                assert not any(match and (not match.groups() or match[1] in TABLES) for match in found), place


def test_every_statement_goes_through_an_index(world: World) -> None:
    tenant = world.tenant()
    key = tenant.ids["api_key"]
    fill(world.engine, key, RECORDS, USERS)
    seen = 0
    for name, request in operations(RECORDS, USERS, random.Random(1)).items():
        operation, data = request()
        with heard(world.engine) as statements:
            assert tenant.call(operation, **data).status_code == 200, name
        check(world.engine, name, statements)
        seen += len(statements)
    assert seen > 50


def test_a_page_after_the_first_goes_through_an_index(world: World) -> None:
    tenant = world.tenant()
    fill(world.engine, tenant.ids["api_key"], RECORDS, USERS)
    for operation, field, filters in (
        ("get_activity_logs", "pageToken", {}),
        ("get_activity_logs", "pageToken", {"documentId": "d1"}),
        ("get_activity_logs", "pageToken", {"featureTypes": ["comment", "custom"]}),
        ("get_comment_annotations", "nextPageToken", {"documentId": "d1"}),
        ("get_notifications", "nextPageToken", {"userId": "u0"}),
    ):
        query = {"organizationId": "acme", "pageSize": 1, **filters}
        token = tenant.call(operation, **query).get_json()["result"][field]
        with heard(world.engine) as statements:
            assert tenant.call(operation, **query, pageToken=token).status_code == 200
        check(world.engine, operation if filters else "activities of an organization", statements)
        if is_sqlite(world.engine) and filters:
            first = plan_of_first(world.engine, statements)
            assert re.search(r"\((created_at|happened_at),\w+\)[<>]\(\?,\?\)", first), first


def plan_of_first(engine: Engine, statements: list[tuple[str, Any]]) -> str:
    with engine.connect() as connection:
        return plan(connection, *statements[0])


@pytest.mark.parametrize(
    "delete",
    [
        lambda connection, scope: deletion.delete_of_documents(connection, scope, ["d1", "d2"]),
        lambda connection, scope: deletion.delete_of_users(connection, scope, ["u1", "u2"]),
        lambda connection, scope: deletion.delete_of_users(connection, scope, ["u1", "u2"], "d1"),
    ],
)
def test_deleting_goes_through_an_index(world: World, delete: Callable[[Connection, Scope], None]) -> None:
    key = world.tenant().ids["api_key"]
    fill(world.engine, key, RECORDS, USERS)
    with heard(world.engine) as statements, writing(world.engine) as connection:
        delete(connection, Scope(key, "acme"))
    assert statements
    check(world.engine, "", statements)
