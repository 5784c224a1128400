"""The audit rows of the admin API, including refused calls."""

import pytest
from sqlalchemy import text

from app.foundation.audit import audit_page
from app.foundation.audit_tables import AuditRow
from app.foundation.database.engine import reading
from app.http.throttle import FAILURES
from app.service.refusals import LAST_ROW_SUFFIX
from app.sync.runs.run import RunRequest, RunStatus
from tests.service.admin.conftest import TOKEN, Admin

LAST = f"the bearer token is not accepted{LAST_ROW_SUFFIX}"


def rows(admin: Admin) -> list[AuditRow]:
    """The rows, newest first."""
    with reading(admin.engine) as connection:
        return audit_page(connection)


def test_a_sync_is_asked_for_with_a_reason(admin: Admin) -> None:
    answer = admin.client.post("/resync", json={"reason": "the move", "dryRun": True}, headers={"x-request-id": "mine"})
    run_id = answer.get_json()["data"]["runId"] if "data" in answer.get_json() else answer.get_json()["runId"]
    assert admin.runs.get(run_id).asked_reason == "the move"
    (row,) = rows(admin)
    assert (row.action, row.reason, row.outcome, row.way) == ("preview asked for", "the move", "done", "api")
    assert row.subject == run_id
    assert row.request_id == "mine"
    assert row.actor.startswith("admin token ")
    assert TOKEN not in str(row)
    assert admin.client.post("/resync", json={"reason": "x" * 1001}).status_code == 400


def test_wrong_tokens_are_written_down_until_they_are_slowed_down(admin: Admin) -> None:
    for _ in range(FAILURES + 3):
        admin.stranger.get("/resync/x", headers={"Authorization": "Bearer guessed"})
    found = rows(admin)
    assert len(found) == FAILURES
    assert {(one.actor, one.role, one.action, one.subject) for one in found} == {
        ("", "", "refused", "/resync/<run_id>")
    }
    assert [one.outcome for one in found[::-1]] == [*["the bearer token is not accepted"] * (FAILURES - 1), LAST]
    assert "guessed" not in str(found)


def test_wrong_tokens_at_the_metrics_are_written_down_as_well(admin: Admin) -> None:
    assert admin.stranger.get("/metrics", headers={"Authorization": "Bearer guessed"}).status_code == 401
    assert [(one.action, one.subject) for one in rows(admin)] == [("refused", "/metrics")]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic eDp5"}, {"Authorization": "Bearer"}])
def test_a_request_without_a_token_leaves_no_row(admin: Admin, headers: dict[str, str]) -> None:
    assert admin.stranger.post("/resync", headers=headers).status_code == 401
    assert rows(admin) == []


def test_an_impossible_action_is_recorded_as_refused(admin: Admin) -> None:
    run, _ = admin.runs.enqueue(RunRequest(trigger="schedule"))
    assert admin.client.post(f"/resync/{run.run_id}/approve").status_code == 400
    key = {"Idempotency-Key": "one"}
    admin.client.post("/resync", json={}, headers=key)
    assert admin.client.post("/resync", json={"verify": True}, headers=key).status_code == 400
    again, asked, approval = rows(admin)
    assert (again.action, again.subject, asked.action) == ("refused", "sync asked for", "sync asked for")
    assert (approval.action, approval.subject) == ("refused", f"approved: {run.run_id}")
    assert "queued" in approval.outcome


def test_a_cancel_of_a_held_run_is_recorded_as_a_discard_and_a_retry_as_a_retry(admin: Admin) -> None:
    run, _ = admin.runs.enqueue(RunRequest(trigger="schedule"))
    admin.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING)
    admin.runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING)
    held = {"document": {"delete": {"planned": 3, "held": 3}}}
    admin.runs.move(run.run_id, RunStatus.PLANNING, RunStatus.HELD, counts=held)
    assert admin.client.post(f"/resync/{run.run_id}/cancel").status_code == 202
    admin.client.post("/resync", json={"retry": True})
    retry, discard = rows(admin)
    assert (discard.action, discard.subject) == ("discarded", f"{run.run_id}: 3 held deletes")
    assert retry.action == "retry asked for"


def test_a_request_is_refused_even_if_its_row_cannot_be_written(admin: Admin) -> None:
    with admin.engine.begin() as connection:
        connection.execute(text("ALTER TABLE audit RENAME TO away"))
    answer = admin.stranger.get("/resync/x", headers={"Authorization": "Bearer guessed"})
    assert answer.status_code == 401
    assert answer.is_json
