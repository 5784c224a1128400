"""Tests of every page as every role: empty, full, and with hostile text."""

import json
import re
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import OperationalError
from sqlmodel import col

from app.access.decision.decide import Rule
from app.access.refresh.reads import Acceptance
from app.access.refresh.sources import UNCONFIGURED_POSITION
from app.access.source_tables import DirectorySourceRow, DirectoryStateRow, ProblemCountRow, ProblemRow
from app.access.tables import RevisionRow
from app.client.settings import BackendSettings
from app.commands.bootstrap.service import service_app
from app.foundation.audit import Actor, Audit, AuditAction, subject_of_refused
from app.foundation.database.engine import reading, writing
from app.monitoring.activity import NodeActivity
from app.service.console.settings import OidcSettings, Role
from app.service.console.urls import address
from app.service.provider.settings import ProviderSettings
from app.sync.ledger.failure_lists import (
    SameFailures,
    count_failures,
    failure_groups,
    number_of_failures,
    worst_failure,
)
from app.sync.ledger.failures import message_digest
from app.sync.ledger.ledger import open_ledger
from app.sync.ledger.tables import ItemFailureRow
from app.sync.plan.tables import PlanItemRow, PlanRow
from app.sync.runs.history import recent_runs
from app.sync.runs.run import RunRequest, RunStatus
from tests.service.console import states
from tests.service.console.conftest import ADMIN_TOKEN, TOKENS, Browser, Office
from tests.service.console.visitors import token_of
from tests.worlds.plan_parts import note_parts

DENIES = next(rule for rule in Rule if rule.denies)
HOSTILE = "<script>alert(1)</script>\"'\u202e\u0001&amp;"
PAGES = {
    "overview": "Overview",
    "runs": "Runs",
    "held": "Held deletes",
    "parked": "Failing items",
    "explain": "Explain",
    "browse": "Browse",
    "search": "Search",
    "sources": "Sources",
    "doctor": "Doctor",
    "settings": "Settings",
    "sessions": "Sessions",
    "audit": "Audit log",
    "keys": "Keyboard shortcuts",
}
FOR_APPROVERS = {"sync": "Sync", "preview_file": "Preview a file"}


@pytest.mark.parametrize("role", list(Role))
def test_all_roles_see_all_read_only_pages(office: Office, role: Role) -> None:
    browser = office.browser(role)
    for name, heading in PAGES.items():
        html = browser.get(address(name))
        assert browser.status == 200, name
        assert re.search(rf"<h1>{heading}</h1>", html), name
        assert html.count("<h1") == 1, name


@pytest.mark.parametrize(("role", "status"), [(Role.VIEWER, 403), (Role.APPROVER, 200), (Role.ADMIN, 200)])
def test_pages_of_actions_require_approvers(office: Office, role: Role, status: int) -> None:
    browser = office.browser(role)
    for name in FOR_APPROVERS:
        browser.get(address(name))
        assert browser.status == status


def test_all_pages_have_security_headers(office: Office) -> None:
    browser = office.browser(Role.ADMIN)
    for path in [*map(address, PAGES), "/console/nowhere", "/console/sign-in"]:
        browser.get(path)
        assert browser.answer is not None
        headers = browser.answer.headers
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "same-origin"
        html = browser.answer.get_data(as_text=True)
        assert not re.search(r"<(script|style)>|\son\w+=|\sstyle=|javascript:", html), path


def test_assets_are_kept_and_others_are_not_found(office: Office) -> None:
    browser = office.browser()
    html = browser.get("/console/sign-in")
    for path in re.findall(r'(?:href|src)="(/console/assets/[^"]+)"', html):
        browser.get(path)
        assert browser.status == 200
        assert browser.answer is not None
        assert "immutable" in browser.answer.headers["Cache-Control"]
    browser.get("/console/assets/console-000000000000.css")
    assert browser.status == 404


def test_a_run_is_shown_with_its_items_and_each_of_them(office: Office) -> None:
    run = planned_run(office, item_id="handbook")
    browser = office.browser(Role.VIEWER)
    html = browser.get(address("run", id=run))
    assert "user handbook is gone" in html
    assert "approve 1 delete" not in html  # a viewer may not approve
    html = browser.get(address("item", run=run, ordinal=1))
    assert "Delete document" in html
    assert "this one" in html


def test_hostile_names_are_text(office: Office) -> None:
    run = planned_run(office, item_id=HOSTILE, message=HOSTILE)
    with writing(office.engine) as connection:
        actor = Actor(name=HOSTILE, way="api", address=HOSTILE)
        Audit(office.time).record(connection, actor, AuditAction.APPROVE, subject=HOSTILE, reason=HOSTILE)
    browser = office.browser(Role.ADMIN)
    for path in (
        address("run", id=run),
        address("item", run=run, ordinal=1),
        address("audit"),
        address("parked"),
        address("explain", user=HOSTILE, resource=HOSTILE, organization=HOSTILE),
        address("runs"),
        address("sync"),
    ):
        html = browser.get(path)
        assert browser.status in {200, 400}, path
        assert "<script>alert" not in html, path
        # A field holds what was typed, which is for its writer to see.
        assert "\u202e" not in re.sub(r'value="[^"]*"', "", html), path


