"""Explain agrees with ``usher check`` for every case of the demo, and names the lines of the directory."""

import pytest

from app.commands.demo.questions import CASES
from tests.service.console.browser.company import Company
from tests.service.console.browser.conftest import OpenDesk

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.timeout(180), pytest.mark.xdist_group("browser")]

_WITHOUT_NAMES = """(one) => {
  const copy = one.cloneNode(true);
  for (const id of copy.querySelectorAll("a + code")) id.previousElementSibling.remove();
  return copy.textContent.replace(/\\s+/g, " ");
}"""


def test_the_console_explains_as_the_command_does(desk: OpenDesk, company: Company) -> None:
    one = desk()
    for case in CASES:
        checked = company.checked(case.user_id, case.type, case.resource_id, "--organization", case.organization_id)
        one.go("explain")
        one.page.get_by_label("User", exact=True).fill(case.user_id)
        one.page.get_by_label("Kind").select_option(case.type)
        one.page.get_by_label("Resource").fill(case.resource_id)
        one.page.get_by_label("Organization").fill(case.organization_id)
        one.press("Enter")
        # Names are links beside their ids; the command shows ids only.
        answer = one.page.locator(".answer").evaluate(_WITHOUT_NAMES)
        verdict, _, reason = checked["reason"].partition(": ")
        assert verdict in answer, case
        reason = (
            reason.partition("; to be asked again")[0].rstrip(".").replace("organizationPrivate", "open to members")
        )
        assert reason.lower() in answer.lower(), case
        places = [origin["place"] for step in checked["path"] for origin in step["origins"]]
        assert places or not checked["path"]
        titles = one.page.get_by_role("group", name="Records that led to it").locator("code[title]")
        shown = " ".join(titles.evaluate_all("all => all.map((one) => one.title)")) if checked["path"] else ""
        assert all(place in shown for place in places), (case, places)
