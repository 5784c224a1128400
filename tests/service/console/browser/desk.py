"""An operator's browser. It records what no page may do: messages on its console, and requests to other hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.service.console.settings import Role
from app.service.console.urls import address
from tests.service.console.browser.company import TOKENS, Company, Newborn

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDE = {"width": 1360, "height": 900}
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules of axe that depend on the colours."""

_TOO_WIDE = """() => {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide && document.body.scrollWidth <= wide) return [];
  return [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > wide + 1 && !one.closest(".scrolls, pre"))
    .map((one) => `${one.tagName}.${one.className}: ${Math.round(one.getBoundingClientRect().right)} px`);
}"""
_SCROLLS = """() => [...document.querySelectorAll(".scrolls")]
  .filter((one) => one.scrollWidth > one.clientWidth)
  .map((one) => `${one.ariaLabel ?? one.id}: ${one.scrollWidth} px in ${one.clientWidth} px`)"""
_TOO_SMALL = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
  .filter((one) => one.type !== "hidden" && one.checkVisibility({ visibilityProperty: true }))
  .filter((one) => !one.closest("p, td, th, li, h1, h2, dd, .message, .skip"))
  .map((one) => [one, (one.closest("label.choice") ?? one).getBoundingClientRect()])
  .filter(([, at]) => at.width && (at.height < 24 || at.width < 24))
  .map(([one, at]) => `${one.outerHTML.slice(0, 80)}: ${Math.round(at.width)} x ${Math.round(at.height)}`)"""


class Desk:
    """One page, signed in or not."""

    def __init__(self, page: Page, place: Company | Newborn) -> None:
        self.page = page
        self.url = place.url
        self.messages: list[str] = []
        self.elsewhere: list[str] = []
        self.expected: set[int] = set()
        """Statuses of responses about which the browser may complain."""
        self.known: tuple[str, ...] = ()
        """Other URLs that this test opens."""
        page.on("console", lambda message: self._hear(message.text, message.location["url"]))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.on("request", lambda request: self._see(request.url))

    def _hear(self, text: str, where: str) -> None:
        # Messages of pages of other sites are ignored.
        if where.startswith(self.known or ("-",)):
            return
        if not any(f"status of {status} " in text for status in self.expected):
            self.messages.append(text)

    def _see(self, url: str) -> None:
        if not url.startswith((f"{self.url}/", "data:", "blob:", *self.known)):
            self.elsewhere.append(url)

    def check(self) -> None:
        """Fails if a page wrote to its console or called another host."""
        assert self.messages == [], self.messages
        assert self.elsewhere == []

    def at(self, name: str, **query: object) -> str:
        """The URL of a page."""
        return self.url + address(name, **query)

    def go(self, name: str, **query: object) -> None:
        """Opens a page."""
        answer = self.page.goto(self.at(name, **query))
        assert answer is not None
        assert answer.ok or answer.status in self.expected, f"{name}: {answer.status}"

    def resize(self, width: int) -> None:
        """Sets the width of the window, in pixels."""
        self.page.set_viewport_size({"width": width, "height": 640 if width < 640 else 900})

    def sign_in(self, role: Role) -> None:
        """Signs in with the token of this role."""
        self.page.get_by_label("token").fill(TOKENS[role])
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("heading", name="Overview").wait_for()

    def heading(self) -> str:
        """The heading of the page."""
        return self.page.locator("h1").inner_text()

    def press(self, *keys: str) -> None:
        """Presses keys, wherever the focus is."""
        for key in keys:
            self.page.keyboard.press(key)

    def tab_to(self, name: str, *, within: int = 60) -> None:
        """Presses Tab until an element with this name has the focus."""
        for _ in range(within):
            self.page.keyboard.press("Tab")
            if self.focused().startswith(name):
                return
        raise AssertionError(f"{name!r} is not reached by {within} times Tab")

    def focused(self) -> str:
        """The label or text of the focused element."""
        found: str = self.page.evaluate(
            "() => { const one = document.activeElement; return one.labels?.[0]?.innerText ?? one.innerText ?? '' }"
        )
        return found.strip()

    def violations(self, *, rules: list[str] | None = None) -> list[str]:
        """The violations of WCAG 2.2 A, AA and good practice that axe finds, or those of these rules only."""
        from axe_playwright_python.sync_playwright import Axe

        only = {"type": "rule", "values": rules} if rules else {"type": "tag", "values": RULES}
        axe = Axe("0") if self.page.evaluate("'axe' in window") else Axe()
        found = axe.run(self.page, options={"runOnly": only, "resultTypes": ["violations"]})
        return [_description(violation) for violation in found.response["violations"]]

    def too_wide(self) -> list[str]:
        """The elements beyond the screen, if the page scrolls sideways."""
        found: list[str] = self.page.evaluate(_TOO_WIDE)
        return found

    def scrolling(self) -> list[str]:
        """The tables that scroll sideways."""
        found: list[str] = self.page.evaluate(_SCROLLS)
        return found

    def too_small(self) -> list[str]:
        """Targets smaller than 24 px that are not part of a text."""
        found: list[str] = self.page.evaluate(_TOO_SMALL)
        return found


def _description(violation: dict[str, Any]) -> str:
    nodes = "; ".join(f"{node['target']} {node['html'][:120]} {_why(node)}" for node in violation["nodes"][:4])
    return f"{violation['id']} ({len(violation['nodes'])}): {violation['help']}: {nodes}"


def _why(node: dict[str, Any]) -> str:
    return " ".join(check["message"] for check in node["any"] + node["all"] + node["none"])[:200]