A_DOCUMENT = "%5B%22document%22%2C%22acme%22%2C%22%22%2C%22d1%22%2Cfalse%5D"
"""The place of one in the list of parked items."""

UNFIT = [
    ("/console/run?id=nobody", 404),
    ("/console/run?id=%00", 404),
    ("/console/run?id=" + "x" * 600, 404),
    ("/console/run", 404),
    ("/console/item?run=x&ordinal=1", 404),
    ("/console/runs?status=odd", 400),
    ("/console/runs?before=%ff%fe", 200),
    ("/console/runs?unknown=1", 400),
    ("/console/runs?status=done&status=held", 400),
    ("/console/parked?after=%5B1%5D", 400),
    ("/console/parked?after=%5B%22nothing%22%2C%22acme%22%2C%22%22%2C%22d1%22%2Cfalse%5D", 400),
    ("/console/parked?kind=folder&after=" + A_DOCUMENT, 400),
    ("/console/parked?organization=other&after=" + A_DOCUMENT, 400),
    ("/console/parked?kind=document&organization=acme&after=" + A_DOCUMENT, 200),
    ("/console/parked?after=" + "[" * 3000, 400),
    ("/console/parked?after=%5B%22a%22%2C%22b%5Cu0000%22%2C%22%22%2C%22%22%2Ctrue%5D", 400),
    ("/console/parked?after=%5B%22a%22%2C%22%5Cud800%22%2C%22%22%2C%22%22%2Ctrue%5D", 400),
    ("/console/audit?before=-1", 404),
    ("/console/audit?before=999999999999999999", 200),
    ("/console/audit?actor=%00", 200),
    ("/console/approve?run=nobody", 404),
    ("/console/explain?user=%00&resource=x&organization=acme", 400),
    ("/console/explain?user=ada&resource=handbook&organization=acme&at=never", 400),
    ("/console/explain?user=ada&resource=handbook&organization=acme&at=9999-99-99", 400),
    ("/console/explain?user=ada&type=context&resource=handbook&organization=acme&context=%5B", 400),
    ("/console/explain?user=ada&resource=handbook&organization=acme&type=planet", 400),
    ("/console/explain?user=nobody&resource=nothing&organization=nowhere", 200),
    ("/console/search?q=%00%00", 200),
    ("/console/search?q=%ED%A0%80%ED%A0%80", 200),
    ("/console/search?q=" + "%F0%9F%98%80" * 200, 200),
    ("/console/search?q=%25%25%5F%5F", 200),
    ("/console/search?q=a", 200),
    ("/console/organization?id=acme&q=%00%00", 200),
    ("/console/organization?id=acme&list=members&q=%ED%A0%80", 200),
    ("/console/organization?id=acme&list=odd", 400),
    ("/console/group?organization=acme&id=staff&q=%00%00", 404),
    ("/console/access?user=ada&organization=acme&q=%00%00", 200),
    ("/console/access?organization=acme&type=document&resource=handbook&q=%ED%A0%80", 200),
    ("/console/access?user=ada&organization=acme&kind=odd", 400),
    ("/console/access?user=ada&organization=acme&role=odd", 400),
    ("/console/access?user=ada&organization=acme&after=%5B%22access%22%2C%22x%22%5D", 400),
    ("/console/nowhere", 404),
    ("/console/../metrics", 404),
]


def test_invalid_parameters_get_an_error_page(office: Office) -> None:
    browser = office.browser(Role.ADMIN)
    for path, status in UNFIT:
        html = browser.get(path)
        assert browser.status == status, path
        assert "Traceback" not in html, path
        assert 'href="/console/' in html, path


def test_long_lists_have_pages(office: Office) -> None:
    for _ in range(53):
        office.held_run()
    browser = office.browser(Role.VIEWER)
    html = browser.get(address("runs"))
    link = re.search(r'href="([^"]*before=[^"]*)">Next page', html)
    assert link is not None
    assert html.count("/console/run?id=") == 50
    assert browser.get(link[1].replace("&amp;", "&")).count("/console/run?id=") == 3


def test_parked_items_have_pages(office: Office) -> None:
    ledger = open_ledger(office.engine, "http://backend.test", "key", office.time)
    with writing(office.engine) as connection:
        connection.execute(
            insert(ItemFailureRow.__table__),
            [
                {
                    "ledger_id": ledger.ledger_id,
                    "kind": "document" if number % 2 else "folder",
                    "organization_id": "acme",
                    "container_id": "",
                    "item_id": f"d{number:03}",
                    "deleting": bool(number % 3),
                    "fingerprint": "",
                    "failures": 10,
                    "retry_at": 0,
                    "parked": True,
                    "message": HOSTILE,
                    "message_digest": message_digest(HOSTILE),
                }
                for number in range(60)
            ],
        )
    browser = office.browser(Role.VIEWER)
    seen: list[str] = []
    path: str | None = address("parked")
    while path is not None:
        html = browser.get(path)
        seen += re.findall(r'class="id">(d\d{3})<', html)
        link = re.search(r'href="([^"]*after=[^"]*)">Next page', html)
        path = link[1].replace("&amp;", "&") if link else None
    assert sorted(seen) == [f"d{number:03}" for number in range(60)]
    assert '60<span class="hidden"> failing' in browser.get(address("runs"))
    ledger_id = ledger.ledger_id
    with reading(office.engine) as connection:
        assert number_of_failures(connection, ledger_id, parked=True, limit=100) == 60
        assert number_of_failures(connection, ledger_id, parked=True, limit=7) == 7
        assert number_of_failures(connection, ledger_id, parked=False, limit=7) == 0
    assert "Retry all" not in browser.get(address("parked"))
    approver = office.browser(Role.APPROVER)
    assert "Retry all that match" in approver.get(address("parked", kind="folder"))
    assert "Retry all that match" in approver.get(address("parked", organization="acme", message=HOSTILE))
    assert "No parked item matches" in approver.get(address("parked", organization="other", message=HOSTILE))


