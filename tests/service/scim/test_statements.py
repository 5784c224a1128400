"""A request executes few statements. None of them compares each row with each text of a list."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from app.foundation.database.engine import is_sqlite
from tests.service.scim.conftest import Directory, Statements


@pytest.mark.parametrize(
    ("request_", "most"),
    [("find", 3), ("create", 39), ("rename", 41), ("unused attribute", 7), ("add", 42), ("remove", 44)],
)
def test_number_of_statements(directory: Directory, request_: str, most: int) -> None:
    ada, bob = directory.user("ada", externalId="e-1"), directory.user("bob")
    acme = directory.group("acme", ada)
    with Statements(directory.engine) as run:
        match request_:
            case "find":
                directory.call("GET", "/Users", query_string={"filter": 'userName eq "ada"'})
            case "create":
                directory.user("eve", externalId="e-2", displayName="Eve")
            case "rename":
                directory.patch(f"/Users/{ada}", {"op": "replace", "path": "displayName", "value": "Ada"})
            case "unused attribute":
                directory.patch(f"/Users/{ada}", {"op": "replace", "path": "title", "value": "Countess"})
            case "add":
                directory.patch(f"/Groups/{acme}", {"op": "add", "path": "members", "value": [{"value": bob}]})
            case "remove":
                directory.patch(f"/Groups/{acme}", {"op": "remove", "path": f'members[value eq "{ada}"]'})
    assert 0 < len(run) <= most


@contextmanager
def _plans(engine: Engine) -> Iterator[list[str]]:
    """The plans of the statements that read SCIM's tables, each with its statement."""
    plans: list[str] = []

    def explain(*arguments: Any) -> None:
        connection, _, statement, parameters, _, is_many = arguments
        if "scim_" in statement and not statement.startswith("INSERT INTO scim_") and not is_many:
            with closing(connection.connection.cursor()) as cursor:
                cursor.execute(f"EXPLAIN {'QUERY PLAN ' if is_sqlite(engine) else ''}{statement}", parameters)
                plans.append("\n".join([statement, *(str(row[-1]) for row in cursor.fetchall())]))

    event.listen(engine, "after_cursor_execute", explain)
    yield plans
    event.remove(engine, "after_cursor_execute", explain)


def test_lists_are_looked_up_without_statistics(directory: Directory) -> None:
    """PostgreSQL has no statistics of the new tables, as after a first provisioning cycle."""
    users = [directory.user(f"u{number}", externalId=f"e{number}") for number in range(3)]
    inner = directory.group("inner", users[0])
    outer = directory.group("outer", inner, "later")
    with _plans(directory.engine) as plans:
        add = {"op": "add", "path": "members", "value": [{"value": one} for one in (*users, "e1", "new")]}
        directory.patch(f"/Groups/{outer}", add, {"op": "remove", "path": f'members[value eq "{users[1]}"]'})
        directory.patch(f"/Groups/{inner}", add, {"op": "remove", "path": 'members[type eq "User"]'})
        directory.user("later")
        directory.patch(f"/Groups/{outer}", {"op": "replace", "path": "displayName", "value": "renamed"})
        directory.call("GET", "/Groups")
        directory.call("DELETE", f"/Users/{users[2]}")
        directory.call("DELETE", f"/Groups/{outer}")
    assert len(plans) > 50
    scans = ["SCAN scim", "SCAN k", "SCAN m", "SCAN r", "SCAN s"]
    bad = scans if is_sqlite(directory.engine) else ["Join Filter", "Seq Scan", "= ANY"]
    of_lists = [plan for plan in plans if "ORDER BY scim_resource.created" not in plan]
    assert [plan for plan in of_lists if any(one in plan for one in bad)] == []


def test_filters_of_equality_look_up_resources(directory: Directory) -> None:
    """SQLite reads all resources in the order of an index if a statement asks for that order."""
    directory.user("ada")
    with _plans(directory.engine) as plans:
        for name, number in (("ada", 1), ("nobody", 0)):
            found = directory.call("GET", "/Users", query_string={"filter": f'userName eq "{name}"'})
            assert found.get_json()["totalResults"] == number
    of_resources = [plan for plan in plans if "FROM scim_resource" in plan]
    assert len(of_resources) == 2
    if is_sqlite(directory.engine):
        assert all("(source_id=? AND resource_id=?)" in plan for plan in of_resources)
