"""Every page, light and dark, wide and narrow: nothing that axe objects to, nothing beyond the screen."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, insert

from app.bootstrap.service import service_app
from app.clock import utc_now
from app.console.console import route_of
from app.console.settings import Role
from app.database.engine import writing
from app.settings import Settings
from app.store.sync_tables import ItemFailureRow
from tests.console.browser.company import Company, without_old_documents
from tests.console.browser.conftest import OpenDesk
from tests.console.browser.desk import COLOURS, Desk

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.timeout(180), pytest.mark.xdist_group("browser")]

PICTURES = os.environ.get("USHER_TEST_PICTURES", "")
"""A folder that gets a picture of each page, light and dark, to be looked at."""


@dataclass(frozen=True)
class Busy:
    """A company in which much is to be seen: ids of runs."""

    first: str
    held: str
    preview: str
    failed: str


@pytest.fixture(scope="module")
def busy(company: Company) -> Iterator[Busy]:
    """Deletes are held, a plan can be applied, a run has failed, items are parked and wait."""
    first = company.sync()["runId"]
    company.demo.directory.rename(company.demo.directory.with_suffix(".away"))
    failed = company.sync()["runId"]
    company.edit(_without_much)
    preview = company.sync(dryRun=True)["runId"]
    held = company.sync()["runId"]
    with writing(company.engine) as connection:
        connection.execute(insert(ItemFailureRow.__table__), [_failure(number) for number in range(60)])
    yield Busy(first, held, preview, failed)
    with writing(company.engine) as connection:
        connection.execute(ItemFailureRow.__table__.delete())
    company.back_in_step()


def _without_much(directory: dict[str, Any]) -> None:
    """The old documents are gone, and a grant refers to what is nowhere."""
    without_old_documents(directory)
    directory["grants"].append({"organizationId": "northwind", "folderId": "nowhere", "userId": "amara"})


def _failure(number: int) -> dict[str, object]:
    return {
        "ledger_id": 1,
        "kind": ("document", "folder", "user")[number % 3],
        "organization_id": "northwind",
        "container_id": "archive" if number % 3 == 0 else "",
        "item_id": f"item-{number:02}",
        "deleting": number % 4 == 0,
        "fingerprint": "",
        "failures": 10 if number % 2 else 3,
        "retry_at": 4_000_000_000_000,
        "parked": bool(number % 2),
        "message": "the name is longer than 200 characters",
    }


PAGES: dict[str, dict[str, str]] = {
    "overview": {},
    "runs": {},
    "run first": {"id": "{first}"},
    "run held": {"id": "{held}"},
    "run preview": {"id": "{preview}"},
    "run failed": {"id": "{failed}"},
    "item": {"run": "{held}", "ordinal": "1"},
    "sync": {},
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
    "group": {"organization": "northwind", "id": "engineering"},
    "user": {"id": "bruno"},
    "user unknown": {"id": "nobody"},
    "told": {"kind": "document", "organization": "northwind", "container": "archive", "item": "minutes-00"},
    "search": {"q": "pro"},
    "search nothing": {"q": "zzzz"},
    "explain ended": {"user": "xavier", "resource": "project-aurora", "organization": "northwind"},
    "sources": {},
    "problems": {"source": "directory.yaml", "sort": "dangling"},
    "doctor": {},
    "settings": {},
    "sessions": {},
    "audit": {},
    "keys": {},
    "nowhere": {},
}
"""The page, and after a blank in which state; the parameters of its address."""


STATUSES = {"nowhere": {404}, "user unknown": {404}, "explain wrong": {400}}
"""Of pages that say what is wrong."""
NO_PAGES = {"audit.jsonl", "oidc", "oidc/back", "sign-in"}
"""Addresses that lead on, or are looked at below."""


@pytest.mark.parametrize("which", PAGES)
def test_a_page_is_for_everybody(desk: OpenDesk, busy: Busy, which: str) -> None:
    one = desk(Role.ADMIN)
    one.expected = STATUSES.get(which, set())
    one.go(which.partition(" ")[0], **{name: value.format(**vars(busy)) for name, value in PAGES[which].items()})
    look_at(one, which)


def test_no_page_is_left_out() -> None:
    """Whoever adds a page adds it above."""
    app = service_app(Settings(), create_engine("sqlite://"), clock=utc_now, new_id=lambda: "")
    served = {
        rule.rule.removeprefix("/console/")
        for rule in app.url_map.iter_rules()
        if rule.rule.startswith("/console/") and "GET" in (rule.methods or ()) and "<" not in rule.rule
    }
    looked_at = {route_of(name.partition(" ")[0]).removeprefix("/") for name in PAGES}
    assert served - looked_at == NO_PAGES


def test_what_is_wrong_would_be_noticed(desk: OpenDesk) -> None:
    """An image without words, a message, and requests to elsewhere, of which the policy stops those of our pages."""
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


def test_who_is_not_signed_in_sees_a_page_for_everybody(desk: OpenDesk) -> None:
    one = desk(None)
    one.go("sign_in")
    look_at(one, "sign-in")


def look_at(one: Desk, which: str) -> None:
    """Light and dark, and 320 px wide, which is a zoom of 400 % on 1,280 px."""
    found = [*one.violations(), *one.too_wide(), *one.too_small()]
    if one.page.locator("h1").count() != 1:
        found.append("there is not one h1")
    _keep(one, f"{which}-light")
    one.page.emulate_media(color_scheme="dark")
    found += one.violations(rules=COLOURS)
    _keep(one, f"{which}-dark")
    one.narrow()
    found += [*one.too_wide(), *one.too_small()]
    one.page.emulate_media(color_scheme="light")
    _keep(one, f"{which}-320")
    assert not found, "\n".join(found)


def _keep(one: Desk, name: str) -> None:
    if PICTURES:
        Path(PICTURES).mkdir(parents=True, exist_ok=True)
        one.page.screenshot(path=Path(PICTURES) / f"{name.replace(' ', '-')}.png", full_page=True)