def test_failures_are_counted_to_a_thousand_and_filtered(office: Office) -> None:
    ledger = open_ledger(office.engine, "http://backend.test", "key", office.time)
    failure = {
        "ledger_id": ledger.ledger_id,
        "kind": "document",
        "organization_id": "acme",
        "container_id": "",
        "deleting": False,
        "fingerprint": "",
        "failures": 3,
        "retry_at": 0,
        "parked": False,
        "message": "no",
    }
    rare = {"parked": True, "failures": 10, "message": "given up"}
    with writing(office.engine) as connection:
        connection.execute(
            insert(ItemFailureRow.__table__),
            [
                *(failure | {"item_id": f"d{number:04}"} for number in range(1_500)),
                *(failure | rare | {"item_id": f"x{number}"} for number in (2, 1)),
            ],
        )
    browser = office.browser(Role.VIEWER)
    html = browser.get(address("parked"))
    assert re.findall(r'class="id">(x\d)<', html) == ["x1", "x2"]
    assert "Parked 2</a>" in html
    assert "Retrying more than 1,000</a>" in html
    assert "Retry all: 2 parked, more than 1,000 retrying" in office.browser(Role.APPROVER).get(address("parked"))
    html = browser.get(address("parked", state="waiting", after='["document","acme","","d1400",false]'))
    assert re.findall(r'class="id">(d\d{4})<', html)[0] == "d1401"
    html = browser.get(address("overview"))
    assert "More than 1,000 items: 2 parked, more than 1,000 retrying: no; given up." in html
    ledger_id = ledger.ledger_id
    with reading(office.engine) as connection:
        # Notifications and metrics count all of them.
        assert {(one.parked, one.items) for one in count_failures(connection, ledger_id)} == {(False, 1_500), (True, 2)}
        assert {one.items for one in count_failures(connection, ledger_id, limit=7)} == {7, 2}
    with writing(office.engine) as connection:
        worst = update(ItemFailureRow.__table__).where(ItemFailureRow.__table__.c.item_id == "d1499")
        connection.execute(worst.values(failures=9))
        found = worst_failure(connection, ledger_id, parked=False)
        assert found is not None
        assert (found.item_id, found.failures, found.deleting, found.parked) == ("d1499", 9, False, False)
        failing = worst_failure(connection, ledger_id, parked=False, limit=100)
        assert failing is not None
        assert failing.failures == 3


def test_failures_with_one_message_are_one_group(office: Office) -> None:
    ledger_id = open_ledger(office.engine, "http://backend.test", "key", office.time).ledger_id
    failure = {"ledger_id": ledger_id, "container_id": "", "deleting": False, "fingerprint": "", "failures": 10}
    failure |= {"retry_at": 0, "parked": True}
    given = [
        ("document", "acme", "a", "too long", 5_000),
        ("folder", "acme", "b", "too long", 3_000),
        ("folder", "acme", "c", "too long", None),
        ("folder", "acme", "d", "used up", None),
        ("folder", "other", "e", "used up", None),
    ]
    names = ("kind", "organization_id", "item_id", "message", "failing_since")
    with writing(office.engine) as connection:
        rows = [
            failure | dict(zip(names, one, strict=True)) | {"message_digest": message_digest(one[3])} for one in given
        ]
        connection.execute(insert(ItemFailureRow.__table__), rows)
    with reading(office.engine) as connection:
        found = failure_groups(connection, ledger_id, parked=True, limit=10)
        assert found == [
            SameFailures("too long", "acme", {"folder": 2, "document": 1}, 3, 3_000),
            SameFailures("used up", None, {"folder": 2}, 2, None),
        ]
        assert failure_groups(connection, ledger_id, parked=True, limit=1) == found[:1]
        assert failure_groups(connection, ledger_id, parked=False, limit=10) == []
    html = office.browser(Role.VIEWER).get(address("parked"))
    assert re.sub("<[^>]+>", "", html).count("used up") == 2
    assert "several" in html


