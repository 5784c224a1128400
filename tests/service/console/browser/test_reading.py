"""Reading pages: keys, focus, times in the time zone of the reader, copying, colours."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import delete, update
from sqlmodel import col

from app.foundation.database.engine import writing
from app.service.console.settings import Role
from app.sync.runs.tables import RunRow
from tests.service.console.browser.company import Company
from tests.service.console.browser.conftest import OpenDesk

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.timeout(180), pytest.mark.xdist_group("browser")]

PLACES = {
    "o": "Overview",
    "r": "Runs",
    "h": "Held deletes",
    "p": "Failing items",
    "e": "Explain",
    "s": "Sources",
    "b": "Browse",
    "d": "Doctor",
    "a": "Audit log",
}


def test_keys_lead_to_pages(desk: OpenDesk) -> None:
    one = desk()
    one.go("keys")
    for key, heading in PLACES.items():
        one.press("g", key)
        one.page.get_by_role("heading", name=heading, level=1).wait_for()
    one.press("?")
    one.page.get_by_role("heading", name="Keyboard shortcuts", level=1).wait_for()
    one.press("/")
    assert one.focused() == "Search users, documents, folders, groups"
    one.page.keyboard.type("bru")
    one.press("Enter")
    one.page.get_by_role("heading", name="Search", level=1).wait_for()
    assert "Bruno Keller" in one.page.locator("main").inner_text()
    one.go("keys")
    one.press("x", "o")  # no g before it
    one.page.wait_for_timeout(100)
    assert one.heading() == "Keyboard shortcuts"


def test_keys_are_letters_in_a_field_and_nothing_when_they_are_switched_off(desk: OpenDesk) -> None:
    one = desk()
    one.go("explain")
    one.page.get_by_label("User", exact=True).focus()
    one.press("g", "o", "?", "/")
    assert one.page.get_by_label("User", exact=True).input_value() == "go?/"
    assert one.heading() == "Explain"
    one.page.locator("details.user summary").click()
    one.page.get_by_role("group", name="Keyboard shortcuts").get_by_role("button", name="off").click()
    one.page.wait_for_load_state()
    one.press("g", "o", "?")
    one.page.wait_for_timeout(100)
    assert one.heading() == "Explain"


def test_the_content_comes_first_in_the_order_of_tabs(desk: OpenDesk) -> None:
    one = desk()
    one.go("runs")
    one.press("Tab")
    assert one.focused() == "To the content"
    one.press("Enter", "Tab")
    assert one.focused() == "Preview a file"


def test_the_menu_of_the_user_opens_and_closes_by_keys(desk: OpenDesk) -> None:
    one = desk()
    one.go("overview")
    one.tab_to("The approver")
    one.press("Enter", "Tab")
    assert one.focused() == "system"
    one.press("Escape")
    assert one.focused().startswith("The approver")
    assert not one.page.get_by_role("button", name="Sign out").is_visible()


def test_small_screens_have_the_pages_in_a_menu(desk: OpenDesk) -> None:
    one = desk(java_script_enabled=False)
    one.go("overview")
    assert not one.page.get_by_text("Menu", exact=True).is_visible()
    one.resize(390)
    assert not one.page.get_by_role("link", name="Audit log").is_visible()
    one.page.get_by_text("Menu", exact=True).click()
    one.page.get_by_role("link", name="Audit log").click()
    one.page.get_by_role("heading", name="Audit log", level=1).wait_for()


def test_small_screens_show_rows_as_cards_with_the_names_of_columns(desk: OpenDesk) -> None:
    one = desk()
    one.go("browse")
    cell = one.page.get_by_role("row").filter(has_text="northwind").locator("td").nth(2)
    label = "(one) => getComputedStyle(one, '::before').content"
    assert cell.evaluate(label) == "none"
    one.resize(390)
    assert cell.evaluate(label) == '"Members"'
    assert not one.scrolling()


def test_small_screens_show_the_path_to_a_decision_as_a_list(desk: OpenDesk) -> None:
    one = desk()
    one.go("explain", user="farah", resource="project-aurora", organization="northwind")
    rungs = one.page.locator(".rungs")
    assert one.page.locator(".ladder").is_visible()
    assert not rungs.is_visible()
    one.resize(390)
    assert not one.page.locator(".ladder").is_visible()
    shown = rungs.inner_text()
    for text in ("Farah Haddad", "group", "mobile", "viewer grant", "grant decides", "Unreleased Designs"):
        assert text in shown, shown
    lines = shown.splitlines()
    order = [lines.index(text) for text in ("viewer grant", "grant decides", "Further up", "not checked")]
    assert order == sorted(order), shown


def test_print_leaves_the_navigation_out(desk: OpenDesk) -> None:
    one = desk()
    one.go("held")
    one.page.emulate_media(media="print")
    assert one.heading() == "Held deletes"
    for hidden in ("header", ".side", "nav", "form", "button"):
        assert not any(found.is_visible() for found in one.page.locator(hidden).all()), hidden


def test_the_first_field_with_an_error_has_the_focus(desk: OpenDesk) -> None:
    one = desk()
    one.expected = {400}
    one.go("explain", user="jun", resource="welcome", organization="northwind", at="soon")
    assert one.focused() == "At the time UTC"
    hint = one.page.evaluate(
        "document.getElementById(document.activeElement.getAttribute('aria-describedby')).innerText"
    )
    assert "Enter one like 2026-11-20T12:00Z" in hint


def test_times_are_those_of_the_readers_zone(desk: OpenDesk) -> None:
    one = desk(timezone_id="Asia/Tokyo")
    one.go("runs")
    time = one.page.locator("main time").first
    moment = datetime.fromisoformat(time.get_attribute("datetime") or "")
    assert time.inner_text() == f"{moment.astimezone(ZoneInfo('Asia/Tokyo')):%-d %b %H:%M:%S}"
    assert time.get_attribute("title") == f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    assert one.page.get_by_text("times in Asia/Tokyo").is_visible()
    one.page.locator("details.user summary").click()
    one.page.get_by_role("group", name="Times").get_by_role("button", name="UTC").click()
    one.page.get_by_text("times in UTC").wait_for()
    assert one.page.locator("main time").first.inner_text() == f"{moment.astimezone(UTC):%-d %b %H:%M:%S}"


def test_times_in_stored_sentences_and_in_forms_are_in_the_readers_zone(desk: OpenDesk, company: Company) -> None:
    run_id = company.sync()["runId"]
    with writing(company.engine) as connection:
        failed = {"status": "failed", "error": "held until 2026-03-02 22:05 UTC, not 2026-03-02 22:05:42 UTC"}
        connection.execute(update(RunRow).where(col(RunRow.run_id) == run_id).values(**failed))
    one = desk(timezone_id="Asia/Tokyo")
    try:
        one.go("run", id=run_id)
        assert " UTC" not in one.page.title()
        localized = re.compile("eld until 3 Mar [^:]*07:05, not 3 Mar [^:]*07:05:42")
        assert one.page.get_by_text(localized).first.is_visible()
    finally:
        with writing(company.engine) as connection:
            connection.execute(delete(RunRow).where(col(RunRow.run_id) == run_id))
    one.go("audit")
    one.page.get_by_label("Since").fill("2026-03-03 07:05")
    one.page.get_by_role("button", name="Filter").click()
    one.page.wait_for_url("**zone=Asia*")
    assert one.page.locator("main [data-zone]").first.inner_text() == "Asia/Tokyo"
    # Times that were entered without a zone, or in another one, keep it.
    for query, zone in (({}, "UTC"), ({"zone": "Europe/Oslo"}, "Europe/Oslo")):
        one.go("audit", since="2026-03-03", **query)
        assert one.page.locator("main [data-zone]").first.inner_text() == zone
        assert one.page.locator("input[name=zone]").input_value() == zone


def test_a_command_is_copied(desk: OpenDesk) -> None:
    one = desk()
    one.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    one.go("explain", user="jun", resource="welcome", organization="northwind")
    one.page.get_by_text("With curl").click()
    one.page.get_by_role("button", name="Copy").first.click()
    one.page.get_by_role("button", name="Copied").wait_for()
    assert one.page.evaluate("navigator.clipboard.readText()").startswith("curl http")


def test_colours_are_chosen_and_kept_without_a_flash(desk: OpenDesk) -> None:
    one = desk(color_scheme="dark")
    dark, light = "rgb(18, 19, 22)", "rgb(250, 250, 248)"
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    one.go("overview")
    assert one.page.evaluate(ground) == dark
    one.page.locator("details.user summary").click()
    one.page.get_by_role("button", name="light").click()
    one.page.wait_for_load_state()
    assert one.page.evaluate(ground) == light
    # The response itself contains the theme: no script is needed.
    assert '<html lang="en" data-theme="light"' in one.page.request.get(one.at("runs")).text()


def test_nothing_moves_for_those_who_want_it_calm(desk: OpenDesk) -> None:
    one = desk(Role.VIEWER, reduced_motion="reduce")
    one.go("overview")
    moves = (
        "[...document.querySelectorAll('*')].filter((one) => parseFloat(getComputedStyle(one).transitionDuration) > 0)"
    )
    assert one.page.evaluate(f"document.getAnimations().length + {moves}.length") == 0


def test_the_focus_is_visible(desk: OpenDesk) -> None:
    one = desk()
    one.go("sync")
    seen = "(() => { const of = getComputedStyle(document.activeElement); return of.outlineStyle + of.outlineWidth })()"
    for _ in range(20):
        one.press("Tab")
        assert one.page.evaluate(seen) == "solid2px", one.focused()


def test_ids_are_shown_exactly(desk: OpenDesk) -> None:
    one = desk()
    one.go("explain", user="wanda", resource="salaries", organization="northwind")
    ids = one.page.locator(".answer code").all_inner_texts()
    assert "wanda" in ids
    assert "Wanda" not in ids


def test_distant_times_are_shown_as_days(desk: OpenDesk) -> None:
    one = desk()
    one.go("user", id="bruno")
    assert "31 Dec 2099" in one.page.locator("main").inner_text()
    assert one.page.get_by_role("row").filter(has_text="Lumen Labs").locator("time").inner_text() == "31 Dec 2099"
