"""Suggestions while typing, by keyboard and with a pointer, and without a script."""

import re

import pytest

from tests.service.console.browser.conftest import OpenDesk

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.timeout(180), pytest.mark.xdist_group("browser")]

OPTIONS = "[role=listbox]:not([hidden]) > [role=option]"


def test_explain_is_filled_by_keyboard(desk: OpenDesk) -> None:
    from playwright.sync_api import expect

    one = desk()
    one.go("explain")
    user = one.page.get_by_role("combobox", name="User", exact=True)
    user.press_sequentially("had far")
    expect(one.page.locator(OPTIONS)).to_have_text([re.compile("Farah Haddad")])
    assert user.get_attribute("aria-expanded") == "true"
    assert one.violations() == []
    one.press("ArrowDown")
    chosen = one.page.locator("[role=option][aria-selected=true]")
    assert user.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    one.press("Enter")
    expect(user).to_have_value("farah")
    assert user.get_attribute("aria-expanded") == "false"
    resource = one.page.get_by_role("combobox", name="Resource", exact=True)
    resource.press_sequentially("aurora")
    one.page.locator(OPTIONS).first.wait_for()
    one.press("ArrowUp", "Enter")
    expect(resource).to_have_value("project-aurora")
    # The organization of the chosen document is filled in, too.
    expect(one.page.get_by_role("combobox", name="Organization", exact=True)).to_have_value("northwind")
    one.press("Enter")
    one.page.locator(".answer").get_by_text("Allowed as viewer").wait_for()


def test_escape_closes_the_list_and_keeps_the_text(desk: OpenDesk) -> None:
    from playwright.sync_api import expect

    one = desk()
    one.go("explain")
    user = one.page.get_by_role("combobox", name="User", exact=True)
    user.press_sequentially("farah")
    options = one.page.locator(OPTIONS)
    options.first.wait_for()
    one.press("ArrowDown", "Escape")
    expect(options).to_have_count(0)
    expect(user).to_have_value("farah")
    assert user.get_attribute("aria-activedescendant") is None
    user.press_sequentially("zz")
    expect(one.page.get_by_role("status").filter(has_text="No suggestions")).to_have_count(1)
    one.press("Tab")
    assert one.focused() == "Kind"


def test_the_search_opens_what_is_chosen(desk: OpenDesk) -> None:
    one = desk()
    one.go("runs")
    one.press("/")
    one.page.keyboard.type("aurora")
    one.page.locator(OPTIONS).first.wait_for()
    one.press("ArrowDown", "Enter")
    one.page.get_by_role("heading", name="Project Aurora", level=1).wait_for()
    one.press("/")
    one.page.keyboard.type("haddad")
    one.page.locator(OPTIONS, has_text="Farah Haddad").click()
    one.page.get_by_role("heading", name="Farah Haddad", level=1).wait_for()
    one.press("/")
    one.page.keyboard.type("farah")
    one.page.locator(OPTIONS).first.wait_for()
    one.press("Enter")  # Without a chosen suggestion, the form is sent.
    one.page.get_by_role("heading", name="Search", level=1).wait_for()


@pytest.mark.parametrize("width", [320, 390, 768])
def test_suggestions_stay_on_a_small_screen(desk: OpenDesk, width: int) -> None:
    one = desk(viewport={"width": width, "height": 800})
    one.go("explain")
    for label, typed in (("User", "farah"), ("Resource", "project"), ("Organization", "northwind")):
        one.page.get_by_role("combobox", name=label, exact=True).press_sequentially(typed)
        one.page.locator(OPTIONS).first.wait_for()
        assert one.too_wide() == []
        one.press("Escape")


def test_without_a_script_fields_are_plain(desk: OpenDesk) -> None:
    one = desk(java_script_enabled=False)
    one.go("explain")
    assert one.page.get_by_role("combobox", name="User", exact=True).count() == 0
    one.page.get_by_label("User", exact=True).fill("Farah Haddad")
    one.page.get_by_label("Resource").fill("Project Aurora")
    one.page.get_by_label("Organization").fill("Northwind Traders")
    one.page.get_by_role("button", name="Explain").click()
    one.page.locator(".answer").get_by_text("Allowed as viewer").wait_for()