def test_causes_of_failures_include_retrying_items_and_can_be_retried(office: Office) -> None:
    ledger_id = open_ledger(office.engine, "http://backend.test", "key", office.time).ledger_id
    failure = {"ledger_id": ledger_id, "kind": "document", "organization_id": "acme", "container_id": ""}
    failure |= {"deleting": False, "fingerprint": "", "failures": 3, "retry_at": 0, "failing_since": 5_000}

    def fail(message: str, *items: str, parked: bool) -> None:
        rows = [{"item_id": item, "message": message, "parked": parked} for item in items]
        with writing(office.engine) as connection:
            connection.execute(
                insert(ItemFailureRow.__table__),
                [failure | row | {"message_digest": message_digest(message)} for row in rows],
            )

    fail("too long", "a", "b", parked=False)
    approver = office.browser(Role.APPROVER)
    # Without parked items, the page shows those that are retried.
    html = approver.get(address("parked"))
    assert re.findall(r'class="id">([ab])<', html) == ["a", "b"]
    assert "All are retried." in html
    assert '<span class="badge warn">2<' in html
    fail("too long", "c", parked=True)
    fail("used up", "d", parked=True)
    # The badge, the page and the overview count the same items.
    assert '<span class="badge bad">4<' in approver.get(address("parked"))
    assert "Retry all: 2 parked, 2 retrying" in approver.get(address("parked"))
    overview = approver.get(address("overview"))
    assert "4 items: 2 parked, 2 retrying: too long (3); used up (1)." in overview
    fail("refused", "e", "f", "g", parked=True)
    overview = approver.get(address("overview"))
    assert "7 items: 5 parked, 2 retrying: refused (3); too long (3); and 1 for other causes." in overview
    with writing(office.engine) as connection:
        connection.execute(
            delete(ItemFailureRow).where(col(ItemFailureRow.parked), col(ItemFailureRow.message) == "refused")
        )
    with reading(office.engine) as connection:
        assert failure_groups(connection, ledger_id, parked=None, limit=10) == [
            SameFailures("too long", "acme", {"document": 3}, 1, 5_000),
            SameFailures("used up", "acme", {"document": 1}, 1, 5_000),
        ]
    html = approver.get(address("parked"))
    assert "1 parked, the others are retried." in html
    assert "It is parked." in html
    causes = re.findall(r'name="message" value="([^"]*)"><button class="slim">([^<]*)<', html)
    assert causes == [("too long", "Retry 3"), ("used up", "Retry 1")]
    approver.post(address("retry"), {"formToken": token_of(approver), "message": "too long"})
    with reading(office.engine) as connection:
        retry = recent_runs(connection, 1)[0]
    assert sorted(item.item_id for item in retry.items) == ["a", "b", "c"]
    assert "Retry 3" not in office.browser(Role.VIEWER).get(address("parked"))


def test_explain_answers_as_the_provider_does(office: Office) -> None:
    browser = office.browser(Role.VIEWER)
    html = browser.get(address("explain", user="ada", resource="handbook", organization="acme"))
    assert "Allowed as editor" in html
    assert "directory.yaml:8" in html  # the line of the record
    assert html.count('class="level') == 2
    html = browser.get(address("explain", user="ada", resource="roadmap", organization="acme"))
    assert "Denied" in html
    assert "access type decides" in html
    ended = address("explain", user="cleo", resource="roadmap", organization="acme", at="2031-01-01")
    assert "Denied" in browser.get(ended)
    html = browser.get(ended)
    assert "grant ended" in html
    # The record that would have to change is listed with its place, although it did not decide.
    passed = html.partition("Not applied")[2].partition("</table>")[0]
    assert ">ended</td>" in passed
    assert "directory.yaml:14" in passed


def test_a_live_run_is_updated_in_fragments(office: Office) -> None:
    run, _ = office.runs.enqueue(RunRequest(trigger="schedule"))
    browser = office.browser(Role.VIEWER)
    assert "data-live" in browser.get(address("run", id=run.run_id))
    part = browser.get(address("run", id=run.run_id), **{"x-fragment": "1"})
    assert "<html" not in part
    assert 'data-part="stages"' in part
    assert "data-ended" not in part
    office.runs.cancel(run.run_id)
    assert "data-ended" in browser.get(address("run", id=run.run_id), **{"x-fragment": "1"})


def planned_run(office: Office, *, item_id: str, message: str = "", **columns: object) -> str:
    """A held run with a plan of one item, by default the delete of a document."""
    run, _ = office.runs.enqueue(RunRequest(trigger="schedule"))
    with writing(office.engine) as connection:
        connection.execute(
            insert(PlanRow.__table__).values(
                plan_id="plan", ledger_id=1, revision=1, ledger_revision=1, plan_hash="", created_at=0
            )
        )
        connection.execute(
            insert(PlanItemRow.__table__).values(
                {
                    "plan_id": "plan",
                    "ordinal": 1,
                    "phase": 10,
                    "action": "delete",
                    "kind": "document",
                    "organization_id": "acme",
                    "container_id": "",
                    "item_id": item_id,
                    "operation": "delete_documents",
                    "scope": "[]",
                    "reason": "user handbook is gone",
                    "status": "held",
                    "message": message,
                    **columns,
                }
            )
        )
        note_parts(connection, "plan")
    office.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=office.time())
    counts = {"document": {"delete": {"planned": 1, "held": 1}}}
    office.runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING, plan_id="plan", revision=1)
    office.runs.move(
        run.run_id, RunStatus.PLANNING, RunStatus.HELD, finished_at=office.time(), counts=counts, report={"held": []}
    )
    return run.run_id


