"""Starting runs, reading their state and deciding about them over HTTP."""

import json
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import insert

from app.foundation.logs import LogSettings, configure_logs
from app.service.admin.openapi import document
from app.service.provider.settings import ProviderSettings
from app.sync.plan.tables import PlanAccessRow, PlanItemRow, PlanRow
from app.sync.runs.queue import MAX_QUEUED
from app.sync.runs.run import RunRequest, RunStatus
from tests.service.admin.conftest import Admin
from tests.worlds.plan_parts import note_parts

PLAN = PlanRow.__table__
ITEM = PlanItemRow.__table__
RETRIED = {"kind": "document", "organizationId": "acme", "id": "roadmap"}
UNKNOWN = (
    "not a field of this request; allowed: organizationIds, userIds, dryRun, verify, allowDeletes, retry, reason,"
    " kinds, items"
)


def with_plan(admin: Admin, run_id: str, statuses: list[str], end: RunStatus) -> None:
    """Moves a queued run through all statuses to its end, with a plan of items in these statuses."""
    with admin.engine.begin() as connection:
        connection.execute(
            insert(PLAN).values(plan_id="p1", ledger_id=1, revision=1, ledger_revision=1, plan_hash="h", created_at=0)
        )
        connection.execute(
            insert(ITEM),
            [
                {
                    "plan_id": "p1", "ordinal": ordinal, "phase": 1, "action": "delete", "kind": "document",
                    "organization_id": "acme", "container_id": "", "item_id": f"d{ordinal - 1}",
                    "operation": "delete_documents", "scope": "[]", "reason": "the record is gone", "status": status,
                }
                for ordinal, status in enumerate(statuses, 1)
            ],
        )  # fmt: skip
        note_parts(connection, "p1")
    now = admin.runs.clock()
    admin.runs.move(run_id, RunStatus.QUEUED, RunStatus.READING, started_at=now)
    admin.runs.move(run_id, RunStatus.READING, RunStatus.PLANNING, revision=1)
    admin.runs.move(
        run_id,
        RunStatus.PLANNING,
        end,
        plan_id="p1",
        ledger_id=1,
        finished_at=now,
        held_at=now,
        held_until=now,
        counts={"document": {"delete": {"held": 2}}},
    )


def error(response: Any) -> tuple[int, str, str]:
    inner = response.get_json()["error"]
    return response.status_code, inner["status"], inner["message"]


@pytest.mark.parametrize("path", ["/resync/x", "/resync/x/changes", "/resync/x/access"])
def test_resync_requires_an_admin_token(admin: Admin, path: str) -> None:
    assert admin.stranger.get(path).status_code == 401
    assert admin.stranger.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert admin.stranger.post("/resync", json={}).status_code == 401
    assert admin.runs.recent() == []


def test_start_queues_a_run_and_returns_its_location(admin: Admin) -> None:
    body = {"organizationIds": ["b", "a"], "userIds": ["ü"], "dryRun": True, "verify": True, "allowDeletes": True}
    answer = admin.client.post("/resync", json=body)
    assert answer.status_code == 202
    run_id = answer.get_json()["runId"]
    assert answer.get_json() == {"runId": run_id, "status": "queued"}
    assert answer.headers["Location"] == f"/resync/{run_id}"
    shown = admin.client.get(answer.headers["Location"]).get_json()
    assert shown["trigger"] == "resync"
    assert (shown["organizationIds"], shown["userIds"]) == (["a", "b"], ["ü"])
    assert (shown["dryRun"], shown["verify"], shown["allowDeletes"]) == (True, True, True)
    assert shown["requested"] == "2026-11-20T12:00:00.000Z"
    assert shown["started"] is shown["finished"] is shown["error"] is None


