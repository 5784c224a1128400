"""Tests of the actions of the console: the required role, the change, and the audit row."""

import json
import re
from html import unescape

import pytest
from sqlalchemy import select, update

from app.foundation.audit import audit_page
from app.foundation.audit_tables import AuditRow
from app.foundation.database.engine import reading, writing
from app.service.console import run_reads
from app.service.console.settings import Role
from app.service.console.urls import address
from app.sync.plan.tables import PlanItemRow
from app.sync.runs.run import RunStatus
from app.sync.runs.tables import RunRow
from tests.service.console import states
from tests.service.console.conftest import TOKENS, Office


def entries(office: Office, action: str) -> list[AuditRow]:
    with reading(office.engine) as connection:
        return audit_page(connection, action=action)


def test_held_deletes_are_approved_with_a_reason_that_is_kept(office: Office) -> None:
    run = office.held_run(34)
    browser = office.browser(Role.APPROVER)
    html = browser.get(address("held"))
    assert "34 deletes held" in html
    assert "64 %" in html
    ask = address("approve", run=run.run_id)
    assert "Type 34" not in browser.get(ask)
    html = browser.send(ask, address("approve"), reason="")
    assert browser.status == 400
    assert "Enter a reason" in html
    assert 'aria-invalid="true"' in html
    assert office.runs.get(run.run_id).status is RunStatus.HELD
    browser.send(ask, address("approve"), reason="the project has ended")
    assert browser.status == 200
    after = office.runs.get(run.run_id)
    assert (after.status, after.decided_by, after.decision_reason) == (
        RunStatus.QUEUED,
        "the approver (console)",
        "the project has ended",
    )
    [entry] = entries(office, "approved")
    assert (entry.actor, entry.role, entry.way, entry.reason) == (
        "the approver",
        "approver",
        "console",
        "the project has ended",
    )
    assert run.run_id in entry.subject
    assert "34 held deletes" in entry.subject
    assert entry.request_id == "made"


def test_form_input_is_kept_if_the_session_has_ended(office: Office) -> None:
    run = office.held_run()
    browser = office.browser(Role.APPROVER)
    html = ""
    for action, form in (
        ("approve", {"run": run.run_id, "reason": "moved & merged"}),
        ("sync", {"organizations": "acme\nglobex", "reason": "moved & merged", "deletes": "1"}),
    ):
        browser.get(address("keys"))
        office.time.move_on(days=2)
        html = browser.post(address(action), form)
        to = unescape(html.partition('name="to" value="')[2].partition('"')[0])
        html = browser.sign_in(TOKENS[Role.APPROVER], to)
        assert browser.status == 200
        assert "moved &amp; merged" in html
    assert 'value="acme\nglobex"' in html
    assert office.runs.get(run.run_id).status is RunStatus.HELD


def test_a_reason_too_long_for_an_address_is_not_kept(office: Office) -> None:
    run = office.held_run()
    browser = office.browser(Role.APPROVER)
    office.time.move_on(days=2)
    html = browser.post(address("approve"), {"run": run.run_id, "reason": "x" * 1000})
    to = unescape(html.partition('name="to" value="')[2].partition('"')[0])
    assert to == address("approve", run=run.run_id)


def test_more_than_a_hundred_are_approved_by_their_number(office: Office) -> None:
    run = office.held_run(141)
    browser = office.browser(Role.APPROVER)
    ask = address("approve", run=run.run_id)
    for number in ("", "14", "1410", "all"):
        assert "Type 141" in browser.send(ask, address("approve"), reason="so it is", number=number)
        assert office.runs.get(run.run_id).status is RunStatus.HELD
    browser.send(ask, address("approve"), reason="so it is", number="141")
    assert office.runs.get(run.run_id).status is RunStatus.QUEUED


