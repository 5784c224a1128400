"""Every page, light and dark, wide and narrow: no violation in axe, nothing beyond the screen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, insert

from app.commands.bootstrap.service import service_app
from app.foundation.clock import utc_now
from app.foundation.database.engine import writing
from app.service.console.settings import Role
from app.service.console.urls import route_of
from app.settings import Settings
from app.sync.ledger.failures import message_digest
from app.sync.ledger.tables import ItemFailureRow
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import RunRequest, RunStatus
from tests.service.console.browser.company import Company, Newborn, without_old_documents
from tests.service.console.browser.conftest import OpenDesk
from tests.service.console.browser.desk import COLOURS, WIDE, Desk
from tests.service.console.browser.test_without_a_script import examined

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.timeout(180), pytest.mark.xdist_group("browser")]

PICTURES = os.environ.get("USHER_TEST_PICTURES", "")
"""A folder for a screenshot of each page, light and dark, and of each width."""


@dataclass(frozen=True)
class Busy:
    """Ids of runs of a company with much to show."""

    first: str
    held: str
    preview: str
    failed: str
    unread: str


@pytest.fixture(scope="module")
def busy(company: Company, passes: dict[Role, Any], browser: Browser) -> Iterator[Busy]:
    """There are held deletes, a plan to apply, a failed run, parked and waiting items, findings of the doctor, and ids
    and names of maximum length."""
    first = company.sync()["runId"]
    company.demo.directory.rename(company.demo.directory.with_suffix(".away"))
    unread = company.sync()["runId"]
    company.edit(_without_much)
    preview = company.sync(dryRun=True)["runId"]
    failed = _failed_run(company)
    held = company.sync()["runId"]
    with writing(company.engine) as connection:
        connection.execute(insert(ItemFailureRow.__table__), [_failure(number) for number in range(60)])
    context = browser.new_context(storage_state=passes[Role.ADMIN])
    one = Desk(context.new_page(), company)
    one.go("doctor")
    one.page.get_by_role("button", name="Run the doctor").click()
    examined(one)
    context.close()
    yield Busy(first, held, preview, failed, unread)
    with writing(company.engine) as connection:
        connection.execute(ItemFailureRow.__table__.delete())
    company.back_in_step()


def _without_much(directory: dict[str, Any]) -> None:
    """Without the old documents, and with a grant that refers to a missing record."""
    without_old_documents(directory)
    directory["grants"].append({"organizationId": "northwind", "folderId": "nowhere", "userId": "amara"})
    within = {"organizationId": "northwind"}
    directory["users"].append({"userId": LONG_ID, "name": LONG_NAME, "email": f"{'long' * 15}@northwind.example"})
    directory["memberships"].append({**within, "userId": LONG_ID})
    directory["folders"].append(
        {**within, "folderId": LONG_ID, "folderName": LONG_NAME, "parentFolderId": "unreleased"}
    )
    directory["documents"].append({**within, "documentId": LONG_ID, "documentName": LONG_NAME, "folderId": LONG_ID})
    directory["groups"].append({**within, "organizationUserGroupId": LONG_ID, "groupName": LONG_NAME})
    directory["groupMembers"].append({**within, "organizationUserGroupId": LONG_ID, "userId": LONG_ID})
    directory["grants"] += [
        {**within, "folderId": LONG_ID, "organizationUserGroupId": LONG_ID, "accessRole": "viewer"},
        {**within, "documentId": LONG_ID, "userId": LONG_ID},
    ]


def _failed_run(company: Company) -> str:
    """A run with a plan, without the worker."""
    with company.standing_still("worker"):
        runs = Runs(company.engine, utc_now, SystemRandom())
        run, _ = runs.enqueue(RunRequest(trigger="schedule"))
        runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=utc_now())
        runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING, revision=1)
        error = "the backend at https://backend.example cannot be reached: connection refused"
        runs.move(run.run_id, RunStatus.PLANNING, RunStatus.FAILED, finished_at=utc_now(), error=error)
        return run.run_id


REFUSAL = "the name is longer than 200 characters"


def _failure(number: int) -> dict[str, object]:
    return {
        "ledger_id": 1,
        "kind": ("document", "folder", "organizationUser")[number % 3],
        "organization_id": "northwind",
        "container_id": "archive" if number % 3 == 0 else "",
        "item_id": f"item-{number:02}",
        "deleting": number % 4 == 0,
        "fingerprint": "",
        "failures": 10 if number % 2 else 3,
        "retry_at": 4_000_000_000_000,
        "parked": bool(number % 2),
        "message": REFUSAL,
        "message_digest": message_digest(REFUSAL),
    }


LONG_ID = "a_very_long_id_" * 34
LONG_NAME = (
    "Minutes\u202e \u0645\u0644\u0627\u062d\u0638\u0627\u062a \U0001f5c2\ufe0f " + "everythingThatWasEverDecided" * 7
)
"""A name with letters from right to left, an emoji, and a word of 196 characters that has no place to break."""

PAGES: dict[str, dict[str, str]] = {
    "overview": {},
    "runs": {},
    "run first": {"id": "{first}"},
    "run held": {"id": "{held}"},
    "run preview": {"id": "{preview}"},
    "run failed": {"id": "{failed}"},
    "run of an unread source": {"id": "{unread}"},
    "run without a plan": {"id": "{first}"},
    "run filtered": {"id": "{held}", "kind": "document", "action": "update"},
    "runs of none": {"status": "reading"},
    "item": {"run": "{held}", "ordinal": "1"},
    "item that is held": {"run": "{held}", "ordinal": "20"},
    "sync": {},
    "sync narrowed": {"organizations": "northwind", "users": "bruno\nnobody"},
    "preview_file": {},
    "access_impact": {"run": "{preview}"},
    "access_change": {"run": "{preview}", "ordinal": "1"},
    "held": {},
    "approve": {"run": "{held}"},
    "discard": {"run": "{held}"},
    "parked": {},
    "parked waiting": {"state": "waiting"},
    "explain": {},
    "explain allowed": {"user": "farah", "resource": "project-aurora", "organization": "northwind"},
    "explain denied": {"user": "jun", "resource": "project-aurora", "organization": "northwind"},
    "explain unknown": {"user": "nobody", "resource": "nothing", "organization": "northwind"},
    "explain wrong": {"user": "jun", "resource": "x", "organization": "northwind", "at": "soon"},
    "browse": {},
    "organization": {"id": "northwind"},
    "folder": {"organization": "northwind", "id": "unreleased"},
    "document": {"organization": "northwind", "id": "project-aurora"},
    "access of a user": {"user": "bruno", "organization": "northwind"},
    "access to a document": {"organization": "northwind", "type": "document", "resource": "project-aurora"},
    "group": {"organization": "northwind", "id": "engineering"},
    "user": {"id": "bruno"},
    "user unknown": {"id": "nobody"},
    "ledger_item": {"kind": "document", "organization": "northwind", "container": "archive", "item": "minutes-00"},
    "search": {"q": "pro"},
    "search nothing": {"q": "zzzz"},
    "explain long": {"user": LONG_ID, "resource": LONG_ID, "organization": "northwind"},
    "folder long": {"organization": "northwind", "id": LONG_ID},
    "document long": {"organization": "northwind", "id": LONG_ID},
    "group long": {"organization": "northwind", "id": LONG_ID},
    "user long": {"id": LONG_ID},
    "search long": {"q": "minutes"},
    "told long": {"kind": "folderUser", "organization": "northwind", "container": LONG_ID, "item": LONG_ID},
    "explain ended": {"user": "xavier", "resource": "project-aurora", "organization": "northwind"},
    "sources": {},
    "problems": {"source": "directory.yaml", "sort": "dangling"},
    "doctor": {},
    "settings": {},
    "sessions": {},
    "audit": {},
    "audit of nobody": {"actor": "nobody"},
    "audit wrong": {"since": "soon"},
    "keys": {},
    "nowhere": {},
}
"""The page, and after a blank its state; the query parameters."""


STATUSES = {"nowhere": {404}, "user unknown": {404}, "explain wrong": {400}, "audit wrong": {400}}
"""The statuses of pages with an error."""
NO_PAGES = {"access.csv", "audit.jsonl", "oidc", "oidc/back", "sign-in", "suggest"}
"""Redirects, and pages that other tests check."""


@pytest.fixture(scope="module")
def admin(company: Company, passes: dict[Role, Any], browser: Browser) -> Iterator[Desk]:
    """One browser for all pages: it loads script and stylesheet once."""
    options: dict[str, Any] = {"viewport": WIDE, "locale": "en-GB", "timezone_id": "UTC"}
    context = browser.new_context(storage_state=passes[Role.ADMIN], **options)
    context.set_default_timeout(15_000)
    yield Desk(context.new_page(), company)
    context.close()


@pytest.mark.parametrize("which", PAGES)
def test_a_page_is_for_everybody(admin: Desk, busy: Busy, which: str) -> None:
    one = admin
    one.expected = STATUSES.get(which, set())
    one.messages.clear()
    one.page.emulate_media(color_scheme="light")
    one.resize(WIDE["width"])
    one.go(which.partition(" ")[0], **{name: value.format(**vars(busy)) for name, value in PAGES[which].items()})
    shown = one.page.locator("main").inner_text()
    assert [text for text in TEXTS.get(which, ()) if text not in shown] == [], shown
    check_page(one, which)
    one.check()


TEXTS = {
    "run failed": ("failed", "connection refused"),
    "run of an unread source": ("could not be read",),
    "run held": ("Review and approve 34 deletes",),
    "run preview": ("Preview of",),
    "doctor": ("warning", "What to do"),
    "parked waiting": ("the name is longer",),
    "document long": ("‹U+202E›", "a_very_long_id_"),
}
"""Texts that show that a page is in the expected state."""


def test_no_page_is_left_out() -> None:
    """A new page must be added to ``PAGES``."""
    app = service_app(Settings(), create_engine("sqlite://"), clock=utc_now, new_id=lambda: "")
    served = {
        rule.rule.removeprefix("/console/")
        for rule in app.url_map.iter_rules()
        if rule.rule.startswith("/console/") and "GET" in (rule.methods or ()) and "<" not in rule.rule
    }
    checked = {route_of(name.partition(" ")[0]).removeprefix("/") for name in PAGES}
    assert served - checked == NO_PAGES


def test_violations_are_detected(desk: OpenDesk) -> None:
    """An image without a text, a message, and requests to other hosts. The policy blocks those of our pages."""
    one = desk()
    one.go("keys")
    one.page.evaluate(
        """() => {
          document.querySelector("main").append(new Image());
          console.warn("a message");
          fetch("http://127.0.0.1:9/").catch(() => undefined);
        }"""
    )
    one.page.wait_for_timeout(100)
    assert any(found.startswith("image-alt") for found in one.violations())
    assert "a message" in one.messages
    assert any("Content Security Policy" in message for message in one.messages)
    one.messages.clear()
    one.page.goto("about:blank")
    one.page.evaluate("fetch('http://127.0.0.1:9/').catch(() => undefined)")
    one.page.wait_for_timeout(100)
    assert one.elsewhere == ["http://127.0.0.1:9/"]
    one.elsewhere.clear()
    one.known = ("http://127.0.0.1:9/",)
    one.messages.clear()


def test_pages_without_a_session(desk: OpenDesk) -> None:
    one = desk(None)
    one.go("sign_in")
    check_page(one, "sign-in")
    one.expected = {403}
    one.page.get_by_label("token").fill("a wrong one")
    one.page.get_by_role("button", name="Sign in").click()
    check_page(one, "sign-in wrong")


def test_empty_pages_show_the_next_step(desk: OpenDesk, newborn: Newborn) -> None:
    one = desk(None, newborn)
    one.go("sign_in")
    one.sign_in(Role.ADMIN)
    for name, text in EMPTY.items():
        one.go(name)
        assert one.page.get_by_text(text).first.is_visible(), name
        check_page(one, f"empty {name}")


EMPTY = {
    "overview": "What to do first",
    "runs": "No runs yet",
    "held": "Nothing is held",
    "parked": "No item is parked",
    "browse": "No organizations",
    "sources": "A worker reads them with the first sync.",
    "doctor": "The doctor has not run yet",
    "search": "Search the directory",
}
"""The text of a page without content."""


def test_refusals_and_failures_are_pages(desk: OpenDesk, busy: Busy) -> None:
    one = desk(Role.VIEWER)
    one.expected = {403, 503}
    one.go("sync")
    assert "needs the role approver" in one.page.locator("main").inner_text()
    check_page(one, "role too low")
    # The page of another service, whose database is unavailable.
    away = create_engine("postgresql+psycopg://nobody@127.0.0.1:9/none")
    client = service_app(Settings(), away, clock=utc_now, new_id=lambda: "made").test_client()
    client.set_cookie("usher", "x")
    answer = client.get("/console/")
    assert answer.status_code == 503
    one.page.route(
        "**/console/keys", lambda route: route.fulfill(status=503, body=answer.text, content_type="text/html")
    )
    one.go("keys")
    assert one.heading() == "Not available right now"
    check_page(one, "database away")


WIDTHS = (1440, 1280, 768, 390, 320)
"""Pixels. 320 px are like a zoom of 400 % on 1,280 px."""


def check_page(one: Desk, which: str) -> None:
    """Checks light and dark, and every width."""
    found = [*one.violations(), *one.too_small()]
    if one.page.locator("h1").count() != 1:
        found.append("there is not one h1")
    _keep(one, f"{which}-light")
    one.page.emulate_media(color_scheme="dark")
    found += one.violations(rules=COLOURS)
    _keep(one, f"{which}-dark")
    for width in WIDTHS:
        one.resize(width)
        _keep(one, f"{which}-{width}-dark")
        found += [f"at {width} px: {text}" for text in (*one.too_wide(), *one.scrolling())]
    found += one.too_small()
    one.page.emulate_media(color_scheme="light")
    _keep(one, f"{which}-320-light")
    one.resize(WIDE["width"])
    assert not found, "\n".join(found)


def _keep(one: Desk, name: str) -> None:
    if PICTURES:
        Path(PICTURES).mkdir(parents=True, exist_ok=True)
        one.page.screenshot(path=Path(PICTURES) / f"{name.replace(' ', '-')}.png", full_page=True)
