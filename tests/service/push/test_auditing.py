"""The audit rows of pushes: applied and refused ones, and their limits."""

from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from sqlalchemy import text

from app.access.refresh.push_sequences import PushState, push_states
from app.foundation.audit import BEGUN, DONE, audit_page
from app.foundation.audit_tables import AuditRow
from app.foundation.database.engine import reading
from app.http.throttle import FAILURES
from app.service.refusals import LAST_ROW_SUFFIX, ROWS_PER_HOUR
from tests.dying import Died, dying_at
from tests.service.push.conftest import HR, NEW_PUSH, PUSH, SMALL, Service, document, key, organization, user
from tests.service.push.test_everything import lines, put

WRONG = "guessed-" + "g" * 20


def rows(service: Service) -> list[AuditRow]:
    """The rows, oldest first."""
    with reading(service.engine) as connection:
        return audit_page(connection, limit=1000)[::-1]


def pushes(service: Service) -> int:
    """The number of pushes applied to the source."""
    with reading(service.engine) as connection:
        return push_states(connection).get("app", PushState()).pushes


def test_a_push_writes_a_row_with_its_counts(service: Service) -> None:
    service.pushed(7, upsert=[organization(), document("d1"), document("d2")])
    body = {"sequence": 8, "upsert": [document("d1", documentName="Other")], "remove": [key(document("d2"))]}
    service.call("POST", "/directory/app/changes", json=body, headers={"x-request-id": "mine"})
    service.push(body)  # a repetition changes nothing
    first, second = rows(service)
    assert (first.action, first.outcome, first.way, first.role) == ("pushed", DONE, "api", "push")
    assert first.subject == "app: push 1, sequence 7: 3 added"
    assert (second.subject, second.request_id) == ("app: push 2, sequence 8: 1 updated, 1 removed", "mine")
    assert first.actor.startswith("push token ")
    assert first.actor == second.actor
    assert first.address == "127.0.0.1"
    assert PUSH not in str(rows(service))


def test_no_death_hides_a_push(service: Service) -> None:
    service.pushed(1, upsert=[organization()])
    for number in count(1):
        before, known = pushes(service), len(rows(service))
        died = True
        with suppress(Died), dying_at(service.engine, number):
            service.pushed(number + 1, upsert=[document(f"d{number}")])
            died = False
        assert pushes(service) - before == len(rows(service)) - known, number
        if not died:
            break
    assert number > 2
    assert pushes(service) > before


def test_no_death_hides_everything_that_is_pushed(service: Service) -> None:
    service.pushed(1, upsert=[organization()])
    for number in count(1):
        before, known = service.records(), len(rows(service))
        died = True
        with suppress(Died), dying_at(service.engine, number):
            put(service, lines([organization(), *(document(f"d{one}") for one in range(number))]))
            died = False
        if service.records() != before:
            assert rows(service)[known:], number
        if not died:
            break
    assert number > 2
    done = rows(service)[-1]
    with reading(service.engine) as connection:
        revision = connection.execute(text("SELECT MAX(revision) FROM access_revision")).scalar_one()
    assert (done.action, done.outcome) == ("pushed everything", DONE)
    assert done.subject == f"app: {number + 1} records, revision {revision}"
    assert {one.outcome for one in rows(service)} <= {BEGUN, DONE}


def test_a_refused_shrink_and_an_accepted_one_are_recorded(service: Service) -> None:
    service.pushed(1, upsert=[organization(), *(document(f"d{number}") for number in range(100))])
    assert put(service, lines([organization()])).status_code == 409
    refused = rows(service)[-1]
    assert (refused.action, refused.subject) == ("pushed everything", "app: 1 record")
    assert refused.outcome.startswith("was not applied: would take away 100 of 100 document")
    assert put(service, lines([organization()]), query="?acceptShrink=true").status_code == 200
    assert rows(service)[-1].subject.startswith("app: 1 record, acceptShrink, revision ")
    assert rows(service)[-1].outcome == DONE