def test_the_overview_draws_the_activity(office: Office) -> None:
    browser = office.browser(Role.VIEWER)
    assert "Permission requests per minute" not in browser.get("/console/")
    assert "none seen" in browser.get("/console/")
    service = NodeActivity(node="n:1", role="service", clock=office.time)
    for asked in (10, 30, 20):
        office.time.move_on(minutes=1)
        service.answered(asked - 4, {DENIES: 3}, 1, 0.003)
        service.write(office.engine)
    office.time.move_on(seconds=31)
    html = browser.get("/console/")
    label = "permission requests per minute: lowest 10, highest 30, last 20; 15 % of all were denied"
    assert f'role="img" aria-label="{label}"' in html
    assert "peak 30" in html
    assert "1 service, 0 workers" in html
    assert "no worker is running" in html
    NodeActivity(node="n", role="worker", clock=office.time).write(office.engine)
    html = browser.get("/console/")
    assert "1 service, 1 worker" in html
    assert "all seen within 60 s" in html
    assert "latency of permission calls, 99th percentile" in html
    assert "99 of 100 took no longer</span>" in html
    assert "gaps" not in html
    # A minute in which nobody asks has no slowest answer.
    for asked in (0, 10, 0):
        office.time.move_on(minutes=1)
        if asked:
            service.answered(asked, {}, 0, 0.003)
        service.write(office.engine)
    office.time.move_on(seconds=31)
    html = browser.get("/console/")
    assert "; gaps without requests, 3 min in total" in html
    assert "at the last request</span>" in html
    assert html.partition("latency of permission calls")[2].partition("</svg>")[0].count("<path d=") == 2


def test_without_requests_there_are_no_charts(office: Office) -> None:
    service = NodeActivity(node="n:1", role="service", clock=office.time)
    for _ in range(3):
        office.time.move_on(minutes=1)
        service.write(office.engine)
    office.time.move_on(seconds=31)
    html = office.browser(Role.VIEWER).get("/console/")
    assert '<svg class="chart' not in html


def test_before_the_first_read_the_overview_lists_first_steps(office: Office) -> None:
    with writing(office.engine) as connection:
        connection.execute(update(DirectorySourceRow.__table__).values(last_good_at=None, last_read_at=None))
    assert _steps(office) == ["done", "open", "open", "open", "open"]


def test_first_steps_show_what_is_done_until_the_first_sync_has_ended(office: Office) -> None:
    assert _steps(office) == ["done", "open", "open", "done", "open"]
    NodeActivity(node="n", role="worker", clock=office.time).write(office.engine)
    assert _steps(office) == ["done", "done", "open", "done", "open"]
    states.done(office)
    assert _steps(office) == []


def _steps(office: Office) -> list[str]:
    """The states of the first steps on the overview."""
    html = office.browser(Role.VIEWER).get(address("overview"))
    assert ("What to do first" in html) == ('class="steps"' in html)
    return re.findall(r"<li><span class=.state [^>]*>.*?</svg>(\w+)</span>", html)


def test_sources_show_problems_and_commands(office: Office) -> None:
    with writing(office.engine) as connection:
        source = connection.execute(select(DirectorySourceRow.__table__.c.source_id)).scalar_one()
        connection.execute(delete(ProblemCountRow.__table__))
        connection.execute(delete(ProblemRow.__table__))
        of_source = {"source_id": source, "sort": "malformed", "by_read": True}
        connection.execute(insert(ProblemCountRow.__table__).values(**of_source, problems=250, since=1))
        texts = {"place": HOSTILE, "cause": HOSTILE, "kind": "", "key": "[]", "detail": "[]", "origin": ""}
        connection.execute(insert(ProblemRow.__table__).values(**of_source, ordinal=1, **texts))
        connection.execute(update(DirectoryStateRow.__table__).values(counted_revision=1234, counted_at=1))
        connection.execute(
            update(DirectorySourceRow.__table__).values(
                last_verdict="failed", refused="is empty", last_refusal_acceptance=Acceptance.EMPTY
            )
        )
        counts = [
            of_source | {"sort": sort, "problems": 3, "since": 1} for sort in ("dangling", "folderCycle", "remark")
        ]
        connection.execute(insert(ProblemCountRow.__table__), counts)
    browser = office.browser(Role.VIEWER)
    html = browser.get(address("sources"))
    # The same numbers as in the table of problems.
    left_out = '</svg>256</span></dd><dd class="under">malformed (250), missing target (3), folders in a circle (3)'
    assert left_out in html
    assert "usher directory refresh --accept-empty people" in html
    assert "250" in html
    assert "Problems were counted at revision 1,234" in html
    html = browser.get(address("problems", source="people", sort="malformed"))
    assert "The first 1 of 250" in html
    assert "&lt;script&gt;" in html
    assert "<script>alert" not in html
    assert "No such problem" in browser.get(address("problems", source="people", sort="ambiguous"))
    html = browser.get(address("problems", source="people"))
    assert "This link is incomplete." in html
    assert re.search(r'<a href="/console/sources" aria-current="page"', html)
    for source, sort, status in (
        ("nobody", "remark", 404),
        ("people", "", 404),
        ("people", "odd", 400),
        ("\0", "remark", 404),
    ):
        browser.get(address("problems", source=source, sort=sort))
        assert browser.status == status, (source, sort)