def test_start_ties_the_request_to_its_run_in_the_log(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LogSettings(format="json"))
    answer = admin.client.post("/resync", json={})
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (asked,) = [line for line in lines if line["event"] == "run_asked_for"]
    assert asked["run_id"] == answer.get_json()["runId"]
    assert asked["status"] == "queued"
    assert asked["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize("arguments", [{}, {"json": {}}, {"json": {"userIds": None, "items": None, "kinds": None}}])
def test_start_without_a_selection_selects_everything(admin: Admin, arguments: dict[str, Any]) -> None:
    answer = admin.client.post("/resync", **arguments)
    assert answer.status_code == 202
    run = admin.runs.get(answer.get_json()["runId"])
    assert (run.organization_ids, run.user_ids, run.dry_run) == ((), (), False)


def test_start_returns_an_identical_run_that_is_still_queued(admin: Admin) -> None:
    first, second = (admin.client.post("/resync", json={}).get_json()["runId"] for _ in range(2))
    other = admin.client.post("/resync", json={"verify": True}).get_json()["runId"]
    assert first == second != other


def test_start_returns_the_same_run_for_the_same_idempotency_key(admin: Admin) -> None:
    headers = {"Idempotency-Key": "k-1"}
    first = admin.client.post("/resync", json={}, headers=headers).get_json()["runId"]
    admin.runs.cancel(first)
    again = admin.client.post("/resync", json={}, headers=headers).get_json()
    assert again == {"runId": first, "status": "cancelled"}
    assert error(admin.client.post("/resync", json={"verify": True}, headers=headers))[:2] == (
        400,
        "FAILED_PRECONDITION",
    )


def test_start_refuses_more_than_a_hundred_waiting_runs_and_still_returns_waiting_ones(admin: Admin) -> None:
    def ask(number: int, **headers: str) -> Any:
        return admin.client.post("/resync", json={"userIds": [f"u{number}"]}, headers=headers)

    waiting = [ask(number) for number in range(MAX_QUEUED)]
    assert {response.status_code for response in waiting} == {202}
    refused = ask(MAX_QUEUED)
    code, status, message = error(refused)
    assert (code, status) == (429, "RESOURCE_EXHAUSTED")
    assert message.startswith("100 runs are queued already: wait until")
    assert int(refused.headers["Retry-After"]) > 0
    again = ask(7)
    assert (again.status_code, again.get_json()["runId"]) == (202, waiting[7].get_json()["runId"])
    assert admin.runs.enqueue(RunRequest(trigger="schedule"))[1], "what is due is not refused"
    admin.runs.cancel(waiting[3].get_json()["runId"])
    assert ask(MAX_QUEUED, **{"Idempotency-Key": "k"}).status_code == 202
    assert ask(MAX_QUEUED, **{"Idempotency-Key": "k"}).status_code == 202
    assert ask(MAX_QUEUED + 1).status_code == 429


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"organizationIds": "a"}, "body.organizationIds: must be an array"),
        ({"organizationIds": [1]}, "body.organizationIds[0]: must be a string"),
        ({"userIds": [""]}, "body.userIds[0]: must not be empty"),
        ({"userIds": []}, "body.userIds: must not be empty: leave it out for everything"),
        ({"organizationIds": []}, "body.organizationIds: must not be empty: leave it out for everything"),
        ({"organizationIds": ["a"], "userIds": []}, "body.userIds: must not be empty: leave it out for everything"),
        ({"dryRun": "yes"}, "body.dryRun: must be true or false"),
        ({"dryrun": True}, f"body.dryrun: {UNKNOWN}"),
        ({"dry_run": True}, f"body.dry_run: {UNKNOWN}"),
        ({"kinds": ["document"]}, "body.kinds: selects retried items: it needs retry true"),
        ({"retry": True, "items": [{**RETRIED, "name": "x"}]}, "body.items[0].name: not a field of this request"),
        ({"retry": True, "items": [{**RETRIED, "id": None}]}, "body.items[0].id: field required"),
        ({"retry": True, "items": [None]}, "body.items[0]: must be an object"),
        ([], "the body must be a JSON object"),
    ],
)  # fmt: skip
def test_start_names_the_error_in_the_body(admin: Admin, body: Any, message: str) -> None:
    assert error(admin.client.post("/resync", json=body)) == (400, "INVALID_ARGUMENT", message)
    assert admin.runs.recent() == []


def test_the_description_states_that_an_empty_list_is_refused() -> None:
    described: Any = document(ProviderSettings(path="/check"))
    properties = described["components"]["schemas"]["ResyncRequest"]["properties"]
    for name in ("organizationIds", "userIds"):
        array, null = properties[name]["anyOf"]
        assert (array["minItems"], array["maxItems"], null) == (1, 10_000, {"type": "null"})
        assert "Left out or null: everything" in array["description"]


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "ümlaut"])
def test_start_refuses_an_unusable_idempotency_key(admin: Admin, key: str) -> None:
    answer = admin.client.post("/resync", json={}, headers={"Idempotency-Key": key})
    assert error(answer)[:2] == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("data", [b"{", b'{"verify": true, "verify": false}', b'{"userIds": ["\\u0000"]}', b"\xff"])
