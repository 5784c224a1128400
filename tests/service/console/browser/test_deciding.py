"""Decisions in the console change the backend: by keyboard only, with and without JavaScript."""

import re
from collections.abc import Iterator

import pytest

from tests.service.console.browser.company import GONE, OLD, Company, without_old_documents
from tests.service.console.browser.conftest import OpenDesk
from tests.service.console.browser.desk import Desk

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.timeout(180), pytest.mark.xdist_group("browser")]

SCRIPTS = pytest.mark.parametrize("script", [True, False], ids=["with a script", "without"])


@pytest.fixture
def held(company: Company) -> Iterator[str]:
    """The id of a run that holds 34 deletes."""
    company.edit(without_old_documents)
    run = company.sync()
    assert run["status"] == "held"
    assert company.documents() == set(OLD)
    yield run["runId"]
    company.back_in_step()


def test_held_deletes_are_approved_by_keyboard_alone(desk: OpenDesk, company: Company, held: str) -> None:
    one = desk()
    one.go("overview")
    one.press("g", "h")
    one.page.get_by_role("heading", name="Held deletes", level=1).wait_for()
    one.tab_to("Review and approve")
    one.press("Enter")
    one.page.get_by_role("heading", name="Approve 34 document deletes").wait_for()
    one.tab_to("Reason")
    # The reason is required, and the missing field gets the focus.
    one.press("Enter")
    assert one.focused().startswith("Reason")
    one.page.keyboard.type("the archive moved")
    one.tab_to("Delete 34 documents")
    one.press("Enter")
    one.page.get_by_role("heading", name="Sync of").wait_for()
    run = company.ended(held)
    assert run["status"] == "done"
    assert (run["decision"]["by"], run["decision"]["reason"]) == ("The approver (console)", "the archive moved")
    assert company.documents() == set(OLD) - set(GONE)
    until_done(one, script=True)
    one.press("g", "a")
    one.page.get_by_role("heading", name="Audit log", level=1).wait_for()
    row = one.page.get_by_role("row").filter(has_text="the archive moved").first
    assert "The approver" in row.inner_text()
    assert "Approve held deletes" in row.inner_text()
    assert row.get_by_title(held).inner_text().startswith("run of")


def test_held_deletes_are_approved_without_a_script(desk: OpenDesk, company: Company, held: str) -> None:
    one = desk(java_script_enabled=False)
    one.expected = {400}
    one.go("held")
    one.page.get_by_role("link", name="Review and approve").click()
    # The browser requires the reason. A form without one gets an error, and nothing is deleted.
    one.page.locator("form[action='/console/approve']").evaluate("form => { form.noValidate = true }")
    one.page.get_by_role("button", name="Delete 34 documents").click()
    assert one.page.get_by_text("Enter a reason for the audit log.").is_visible()
    one.page.get_by_label("Reason").fill("the archive moved again")
    one.page.get_by_role("button", name="Delete 34 documents").click()
    until_done(one, script=False)
    assert company.run(held)["decision"]["reason"] == "the archive moved again"
    assert company.documents() == set(OLD) - set(GONE)


@SCRIPTS
def test_held_deletes_are_discarded(desk: OpenDesk, company: Company, held: str, script: bool) -> None:
    one = desk(java_script_enabled=script)
    one.go("held")
    one.page.get_by_role("link", name="Keep in the backend").click()
    one.page.get_by_label("Reason").fill("a mistake")
    one.page.get_by_role("button", name="Keep 34 documents").click()
    one.page.locator(".pill", has_text="discarded").wait_for()
    assert company.run(held)["status"] == "cancelled"
    assert company.documents() == set(OLD)


@SCRIPTS
def test_a_preview_is_applied(desk: OpenDesk, company: Company, script: bool) -> None:
    def renamed(directory: dict[str, object]) -> None:
        documents = directory["documents"]
        assert isinstance(documents, list)
        documents[0]["documentName"] = f"Welcome, {script}"

    company.edit(renamed)
    one = desk(java_script_enabled=script)
    one.go("overview")
    one.page.get_by_role("link", name="Preview a sync").click()
    one.page.get_by_label("Reason").fill("to see")
    one.page.get_by_role("button", name="Preview everything").click()
    until_done(one, script=script)
    assert one.heading().startswith("Preview of")
    one.page.get_by_role("button", name=re.compile("^Apply ")).click()
    one.page.get_by_role("heading", name="Sync of").wait_for()
    until_done(one, script=script)
    assert one.page.get_by_text("1 done").first.is_visible()
    assert company.document_name("welcome") == f"Welcome, {script}"
    company.back_in_step()


def until_done(one: Desk, *, script: bool) -> None:
    """Waits until the page shows that the run is done. Without JavaScript it is reloaded."""
    done = one.page.locator(".pill", has_text="done")
    for _ in range(0 if script else 100):
        if done.is_visible():
            break
        one.page.wait_for_timeout(100)
        one.page.reload()
    done.wait_for()