def test_a_source_without_a_push_is_not_shown_as_read(office: Office) -> None:
    with writing(office.engine) as connection:
        values = {"name": "app", "position": 8, "last_verdict": "complete", "last_reason": "", "last_read_at": 1_000}
        connection.execute(insert(DirectorySourceRow).values(**values))
    browser = office.browser(Role.VIEWER)
    html = browser.get(address("sources"))
    section = html.partition(">app <")[2].partition("</section>")[0]
    assert "no push yet" in section
    assert "Read successfully" not in section
    assert "complete" not in section
    assert "no push yet" in browser.get(address("overview"))


def test_configured_sources_are_listed_before_their_first_read(office: Office) -> None:
    with writing(office.engine) as connection:
        for table in (ProblemCountRow, ProblemRow, DirectorySourceRow):
            connection.execute(delete(table.__table__))
    text = " ".join(re.sub(r"<[^>]+>", " ", office.browser(Role.VIEWER).get(address("sources"))).split())
    assert "people file never read" in text


def test_failed_sources_come_first_with_the_time_of_their_records(office: Office) -> None:
    table = DirectorySourceRow.__table__
    with writing(office.engine) as connection:
        for position, row in enumerate(
            (
                {"name": "well", "last_verdict": "complete", "last_good_at": 2_000},
                {"name": "half", "last_verdict": "partial", "last_reason": "page 2 of 3", "last_good_at": 2_000},
                {"name": "away", "last_verdict": "failed", "last_reason": "timed out", "last_good_at": 1_000},
                {"name": "former", "last_verdict": "complete", "position": UNCONFIGURED_POSITION},
            ),
            1,
        ):
            values = {"position": position, "last_reason": "", "last_read_at": 2_000, "records": 7}
            connection.execute(insert(table).values(**values | row))
        source_id = connection.execute(select(table.c.source_id).where(table.c.name == "half")).scalar_one()
        owned = {"source_id": source_id, "sort": "ownedElsewhere", "by_read": False, "problems": 12, "since": 1}
        connection.execute(insert(ProblemCountRow.__table__).values(**owned))
    html = office.browser(Role.VIEWER).get(address("sources"))
    headings = re.findall(r"<h2 class=\"named\" id=\"[^\"]*\">(\w+) <span class=\"pill", html)
    assert headings == ["away", "former", "half", "people", "well"]
    sections = re.split(r'<h2 class="named" id="[^"]*">', html)
    away, half = (next(part for part in sections if part.startswith(name)) for name in ("away", "half"))
    sentence = r"cannot be read: timed out\. Its records of <time [^>]*>1 Jan 1970 00:00:01</time> stay in force\."
    assert re.search(f"It {sentence}", away)
    assert re.search(f"Source away {sentence}", office.browser(Role.VIEWER).get(address("overview")))
    assert "3 of 4" in half
    assert "12 records outranked" in half
    assert 'title="ownedElsewhere">Owned by another source</a>' in half
    shown = re.findall(r"<dt>Precedence</dt><dd>(\d) of 4</dd>", html)
    assert dict(zip(["away", "half", "people", "well"], shown, strict=True)) == {
        "people": "1", "well": "2", "half": "3", "away": "4"
    }  # fmt: skip


def test_sources_show_the_losses_behind_held_deletes_and_failed_reads(office: Office) -> None:
    run = states.held(office)
    lost = states.LOST.replace("source hr", "source people")
    unread = {"name": "people", "verdict": "failed", "reason": "people: no such file"}
    office.runs.update(run.run_id, run.status, report={**run.report, "losses": [lost], "sources": [unread]})
    browser = office.browser(Role.VIEWER)
    text = " ".join(re.sub(r"<[^>]+>", " ", browser.get(address("sources"))).split())
    at = f"{run.requested_at:%-d %b %H:%M:%S}"
    assert f"Source people lost 2 of its 4 documents in the read of {at} . The deletes are held. Review" in text
    assert "people records lost Source people lost" in text, "the worst state"
    assert re.search(r"Last failed read [^.]*, in the run of [^.]* : no such file\.", text)
    office.runs.discard(run.run_id, by="mira", reason="so")
    assert "Source people lost" not in browser.get(address("sources"))


def test_sources_show_what_the_last_reads_changed(office: Office) -> None:
    changed = {
        "user": {"added": 1, "updated": 1_200, "removed": 0},
        "groupMember": {"added": 2, "updated": 0, "removed": 9},
    }
    with writing(office.engine) as connection:
        row = {"revision": 7, "created_at": 1_000, "changes": json.dumps(changed)}
        connection.execute(insert(RevisionRow.__table__).values(**row))
        of_source = {"last_changes": json.dumps(changed), "last_changed_at": 1_000}
        connection.execute(update(DirectorySourceRow.__table__).values(**of_source))
    html = office.browser(Role.VIEWER).get(address("sources"))
    assert re.search(r'<dt>Last change</dt>.*<dd class="under">3 added, 1,200 changed, 9 removed</dd>', html)
    rows = html.partition("<h2>What the last reads changed</h2>")[2]
    (row_of_7,) = re.findall(r'<tr[^>]*><td [^>]*class="num"[^>]*>7</td>(.*?)</tr>', rows)
    added, updated, removed = (
        re.sub("<[^>]+>", "", cell) for cell in re.findall(r'<td [^>]*class="thing"[^>]*>(.*?)</td>', row_of_7)
    )
    assert (added, updated, removed) == ("2 group members, 1 user", "1,200 users", "9 group members")
    assert re.search(r'<td [^>]*class="num"[^>]*>1</td>', rows)