def test_start_refuses_a_body_that_is_no_strict_json(admin: Admin, data: bytes) -> None:
    answer = admin.client.post("/resync", data=data, content_type="application/json")
    assert error(answer)[:2] == (400, "INVALID_ARGUMENT")


def test_show_does_not_find_other_ids(admin: Admin) -> None:
    for run_id in ("nothing", "%00", "a%20b", "%F0%9F%98%80", "x" * 300):
        assert error(admin.client.get(f"/resync/{run_id}"))[:2] == (404, "NOT_FOUND")
        assert error(admin.client.post(f"/resync/{run_id}/approve"))[:2] == (404, "NOT_FOUND")


def test_changes_come_by_page_and_by_status(admin: Admin) -> None:
    run_id = admin.client.post("/resync", json={}).get_json()["runId"]
    with_plan(admin, run_id, ["done", "held", "done", "held", "done"], RunStatus.HELD)
    base = f"/resync/{run_id}/changes"
    whole = admin.client.get(base).get_json()
    assert [change["id"] for change in whole["changes"]] == ["d0", "d1", "d2", "d3", "d4"]
    assert "nextPageToken" not in whole
    assert whole["changes"][0]["reason"] == "the record is gone"
    pages: list[str] = []
    token = ""
    while True:
        page = admin.client.get(f"{base}?status=done&kind=document&pageSize=2&pageToken={token}").get_json()
        pages += [change["id"] for change in page["changes"]]
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert pages == ["d0", "d2", "d4"]


def test_access_changes_come_by_page(admin: Admin) -> None:
    run_id = admin.client.post("/resync", json={"dryRun": True}).get_json()["runId"]
    base = f"/resync/{run_id}/access"
    assert admin.client.get(base).get_json() == {"accessChanges": []}
    with_plan(admin, run_id, ["planned"], RunStatus.DONE)
    row: dict[str, object] = {"plan_id": "p1", "organization_id": "acme", "kind": "document"}
    row |= {"before": "editor", "after": ""}
    row |= {"users": 2, "resources": 1, "pairs": 2, "resource_ids": '["d1"]', "names": "{}"}
    lists = ('["ada", "bob"]', "[]", '["eve"]')
    with admin.engine.begin() as connection:
        rows = [row | {"ordinal": number, "user_ids": ids} for number, ids in enumerate(lists, 1)]
        connection.execute(insert(PlanAccessRow), rows)
    first = admin.client.get(f"{base}?pageSize=2").get_json()
    assert [change["userIds"] for change in first["accessChanges"]] == [["ada", "bob"], None]
    assert (first["accessChanges"][0]["before"], first["accessChanges"][0]["after"]) == ("editor", None)
    last = admin.client.get(f"{base}?pageSize=2&pageToken={first['nextPageToken']}").get_json()
    assert [change["userIds"] for change in last["accessChanges"]] == [["eve"]]
    assert "nextPageToken" not in last
    assert error(admin.client.get(f"{base}?kind=document"))[:2] == (400, "INVALID_ARGUMENT")
    other = admin.client.get(f"/resync/{run_id}/changes?pageToken={first['nextPageToken']}")
    assert error(other)[:2] == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("status=odd", "status: must be one of planned, done, failed, held, discarded, waiting, "),
        ("kind=odd", "kind: must be one of"),
        ("pageSize=0", "pageSize: must be a number from 1 to 1000"),
        ("pageSize=99999999999", "pageSize: must be"),
        ("pageToken=odd", "pageToken: not a token of this list"),
        ("pagesize=3", "pagesize: not a parameter"),
    ],
)
def test_changes_name_the_error_in_the_query(admin: Admin, query: str, message: str) -> None:
    run_id = admin.client.post("/resync", json={}).get_json()["runId"]
    status, name, text = error(admin.client.get(f"/resync/{run_id}/changes?{query}"))
    assert (status, name) == (400, "INVALID_ARGUMENT")
    assert text.startswith(message)


def test_changes_refuse_the_page_token_of_another_query(admin: Admin) -> None:
    run_id = admin.client.post("/resync", json={}).get_json()["runId"]
    with_plan(admin, run_id, ["done", "done"], RunStatus.DONE)
    token = admin.client.get(f"/resync/{run_id}/changes?pageSize=1").get_json()["nextPageToken"]
    answer = admin.client.get(f"/resync/{run_id}/changes?pageSize=1&status=done&pageToken={token}")
    assert error(answer)[:2] == (400, "INVALID_ARGUMENT")


