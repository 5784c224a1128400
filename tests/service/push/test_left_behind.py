"""Pushes leave empty temporary tables on pooled connections, for the next push."""

import pytest
from sqlalchemy import Connection, text

import app.access.refresh.session
from app.access.refresh.tables import TEMPORARY_TABLES
from app.foundation.database.engine import is_sqlite
from tests.hearing import heard
from tests.service.push.conftest import HR, Service, organization, user


def objects(connection: Connection) -> dict[str, str]:
    """The temporary tables and views of a connection: name → t(able) or v(iew)."""
    if is_sqlite(connection):
        query = "SELECT name, substr(type, 1, 1) FROM sqlite_temp_master WHERE type IN ('table', 'view')"
    else:
        query = (
            "SELECT relname, CASE relkind WHEN 'r' THEN 't' ELSE 'v' END FROM pg_class"
            " WHERE relnamespace = pg_my_temp_schema() AND relkind IN ('r', 'v')"
        )
    return {name: kind for name, kind in connection.execute(text(query)) if not name.startswith("sqlite_")}


def made(statements: list[str]) -> int:
    """The number of times that the temporary tables were created."""
    return sum("CREATE TEMPORARY TABLE refresh_delta_user" in statement for statement in statements)


def test_pushes_leave_their_tables_empty_for_the_next_one(service: Service) -> None:
    service.pushed(1, upsert=[organization()])  # the first model: everything is merged
    service.pushed(2, upsert=[user("ann")])
    statements = heard(service.engine)
    service.pushed(3, upsert=[user("bob")], remove=[{"kind": "user", "userId": "ann"}])
    assert made(statements) == 0
    assert {one["userId"] for one in service.records() if one["kind"] == "user"} == {"bob"}
    with service.engine.connect() as connection:
        assert objects(connection) == dict.fromkeys(TEMPORARY_TABLES, "t")
        for table in TEMPORARY_TABLES:
            assert connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() == 0, table


def test_a_push_that_is_refused_hinders_no_other(service: Service) -> None:
    service.pushed(1, upsert=[organization()])
    service.pushed(2, upsert=[user("ann")])
    answer = service.push({"sequence": 9, "previousSequence": 7, "upsert": [user("cid")]})
    assert answer.status_code == 409
    assert service.pushed(3, upsert=[user("bob")])["counts"]["added"] == 1
    assert {one["userId"] for one in service.records() if one["kind"] == "user"} == {"ann", "bob"}


def test_a_read_and_pushes_take_turns_on_a_connection(service: Service) -> None:
    for turn in range(3):
        service.pushed(2 * turn + 1, upsert=[organization()])
        service.pushed(2 * turn + 2, upsert=[user(f"pushed-{turn}")])
        service.read("hr", [user(f"read-{turn}"), user("ann"), user("ann")])
        service.pushed(turn + 1, source="hr", token=HR, upsert=[user(f"told-{turn}")])
    assert {one["userId"] for one in service.records() if one["kind"] == "user"} == {
        *(f"pushed-{turn}" for turn in range(3)),
        "read-2",
        "ann",
        "told-2",
    }


def test_tables_are_recreated_after_many_rows(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.access.refresh.session, "_MAX_TOTAL_ROWS", 5)
    service.pushed(1, upsert=[organization()])
    statements = heard(service.engine)
    for sequence in range(2, 8):
        service.pushed(sequence, upsert=[user(f"{sequence}-a"), user(f"{sequence}-b")])
    # Each push has four rows: staged and merged ones.
    assert made(statements) == 3
