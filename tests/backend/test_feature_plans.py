"""Query plans of feature data: every statement uses a selective index, whatever the amount of other data."""

import random
import re
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, Engine

from app.backend.collaboration import deletion
from app.backend.scope import Scope
from app.foundation.database.engine import is_sqlite, writing
from tests.bench.features import fill, operations

from .conftest import BackendWorld, Caller
from .plans import Statements, check_plans, plan, recorded

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
    "activities of rare kinds",
    "activities of a rare action",
    "threads of an organization",
    "notifications of an organization",
}
"""Calls that read the organization's index from one end until the page is full."""


def check(engine: Engine, name: str, statements: Statements) -> None:
    check_plans(engine, name, statements, TABLES, through_organization=name in WHOLE_ORGANIZATION)


@pytest.fixture(scope="module")
def tenant(shared_world: BackendWorld) -> Caller:
    """A tenant with much feature data, shared by the tests of this module."""
    tenant = shared_world.tenant()
    fill(shared_world.engine, tenant.ids["api_key"], RECORDS, USERS)
    return tenant


def test_every_statement_uses_an_index(shared_world: BackendWorld, tenant: Caller) -> None:
    seen = 0
    for name, request in operations(RECORDS, USERS, random.Random(1)).items():
        operation, data = request()
        with recorded(shared_world.engine, TABLES) as statements:
            assert tenant.call(operation, **data).status_code == 200, name
        check(shared_world.engine, name, statements)
        seen += len(statements)
    assert seen > 50


def test_a_later_page_uses_an_index(shared_world: BackendWorld, tenant: Caller) -> None:
    for operation, field, filters in (
        ("get_activity_logs", "pageToken", {}),
        ("get_activity_logs", "pageToken", {"documentId": "d1"}),
        ("get_comment_annotations", "nextPageToken", {"documentId": "d1"}),
        ("get_notifications", "nextPageToken", {"userId": "u0"}),
    ):
        query = {"organizationId": "acme", "pageSize": 1, **filters}
        token = tenant.call(operation, **query).get_json()["result"][field]
        with recorded(shared_world.engine, TABLES) as statements:
            assert tenant.call(operation, **query, pageToken=token).status_code == 200
        check(shared_world.engine, operation if filters else "activities of an organization", statements)
        if is_sqlite(shared_world.engine) and filters:
            first = plan_of_first(shared_world.engine, statements)
            assert re.search(r"\((created_at|happened_at),\w+\)[<>]\(\?,\?\)", first), first


def plan_of_first(engine: Engine, statements: Statements) -> str:
    with engine.connect() as connection:
        return plan(connection, *statements[0])


@pytest.mark.parametrize(
    "delete",
    [
        lambda connection, scope: deletion.delete_of_documents(connection, scope, ["d1", "d2"]),
        lambda connection, scope: deletion.delete_of_users(connection, scope, ["u1", "u2"], None),
        lambda connection, scope: deletion.delete_of_users(connection, scope, ["u1", "u2"], "d1"),
    ],
)
def test_deletion_uses_an_index(
    shared_world: BackendWorld, tenant: Caller, delete: Callable[[Connection, Scope], None]
) -> None:
    with recorded(shared_world.engine, TABLES) as statements, writing(shared_world.engine) as connection:
        delete(connection, Scope(tenant.ids["api_key"], "acme"))
        connection.rollback()  # other tests share the data
    assert statements
    check(shared_world.engine, "", statements)