def test_problems_between_sources_are_shown(office: Office) -> None:
    browser = office.browser(Role.VIEWER)
    assert "Between sources" not in browser.get(address("sources"))
    of_all = {"source_id": 0, "sort": "groupCycle", "by_read": False}
    of_nobody = {"source_id": 99, "sort": "dangling", "by_read": False}  # a source that is no more
    groups = {"kind": "group", "key": '["acme", "a"]', "cause": "groupCycle", "detail": '["a", "b"]', "origin": ""}
    with writing(office.engine) as connection:
        for one in (of_all, of_nobody):
            connection.execute(insert(ProblemCountRow.__table__).values(**one, problems=7, since=0))
            connection.execute(insert(ProblemRow.__table__).values(**one, **groups, ordinal=1, place="people.yaml:7"))
    html = browser.get(address("sources"))
    section = html.partition("<h2>Between sources</h2>")[2]
    assert "groupCycle" in section
    assert "dangling" not in section
    href = re.search(r'href="([^"]*sort=groupCycle)"', section)
    assert href is not None
    html = browser.get(href[1].replace("&amp;", "&"))
    assert "people.yaml:7" in html
    assert "contain each other; all have the union of their members" in html
    assert "Between sources" in html
    assert "No such problem" in browser.get(address("problems", sort="dangling"))
    browser.get(address("problems", source="nobody", sort="dangling"))
    assert browser.status == 404