def test_the_number_is_shown_and_accepted_with_its_comma(office: Office) -> None:
    run = office.held_run(2927)
    browser = office.browser(Role.APPROVER)
    ask = address("approve", run=run.run_id)
    assert "Type 2,927 to confirm" in browser.get(ask)
    assert "Type 2,927 to confirm" in browser.send(ask, address("approve"), reason="so it is", number="2,92")
    browser.send(ask, address("approve"), reason="so it is", number="2,927")
    assert office.runs.get(run.run_id).status is RunStatus.QUEUED


def test_a_held_run_is_named_by_the_same_moment_on_its_page_and_in_the_list(office: Office) -> None:
    run = office.held_run()
    browser = office.browser(Role.VIEWER)
    moment = f"{run.requested_at:%Y-%m-%dT%H:%M:%S}"
    assert run.finished_at != run.requested_at
    for page in (address("held"), address("run", id=run.run_id)):
        heading = browser.get(page).partition("run of <time" if "held" in page else "Sync of <time")[2]
        assert heading.startswith(f' datetime="{moment}')


@pytest.mark.parametrize("decision", ["approve", "discard"])
def test_a_decision_shows_the_cause_the_sources_and_examples_before_its_form(office: Office, decision: str) -> None:
    run = states.held(office)
    html = office.browser(Role.APPROVER).get(address(decision, run=run.run_id)).partition("<main")[2]
    text = " ".join(re.sub(r"<[^>]+>", " ", html.partition("<form")[0]).split())
    assert "Source hr lost 2 of its 4 documents in the read of" in text
    assert "1 source failed" in text
    assert "document-5 , document-6" in text
    assert "lose access by this run" not in html


@pytest.mark.parametrize("decision", ["approve", "discard"])
def test_a_decision_names_the_read_since_which_access_is_lost(office: Office, decision: str) -> None:
    first = states.held(office)
    office.time.move_on(days=1)
    newest = states.held(office)
    table = RunRow.__table__
    with writing(office.engine) as connection:
        report = json.dumps({**newest.report, "losses": []})
        connection.execute(update(table).where(table.c.run_id == newest.run_id).values(report=report, revision=11))
    html = office.browser(Role.APPROVER).get(address(decision, run=newest.run_id)).partition("<main")[2]
    text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    read = f"{first.requested_at:%-d %b %H:%M:%S}"
    assert f"These items have given no access since the read of {read}" in text
    assert "revision 11" not in text
    assert f'href="{address("run", id=first.run_id)}">Show the read</a>' in html
    assert html.index("1 source failed") < html.index("What happens")
    assert ("look deleted. Read it before you approve" in text) == (decision == "approve")


def test_the_list_of_held_deletes_has_examples(office: Office) -> None:
    states.held(office)
    html = office.browser(Role.APPROVER).get(address("held"))
    assert "document-5" in html
    assert ">Show documents</a>" in html
    assert ">Keep in the backend</a>" in html
    # A source could not be read, so to approve is not the first choice.
    assert "Records that have moved to a source that was not read look deleted." in html
    assert html.index("could not be read") < html.index("records lost")
    assert '<a class="button" href="/console/approve' in html


@pytest.mark.parametrize(
    ("reasons", "shown"),
    [
        (("no longer in the directory",), "ource hr lost 9 of its 40 documents"),
        (
            ("goes along with organization acme, which is gone from the directory",),
            "ource hr lost 1 of its 4 organizations",
        ),
        (
            ("no longer in the directory", "the user is no longer in the directory"),
            "lost 9 of its 40 documents and 2 users",
        ),
    ],
)
def test_held_deletes_name_only_the_losses_behind_them(office: Office, reasons: tuple[str, ...], shown: str) -> None:
    run = states.held(office)
    lost = ("1 of 4 organization", "6 of 50 membership", "9 of 40 document", "2 user", "3 disabled user")
    sentence = f"source hr takes away {' and '.join(f'{one} records' for one in lost)}; a read is refused above 9"
    items, runs = PlanItemRow.__table__, RunRow.__table__
    with writing(office.engine) as connection:
        report = json.dumps({**run.report, "losses": [sentence]})
        connection.execute(update(runs).where(runs.c.run_id == run.run_id).values(report=report))
        held = select(items.c.ordinal).where(items.c.plan_id == run.plan_id, items.c.status == "held")
        for ordinal, reason in zip(connection.scalars(held).all(), (reasons * 2)[:2], strict=True):
            of_item = (items.c.plan_id == run.plan_id) & (items.c.ordinal == ordinal)
            connection.execute(update(items).where(of_item).values(reason=reason))
    browser = office.browser(Role.APPROVER)
    for page in ("held", "overview", "approve"):
        html = browser.get(address(page, **({"run": run.run_id} if page == "approve" else {})))
        text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
        assert shown in text, page
        assert "memberships" not in text.partition("lost ")[2][:80], page


