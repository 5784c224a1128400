"""The other actions in the console, in a browser without JavaScript."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from app.foundation.clock import epoch_ms, utc_now
from app.foundation.database.engine import writing
from app.service.console.settings import Role
from app.sync.ledger.failures import PARKED_AFTER, note_failures
from app.sync.ledger.ledger import ledger_in_use
from app.sync.runs.run import row_of, run_from
from tests.service.console.browser.company import OLD, Company
from tests.service.console.browser.conftest import OpenDesk, sign_all_in
from tests.service.console.browser.desk import Desk

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.timeout(180), pytest.mark.xdist_group("browser")]

LONG, ODD = "the name is longer than it may be", "<b>the name</b> is odd"


def without(desk: OpenDesk, role: Role | None) -> Desk:
    """A browser without JavaScript, for an operator of this role."""
    return desk(role, java_script_enabled=False)


def test_a_sync_is_begun_and_cancelled(desk: OpenDesk, company: Company) -> None:
    one = without(desk, Role.APPROVER)
    with company.standing_still("worker"):
        one.go("overview")
        one.page.get_by_role("link", name="Sync now").click()
        one.page.get_by_text("Only some organizations or users").click()
        one.page.get_by_label("Organization", exact=True).fill("Northwind Traders")
        one.page.get_by_role("button", name="Add").click()
        one.page.get_by_label("Reason").fill("somebody asked")
        one.page.get_by_role("button", name="Sync Northwind Traders").click()
        assert one.page.get_by_text("Reload this page to follow its progress.").is_visible()
        one.page.get_by_role("button", name="Cancel the run").click()
        assert one.page.locator(".pill", has_text="cancelled").is_visible()
        assert one.page.get_by_text("somebody asked").is_visible()


def test_one_some_and_all_parked_items_can_be_retried(desk: OpenDesk, company: Company) -> None:
    names = {document: f"Renamed {document[-2:]}" for document in OLD[:7]}

    def renamed(directory: dict[str, Any]) -> None:
        for document in directory["documents"]:
            document["documentName"] = names.get(document["documentId"], document["documentName"])

    company.edit(renamed)
    _park(company, {document: ODD if document == OLD[0] else LONG for document in names})
    company.sync()
    one = without(desk, Role.APPROVER)
    one.go("parked")
    assert one.page.get_by_role("checkbox").count() == 7
    # One item.
    one.page.get_by_label(f"Select document {OLD[1]}").check()
    one.page.get_by_role("button", name="Retry selected").click()
    company.ended(parse_qs(urlsplit(one.page.url).query)["id"][0])
    assert _renamed(company, names) == {OLD[1]}
    # Several items.
    one.go("parked")
    for document in OLD[2:4]:
        one.page.get_by_label(f"Select document {document}").check()
    one.page.get_by_role("button", name="Retry selected").click()
    company.ended(parse_qs(urlsplit(one.page.url).query)["id"][0])
    assert _renamed(company, names) == set(OLD[1:4])
    # All items with the same message.
    one.go("parked")
    one.page.get_by_role("row").filter(has_text=ODD).get_by_role("link", name="1 document").click()
    assert one.page.get_by_role("checkbox").count() == 1
    one.page.get_by_role("button", name="Retry all that match").click()
    company.ended(parse_qs(urlsplit(one.page.url).query)["id"][0])
    assert _renamed(company, names) == set(OLD[:4])
    # The remaining items.
    one.go("parked")
    assert one.page.get_by_role("checkbox").count() == 3
    one.page.get_by_role("button", name="Retry all: 3 parked").click()
    company.ended(parse_qs(urlsplit(one.page.url).query)["id"][0])
    assert _renamed(company, names) == set(names)
    one.go("parked")
    assert one.page.get_by_text("No item is parked").is_visible()
    company.back_in_step()


def _park(company: Company, messages: dict[str, str]) -> None:
    """Records so many failures of these documents that they are parked."""
    preview = company.sync(dryRun=True)["runId"]
    with writing(company.engine) as connection:
        ledger_id, plan_id = ledger_in_use(connection), run_from(row_of(connection, preview)).plan_id
        assert ledger_id is not None
        assert plan_id is not None
        rows = connection.exec_driver_sql("SELECT item_id, ordinal FROM plan_item WHERE plan_id = ?", (plan_id,))
        messages_by_ordinal = {ordinal: messages[item_id] for item_id, ordinal in rows}
        assert len(messages_by_ordinal) == len(messages)
        for _ in range(PARKED_AFTER):
            note_failures(
                connection,
                ledger_id=ledger_id,
                plan_id=plan_id,
                messages=messages_by_ordinal,
                now_ms=epoch_ms(utc_now()),
                random=Random(1),
            )


def _renamed(company: Company, names: dict[str, str]) -> set[str]:
    """The documents with these names in the backend."""
    return {document for document, name in names.items() if company.document_name(document) == name}


def test_it_is_explained_and_the_backend_is_asked(desk: OpenDesk) -> None:
    one = without(desk, Role.VIEWER)
    one.go("explain")
    one.page.get_by_label("User", exact=True).fill("farah")
    one.page.get_by_label("Resource").fill("project-aurora")
    one.page.get_by_label("Organization").fill("northwind")
    one.page.get_by_role("button", name="Explain").click()
    assert one.page.locator(".answer").inner_text().startswith("Allowed as viewer")
    one.page.get_by_role("button", name="Ask the backend").click()
    text = one.page.get_by_role("group", name="The backend's answer").inner_text()
    assert text.count("same") == 3
    assert "differs" not in text


def test_the_doctor_runs_all_checks(desk: OpenDesk) -> None:
    one = without(desk, Role.ADMIN)
    one.go("doctor")
    one.page.get_by_role("button", name="Run the doctor").click()
    assert one.page.get_by_text("Reload this page to follow its progress.").is_visible()
    examined(one)
    assert one.page.get_by_role("group", name="Findings").get_by_role("row").count() >= 2
    one.page.get_by_text("checks without a problem").click()
    well = one.page.get_by_role("group", name="Checks without a problem").get_by_role("row")
    assert well.filter(has_text="database").count() >= 1


def examined(one: Desk) -> None:
    """Reloads the page until the examination has ended."""
    over = one.page.get_by_role("button", name="Run the doctor")
    for _ in range(300):
        if over.is_visible():
            return
        one.page.wait_for_timeout(100)
        one.page.reload()
    raise AssertionError("the examination is not over")


def test_sessions_are_ended_one_by_one_and_all_at_once(
    desk: OpenDesk, company: Company, passes: dict[Role, Any], browser: Browser
) -> None:
    one, others = without(desk, Role.ADMIN), [without(desk, None) for _ in range(3)]
    for other in others:
        other.go("sign_in")
        other.sign_in(Role.VIEWER)
    one.go("sessions")
    mine = one.page.get_by_role("row").filter(has_text="this one")
    assert mine.count() == 1
    assert mine.get_by_role("button").count() == 0
    before = one.page.get_by_role("row").count()
    # The newest session is first.
    one.page.get_by_role("row").filter(has_text="The viewer").first.get_by_role("button", name="End").click()
    assert one.page.get_by_role("row").count() == before - 1
    assert [_is_in(other) for other in others] == [True, True, False]
    # Operators end their own sessions.
    others[0].go("sessions")
    assert others[0].page.get_by_role("button", name="End all others").count() == 0
    others[0].page.get_by_role("button", name="End").first.click()
    assert [_is_in(other) for other in others] == [True, False, False]
    one.go("sessions")
    one.page.get_by_role("button", name="End all others").click()
    assert one.page.get_by_role("row").filter(has_text="The").count() == 1
    assert not any(map(_is_in, others))
    assert _is_in(one)
    sign_all_in(passes, company, browser)


def _is_in(one: Desk) -> bool:
    """Whether the session is valid."""
    one.go("runs")
    return one.heading() == "Runs"


def test_signing_in_and_out_and_the_look_of_pages(desk: OpenDesk) -> None:
    one = without(desk, None)
    one.expected = {403}
    one.go("runs", status="held")
    one.page.get_by_label("token").fill("a wrong one")
    one.page.get_by_role("button", name="Sign in").click()
    assert one.page.get_by_text("This token is not accepted.").is_visible()
    assert one.page.get_by_label("token").input_value() == ""
    one.page.get_by_label("token").fill("the token of the admin is long")
    one.page.get_by_role("button", name="Sign in").click()
    assert one.page.url == one.at("runs", status="held")
    for name, chosen, attribute in (
        ("Colours", "dark", "theme"),
        ("Times", "UTC", "times"),
        ("Keyboard shortcuts", "off", "keys"),
    ):
        one.page.locator("details.user summary").click()
        one.page.get_by_role("group", name=name).get_by_role("button", name=chosen).click()
        assert one.page.locator("html").get_attribute(f"data-{attribute}") == chosen.lower()
        assert one.page.url == one.at("runs", status="held")
    one.page.locator("details.user summary").click()
    one.page.get_by_role("button", name="Sign out").click()
    assert one.heading() == "Sign in"
    assert not _is_in(one)