def test_each_audited_action_has_one_name_a_subject_and_its_outcome(office: Office) -> None:
    run = office.held_run()
    browser = office.browser(Role.VIEWER)

    def rows() -> list[list[str]]:
        """Action, subject and outcome of each row, the newest first."""
        table = browser.get(address("audit")).partition("<tbody>")[2].partition("</tbody>")[0]
        cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)[3:] for row in table.split("</tr>")[:-1]]
        return [[" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in row] for row in cells]

    def record(action: AuditAction, **values: str) -> list[str]:
        with writing(office.engine) as connection:
            Audit(office.time).record(connection, Actor(name="ann", way="console"), action, **values)
        return rows()[0]

    assert rows() == [["Sign in", "this console", "done"]]
    names = {action: record(action, subject="it")[0] for action in AuditAction}
    assert len(set(names.values())) == len(names)
    # The name is neither the stored one nor another spelling of it.
    assert [name for action, name in names.items() if name.lower() == action] == []
    of_run = f"run of {run.requested_at:%-d %b %H:%M:%S}"
    for action in (AuditAction.APPROVE, AuditAction.APPLY, AuditAction.END_SESSION):
        subject = subject_of_refused(action, run.run_id)
        refused = record(AuditAction.REFUSE, subject=subject, outcome="needs the role admin")
        assert refused == [names[action], of_run, "refused needs the role admin"]
    approval = record(AuditAction.APPROVE, subject=f"{run.run_id}: 34 held deletes")
    assert approval == ["Approve held deletes", f"{of_run} : 34 held deletes", "done"]
    assert record(AuditAction.REFUSE, subject="/resync", outcome="no")[:2] == ["Send a request", "/resync"]
    assert record(AuditAction.UPLOAD, subject="app", outcome="was not applied: it is empty")[2].startswith("failed was")
    assert record(AuditAction.REGISTER, subject="u", outcome="no change: already registered")[2].startswith("no change")
    assert record(AuditAction.REGISTER, subject="u", outcome="begun")[2] == "begun"
    verify = RunRequest(trigger="console", verify=True, organization_ids=("acme",))
    requested = record(AuditAction.SYNC, subject=office.runs.enqueue(verify)[0].run_id)
    assert requested[0] == "Request a verify of Acme"
    office.browser().sign_in("a wrong token")
    assert rows()[0] == ["Sign in", "this console", "refused the token is not accepted"]


def test_the_audit_log_is_read_by_time(office: Office) -> None:
    for name in ("first", "second", "third"):
        with writing(office.engine) as connection:
            Audit(office.time).record(connection, Actor(name=name, way="command"), AuditAction.SYNC)
        office.time.move_on(days=1)
    browser = office.browser(Role.VIEWER)

    def shown(path: str) -> list[str]:
        return [name for name in ("first", "second", "third") if f">{name}<" in path or f'"{name}"' in path]

    day = f"{office.time.began + timedelta(days=1):%Y-%m-%d}"
    assert shown(browser.get(address("audit", since=day, until=day))) == ["second"]
    assert shown(browser.get(address("audit", until=f"{day} 23:00"))) == ["first", "second"]
    assert shown(browser.get(address("audit", since="2100-01-01"))) == []
    assert shown(browser.get(address("audit", until="1970-01-01"))) == []
    assert shown(browser.get(address("audit_lines", since=day))) == ["second", "third"]
    html = browser.get(address("audit", since="soon"))
    assert "Enter a day like" in html
    assert "Correct the times" in html
    assert "No entry matches" not in html
    assert browser.status == 400
    # The events are at noon in UTC, which is 01:00 of the next day in Auckland.
    auckland = {"zone": "Pacific/Auckland"}
    next_day = f"{office.time.began + timedelta(days=2):%Y-%m-%d}"
    assert shown(browser.get(address("audit", since=next_day, until=next_day, **auckland))) == ["second"]
    assert shown(browser.get(address("audit", until=f"{next_day} 00:59", **auckland))) == ["first"]
    assert shown(browser.get(address("audit", until=f"{day} 12:00Z", **auckland))) == ["first", "second"]
    html = browser.get(address("audit", since=day, **auckland))
    assert ">Pacific/Auckland</span>" in html
    assert "since=2026-11-21&amp;zone=Pacific" in html
    for zone in ("Mars", "../UTC", "Europe", "\0"):
        browser.get(address("audit", since=day, zone=zone))
        assert browser.status == 400, zone
    for odd in ("0001-01-01", "9999-12-31", "9999-12-31T23:59:59-12:00", "\0"):
        browser.get(address("audit_lines", until=odd))
        assert browser.status in {200, 400}, odd


def test_settings_show_the_origin_of_each_value(office: Office) -> None:
    origins = {"console.name": "environment variable USHER_CONSOLE__NAME"}
    app = service_app(office.settings, office.engine, clock=office.time, new_id=lambda: "x", origins=origins)
    browser = Browser(app.test_client())
    browser.sign_in(TOKENS[Role.VIEWER])
    html = browser.get(address("settings", all=1))
    assert "environment variable USHER_CONSOLE__NAME" in html
    assert all(token not in html for token in (*TOKENS.values(), ADMIN_TOKEN))
    keys = re.findall(r'<th scope="row"><code>([^<]+)', html)

    def listed(**query: object) -> list[str]:
        return re.findall(r'<th scope="row"><code>([^<]+)', browser.get(address("settings", **query)))

    assert listed() == ["console.name"]
    assert "server.timeout" in keys
    assert re.search(r"<code>server.timeout</code>.*<code>30</code> <span[^>]*>s</span>", html)
    assert listed(q="SYNC.limits") == [key for key in keys if key.startswith("sync.limits")]
    assert "No setting matches" in browser.get(address("settings", q="nothing like it"))
    # Secrets are masked before they are searched.
    assert listed(q=TOKENS[Role.ADMIN]) == []
    html = browser.get(address("settings", all="maybe"))
    assert (browser.status, "all maybe is unknown; use 1, or leave it out" in html) == (400, True)


def test_settings_are_grouped_as_in_their_file(office: Office) -> None:
    html = office.browser(Role.VIEWER).get(address("settings", all=1))
    sections = re.findall(r'<th scope="colgroup" colspan="3">([^<]+)', html)
    written = Path("config/usher.yaml").read_text()
    assert sections == re.findall(r"^([a-z_]+):$", written, re.MULTILINE)


def test_no_page_shows_a_secret(office: Office, database_url: str) -> None:
    """Each secret of the settings is looked for in every page that an admin can open."""
    secrets = {name: f"hunter2-{name}-of-some-length" for name in ("key", "token", "client", "webhook", "proxy", "ask")}
    settings = office.settings.model_copy(
        update={
            "backend": BackendSettings(
                api_key=SecretStr(secrets["key"]),
                auth_token=SecretStr(secrets["token"]),
                proxy=SecretStr(f"http://me:{secrets['proxy']}@127.0.0.1:9"),
            ),
            "provider": ProviderSettings(auth_tokens=(SecretStr(secrets["ask"]),)),
            "console": office.settings.console.model_copy(
                update={
                    "public_url": "http://localhost",
                    "oidc": OidcSettings(
                        issuer="http://127.0.0.1:9",
                        client_id="usher",
                        client_secret=SecretStr(secrets["client"]),
                        roles={"ops": Role.VIEWER},
                    ),
                }
            ),
        }
    )
    app = service_app(settings, office.engine, clock=office.time, new_id=lambda: "made")
    browser = Browser(app.test_client())
    pages = [browser.get(address("sign_in")), browser.sign_in(TOKENS[Role.ADMIN])]
    run = planned_run(office, item_id="handbook")
    more = [address("run", id=run), address("item", run=run, ordinal=1), address("audit_lines"), "/console/nowhere"]
    more.append(address("settings", all=1))
    pages += [browser.get(path) for path in [*map(address, [*PAGES, *FOR_APPROVERS]), *more]]
    assert "<h1>Settings</h1>" in "".join(pages)
    cookie = browser.client.get_cookie("usher")
    assert cookie is not None
    for secret in (*secrets.values(), *TOKENS.values(), ADMIN_TOKEN, cookie.value):
        assert all(secret not in html for html in pages), secret


def test_an_unavailable_database_is_reported(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = office.browser(Role.VIEWER)
    away = OperationalError("SELECT 1", {}, sqlite3.OperationalError("unable to open database file"))

    def fails(*_: object) -> None:
        raise away

    monkeypatch.setattr("app.service.console.gate.page_reading", fails)
    html = browser.get("/console/")
    assert browser.status == 503
    assert "The database cannot be reached." in html
    assert 'href="/readyz"' in html
    assert "sqlite" not in html