def test_the_last_row_of_refused_uploads_states_that_more_may_follow(service: Service) -> None:
    service.pushed(1, upsert=[organization(), *(document(f"d{number}") for number in range(100))])
    for _ in range(ROWS_PER_HOUR + 1):
        assert put(service, lines([organization()])).status_code == 409
    refused = [row.outcome for row in rows(service) if row.action == "pushed everything"]
    assert [outcome.endswith(LAST_ROW_SUFFIX) for outcome in refused] == [*[False] * (ROWS_PER_HOUR - 1), True]


def test_thousands_of_pushes_write_a_limited_number_of_rows(service: Service) -> None:
    service.pushed(1, upsert=[organization()])
    for number in range(2, ROWS_PER_HOUR + 4):
        service.pushed(number, upsert=[document(f"d{number}")])
    found = rows(service)
    assert [one.outcome for one in found] == [*[DONE] * (ROWS_PER_HOUR - 1), DONE + LAST_ROW_SUFFIX]
    assert found[-1].subject.startswith(f"app: push {ROWS_PER_HOUR}, ")
    # Another token and another source have limits of their own. The number counts the pushes without a row, too.
    service.pushed(100, upsert=[document("d100")], token=NEW_PUSH)
    service.pushed(1, upsert=[user("ann")], source="hr", token=HR)
    assert [one.subject.partition(", sequence")[0] for one in rows(service)[ROWS_PER_HOUR:]] == [
        f"app: push {ROWS_PER_HOUR + 4}",
        "hr: push 1",
    ]
    assert len({one.actor for one in rows(service)}) == 3


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/directory/app/changes"), ("PUT", "/directory/app"), ("GET", "/directory/app")],
)
def test_wrong_tokens_are_written_down_until_they_are_slowed_down(service: Service, method: str, path: str) -> None:
    answers = [service.call(method, path, WRONG).status_code for _ in range(FAILURES + 3)]
    assert answers == [401] * FAILURES + [429] * 3
    found = rows(service)
    assert len(found) == FAILURES
    assert {(one.actor, one.role, one.way, one.action, one.subject) for one in found} == {
        ("", "", "api", "refused", path)
    }
    assert {one.outcome.removesuffix(LAST_ROW_SUFFIX) for one in found} == {"the bearer token is not accepted"}
    assert "guessed" not in str(found)


def test_an_invented_path_with_a_wrong_token_is_not_stored(service: Service) -> None:
    for path in ("/directory/call 555/changes", "/directory/call 555"):
        assert service.call("POST" if path.endswith("changes") else "PUT", path, WRONG).status_code == 401
    assert [one.subject for one in rows(service)] == ["/directory/<source:name>/changes", "/directory/<source:name>"]


def test_a_request_without_a_token_leaves_no_row(service: Service) -> None:
    assert service.call("POST", "/directory/app/changes", None, json={}).status_code == 401
    assert rows(service) == []


def test_a_forbidden_push_is_recorded_as_refused(service: Service) -> None:
    assert service.push({"sequence": 1}, source="hr").status_code == 403
    assert service.push({"sequence": 1}, source="nowhere").status_code == 404
    foreign: dict[str, Any] = {"sequence": 1, "upsert": [user("ann")]}
    assert service.push(foreign, source="small app", token=SMALL).status_code == 403
    assert put(service, lines([user("ann")]), source="small app", token=SMALL).status_code == 403
    found = rows(service)
    assert [(one.action, one.subject, one.role) for one in found] == [
        ("refused", "/directory/hr/changes", "push"),
        ("refused", "/directory/nowhere/changes", "push"),
        ("refused", "/directory/small app/changes", "push"),
        ("refused", "/directory/small app", "push"),
    ]
    assert [one.outcome for one in found[:2]] == [
        "the bearer token belongs to another source",
        "no source with this name accepts pushes",
    ]
    # Invented names do not bypass the limit.
    for number in range(ROWS_PER_HOUR + 5):
        service.push({"sequence": 1}, source=f"made-up-{number}")
    assert len(rows(service)) == 2 + ROWS_PER_HOUR


def test_a_request_is_refused_even_if_its_row_cannot_be_written(service: Service) -> None:
    with service.engine.begin() as connection:
        connection.execute(text("ALTER TABLE audit RENAME TO away"))
    assert service.push({"sequence": 1}, token=WRONG).status_code == 401
    assert service.push({"sequence": 1}, source="hr").status_code == 403