def test_approve_queues_a_held_run_again(admin: Admin) -> None:
    run_id = admin.client.post("/resync", json={}).get_json()["runId"]
    assert error(admin.client.post(f"/resync/{run_id}/approve"))[:2] == (400, "FAILED_PRECONDITION")
    with_plan(admin, run_id, ["held", "held"], RunStatus.HELD)
    for body, message in (
        ({"why": "x"}, "body.why: not a field of this request; allowed: reason"),
        ({"reason": "x" * 1001}, "body.reason: "),
        ([], "the body must be a JSON object"),
    ):
        refused = error(admin.client.post(f"/resync/{run_id}/approve", json=body))
        assert refused[:2] == (400, "INVALID_ARGUMENT")
        assert refused[2].startswith(message)
    answer = admin.client.post(f"/resync/{run_id}/approve", json={"reason": "they left"})
    assert (answer.status_code, answer.get_json()["status"]) == (202, "queued")
    noon = "2026-11-20T12:00:00.000Z"
    token = admin.client.environ_base["HTTP_AUTHORIZATION"].removeprefix("Bearer ")
    shown = admin.client.get(f"/resync/{run_id}").get_json()
    assert shown["heldAt"] == noon
    assert shown["decision"] == {
        "decision": "approved",
        "at": noon,
        "by": f"admin token {sha256(token.encode()).hexdigest()[:8]}",
        "reason": "they left",
    }
    too_late = error(admin.client.post(f"/resync/{run_id}/approve"))[2]
    assert "approved on 2026-11-20 12:00 UTC by admin token" in too_late
    assert token not in str(shown) + too_late


def test_cancel_ends_a_queued_run_and_discards_held_deletes(admin: Admin) -> None:
    run_id = admin.client.post("/resync", json={}).get_json()["runId"]
    assert admin.client.post(f"/resync/{run_id}/cancel").get_json()["status"] == "cancelled"
    assert error(admin.client.post(f"/resync/{run_id}/cancel"))[:2] == (400, "FAILED_PRECONDITION")
    held, _ = admin.runs.enqueue(RunRequest(trigger="command"))
    with_plan(admin, held.run_id, ["held"], RunStatus.HELD)
    assert admin.client.post(f"/resync/{held.run_id}/cancel").get_json()["status"] == "cancelled"
    assert admin.runs.changes(held.run_id)[0].status == "discarded"


def test_unknown_methods_and_paths_answer_in_the_envelope(admin: Admin) -> None:
    assert error(admin.client.get("/resync"))[0] == 405
    assert error(admin.client.post("/resync/x/odd"))[:2] == (404, "NOT_FOUND")


def test_retry_distinguishes_runs(admin: Admin) -> None:
    def ask(**body: Any) -> Any:
        return admin.client.post("/resync", json=body)

    plain = ask().get_json()["runId"]
    retried = ask(retry=True, kinds=["groupMember"], organizationIds=["acme"])
    assert retried.status_code == 202, retried.get_json()
    run_id = retried.get_json()["runId"]
    assert ask(retry=True, kinds=["groupMember"], organizationIds=["acme"]).get_json()["runId"] == run_id
    assert (admin.runs.get(run_id).retry, admin.runs.get(run_id).kinds) == (True, ("groupMember",))
    assert len({plain, run_id, ask(retry=True).get_json()["runId"]}) == 3
    assert admin.client.get(f"/resync/{run_id}").get_json()["continuedBy"] is None
    for wrong in ({"kinds": ["groupMember"]}, {"retry": True, "kinds": []}, {"retry": True, "kinds": ["x"]}):
        assert error(ask(**wrong))[:2] == (400, "INVALID_ARGUMENT")


def test_single_items_are_part_of_a_retry(admin: Admin) -> None:
    def ask(**body: Any) -> Any:
        return admin.client.post("/resync", json=body)

    item = {"kind": "folderUser", "organizationId": "acme", "containerId": "specs", "id": "ada"}
    first = ask(retry=True, items=[item]).get_json()["runId"]
    assert ask(retry=True, items=[item, item]).get_json()["runId"] == first
    shown = admin.client.get(f"/resync/{first}").get_json()
    assert shown["items"] == [item]
    assert [stage["status"] for stage in shown["stages"]] == ["queued"]
    other = item | {"kind": "folder", "containerId": None}
    assert ask(retry=True, items=[other]).get_json()["runId"] != first
    for wrong in ({"items": [item]}, {"retry": True, "items": []}, {"retry": True, "items": [{"kind": "folder"}]}):
        assert error(ask(**wrong))[:2] == (400, "INVALID_ARGUMENT")