def test_reasons_of_held_deletes_are_read_only_if_records_were_lost(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = states.held(office)
    office.runs.update(run.run_id, run.status, report={**run.report, "losses": []})
    monkeypatch.setattr(run_reads, "held_reasons", lambda *_: pytest.fail("reads up to 1,000 items for nothing"))
    browser = office.browser(Role.APPROVER)
    for page in (address("held"), address("overview"), address("run", id=run.run_id)):
        browser.get(page)
        assert browser.status == 200, page


def test_discarded_deletes_are_not_executed(office: Office) -> None:
    run = office.held_run()
    browser = office.browser(Role.APPROVER)
    path = address("discard", run=run.run_id)
    assert f"<h1>Keep {run.total('held')} documents in the backend</h1>" in browser.get(path)
    browser.send(path, address("discard"), reason="a mistake in the directory")
    assert office.runs.get(run.run_id).status is RunStatus.CANCELLED
    assert [entry.reason for entry in entries(office, "discarded")] == ["a mistake in the directory"]


def test_the_second_of_two_decisions_is_a_conflict(office: Office) -> None:
    run = office.held_run()
    first, second = office.browser(Role.APPROVER), office.browser(Role.ADMIN)
    ask = address("approve", run=run.run_id)
    token = second.get(ask).partition('name="formToken" value="')[2].partition('"')[0]
    first.send(ask, address("approve"), reason="first")
    for word in ("approve", "discard"):
        html = second.post(address(word), {"formToken": token, "run": run.run_id, "reason": "second"})
        assert second.status == 409
        assert "Another operator decided first" in html
        assert "the approver (console)" in html
    assert office.runs.get(run.run_id).decision_reason == "first"
    assert len(entries(office, "approved")) == 1


def test_expired_held_deletes_are_not_approved(office: Office) -> None:
    run = office.held_run()
    browser = office.browser(Role.APPROVER)
    ask = address("approve", run=run.run_id)
    token = browser.get(ask).partition('name="formToken" value="')[2].partition('"')[0]
    office.time.move_on(days=8)
    again = office.browser(Role.APPROVER)
    assert "is over" in again.get(ask)
    assert again.status == 409
    browser.post(address("approve"), {"formToken": token, "run": run.run_id, "reason": "late"})
    assert office.runs.get(run.run_id).status is RunStatus.HELD
    assert entries(office, "approved") == []


def test_actions_of_a_viewer_are_refused_and_audited(office: Office) -> None:
    run = office.held_run()
    browser = office.browser(Role.VIEWER)
    token = browser.get("/console/").partition('name="formToken" value="')[2].partition('"')[0]
    paths = ["approve", "discard", "cancel", "sync", "retry", "apply"]
    for path in paths:
        browser.post(address(path), {"formToken": token, "run": run.run_id, "reason": "please"})
        assert browser.status == 403, path
        assert office.runs.get(run.run_id) == run
    assert len(office.runs.recent()) == 1
    refused = [(entry.subject, entry.outcome) for entry in entries(office, "refused")]
    assert refused == [(address(path), "needs the role approver") for path in reversed(paths)]


def test_a_sync_is_started_with_scope_and_reason(office: Office) -> None:
    browser = office.browser(Role.APPROVER)
    sync = address("sync", organizations="acme\r\n\r\nelse\nacme")
    browser.send(sync, address("sync"), go="preview", reason="to see")
    [run] = office.runs.recent()
    assert (run.trigger, run.dry_run, run.organization_ids) == ("console", True, ("acme", "else"))
    assert (run.asked_by, run.asked_reason) == ("the approver (console)", "to see")
    [entry] = entries(office, "preview asked for")
    assert (entry.subject, entry.reason) == (run.run_id, "to see")
    assert "the approver (console)" in browser.get(address("run", id=run.run_id))


def test_only_admins_lift_limits_and_need_a_reason(office: Office) -> None:
    approver, admin = office.browser(Role.APPROVER), office.browser(Role.ADMIN)
    assert 'name="deletes"' not in approver.get(address("sync"))
    approver.send(address("sync"), address("sync"), deletes="1", reason="I may not")
    assert approver.status == 403
    assert "Enter a reason for lifting the limits" in admin.send(address("sync"), address("sync"), deletes="1")
    assert office.runs.recent() == []
    admin.send(address("sync"), address("sync"), deletes="1", reason="the merger")
    assert [run.allow_deletes for run in office.runs.recent()] == [True]


WRONGLY_FILLED_IN = [
    ({"organizations": "x" * 513}, "at most 512 bytes"),
    ({"organizations": "a\0b"}, "at most 512 bytes"),
    ({"users": "\n".join(f"u{number}" for number in range(1001))}, "at most 1,000"),
    ({"reason": "y" * 1001}, "at most 1,000"),
]


def test_an_invalid_sync_form_keeps_its_values(office: Office) -> None:
    browser = office.browser(Role.APPROVER)
    for fields, message in WRONGLY_FILLED_IN:
        sync = address("sync")
        html = browser.post(sync, dict(browser.hidden_fields(sync, sync)) | fields)
        assert browser.status == 400, message
        assert message in html
        assert next(iter(fields.values()))[:6].replace("\0", "") in html
    assert office.runs.recent() == []


def test_cancelling_a_queued_run(office: Office) -> None:
    browser = office.browser(Role.APPROVER)
    browser.send(address("sync"), address("sync"))
    [run] = office.runs.recent()
    page = address("run", id=run.run_id)
    browser.send(page, address("cancel"))
    assert office.runs.get(run.run_id).status is RunStatus.CANCELLED
    assert len(entries(office, "cancelled")) == 1
    assert 'action="/console/cancel"' not in browser.get(page)


def test_a_retry_names_its_kind(office: Office) -> None:
    browser = office.browser(Role.APPROVER)
    token = browser.get("/console/").partition('name="formToken" value="')[2].partition('"')[0]
    browser.post(address("retry"), {"formToken": token, "kind": "document"})
    browser.post(address("retry"), {"formToken": token, "kind": "nonsense"})
    assert browser.status == 400
    assert [(run.retry, run.kinds) for run in office.runs.recent()] == [(True, ("document",))]


def test_actions_by_api_are_in_the_same_audit_log(office: Office) -> None:
    """The log contains requests of the HTTP API as well."""
    client = office.browser().client
    headers = {"Authorization": "Bearer an admin token of the settings"}
    answer = client.post("/resync", json={"dryRun": True}, headers=headers)
    assert answer.status_code == 202
    where = answer.headers["Location"]
    client.post(f"{where}/cancel", json={"reason": "never mind"}, headers=headers)
    [asked], [cancelled] = entries(office, "preview asked for"), entries(office, "cancelled")
    assert asked.way == cancelled.way == "api"
    assert asked.actor.startswith("admin token ")
    assert cancelled.reason == "never mind"
    assert client.get(where, headers=headers).get_json()["askedBy"] == asked.actor


def test_the_audit_log_is_exported_as_json_lines(office: Office) -> None:
    run = office.held_run()
    browser = office.browser(Role.APPROVER)
    browser.send(address("discard", run=run.run_id), address("discard"), reason="so")
    lines = browser.get(address("audit_lines", action="discarded")).splitlines()
    assert len(lines) == 1
    assert '"reason": "so"' in lines[0]
