"""The page of a running run: what is updated, what stays, and when nothing is requested."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.service.console.browser.company import Company, without_old_documents
from tests.service.console.browser.conftest import OpenDesk
from tests.service.console.browser.desk import Desk

if TYPE_CHECKING:
    from playwright.sync_api import Request

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.timeout(180), pytest.mark.xdist_group("browser")]

HIDE = """() => {
  Object.defineProperty(document, "hidden", { get: () => window.isHidden ?? true, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def away(company: Company) -> Iterator[None]:
    """Removes the old documents from the backend, so that the next run has changes."""
    company.edit(without_old_documents)
    assert company.sync(allowDeletes=True)["status"] == "done"
    company.restore()
    yield
    company.back_in_step()


class StoppedTime:
    """A simulated clock of a page. ``asked`` are the fragments that the page requests meanwhile."""

    def __init__(self, one: Desk) -> None:
        self.asked: list[str] = []
        self._page = one.page
        self._under_way = 0
        self._page.on("request", partial(self._count, 1))
        self._page.on("requestfinished", partial(self._count, -1))
        self._page.on("requestfailed", partial(self._count, -1))
        # Due requests run once.
        self._page.clock.pause_at(datetime.now(UTC) + timedelta(minutes=1))
        self._settle()
        self.asked.clear()

    def move_on(self, seconds: int) -> None:
        """Waits for the requests of the page after each second."""
        for _ in range(seconds):
            self._page.clock.run_for(1000)
            self._settle()

    def _settle(self) -> None:
        self._page.wait_for_timeout(40)
        while self._under_way:
            self._page.wait_for_timeout(20)

    def _count(self, more: int, request: "Request") -> None:
        if "x-fragment" in request.headers:
            self._under_way += more
            if more > 0:
                self.asked.append(request.url)


def test_a_runs_progress_is_seen_without_loading_the_page_again(desk: OpenDesk, company: Company, away: None) -> None:
    one = desk()
    with company.standing_still("backend") as let_go:
        run = company.ask()
        one.go("run", id=run)
        one.page.evaluate("window.sameDocument = true")
        assert one.page.get_by_text("This page follows it.").is_visible()
        for _ in range(3):
            _shown(one, _further(company, run, let_go))
        # All of the page is updated, not only the progress bar.
        assert one.page.locator(".pill").inner_text() == "applying"
        assert " · revision " in one.page.locator("[data-part='facts']").inner_text()
        label = one.page.locator("[data-part='progress'] label").inner_text()
        assert int(label.rpartition(", ")[2].split()[0]) > 0
        assert one.page.locator("[data-part='items'] tbody tr").count() == 20
        assert one.page.locator("[data-part='items'] tbody").get_by_text("done").count() > 0
        assert one.page.evaluate("window.sameDocument")
    company.ended(run)
    one.page.locator(".pill", has_text="done").wait_for()
    assert one.page.locator("progress").count() == 0
    assert one.page.evaluate("window.sameDocument ?? null") is None


def test_a_live_page_can_be_paused_and_asks_nothing_in_a_hidden_tab(desk: OpenDesk, company: Company) -> None:
    one = desk()
    with company.standing_still("worker"):
        run = company.ask()
        one.page.clock.install()
        one.go("run", id=run)
        stopped = StoppedTime(one)
        stopped.move_on(3)
        assert len(stopped.asked) == 3
        one.page.get_by_role("button", name="Pause").click()
        stopped.move_on(3)
        assert len(stopped.asked) == 3
        one.page.get_by_role("button", name="Go on").click()
        stopped.move_on(2)
        assert len(stopped.asked) == 5
        one.page.evaluate(HIDE)
        stopped.move_on(3)
        assert len(stopped.asked) == 5
        one.page.evaluate("window.isHidden = false")
        stopped.move_on(2)
        assert len(stopped.asked) == 7
    company.ended(run)


def test_the_focus_stays_during_and_after_updates(desk: OpenDesk, company: Company, away: None) -> None:
    one = desk()
    with company.standing_still("backend") as let_go:
        run = company.ask()
        one.go("run", id=run)
        _further(company, run, let_go)
        link = one.page.locator("[data-part='kinds'] a").first
        link.focus()
        one.page.evaluate("window.held = document.activeElement")
        for _ in range(2):
            done = _further(company, run, let_go)
            _shown(one, done)
            assert one.page.evaluate("window.held === document.activeElement && window.held.isConnected")
    company.ended(run)
    one.page.get_by_text("It has ended.").wait_for()
    assert one.page.evaluate("window.held === document.activeElement && window.held.isConnected")
    one.page.get_by_role("link", name="Show all of it").click()
    one.page.locator(".pill", has_text="done").wait_for()


def test_a_service_that_fails_is_asked_less_and_less_often(desk: OpenDesk, company: Company) -> None:
    one = desk()
    one.expected = {503}
    with company.standing_still("worker"):
        run = company.ask()
        one.page.clock.install()
        one.go("run", id=run)
        stopped = StoppedTime(one)
        one.page.route("**/console/run?*", lambda route: route.fulfill(status=503))
        when = []
        for second in range(1, 96):
            before = len(stopped.asked)
            stopped.move_on(1)
            when += [second] * (len(stopped.asked) - before)
        assert when == [1, 3, 7, 15, 31, 61, 91]  # at most 30 s
        lost = one.page.get_by_text("Lost contact; last update 2 min ago. Trying again.")
        assert lost.is_visible()
        one.page.unroute("**/console/run?*")
        stopped.move_on(30)
        assert one.page.get_by_text("Lost contact").count() == 0
        # The end of a session is not an outage of the service.
        one.page.route("**/console/run?*", lambda route: route.fulfill(status=303, headers={"location": "/"}))
        stopped.move_on(2)
        assert one.page.get_by_text("Your session has ended. Reload this page to sign in again.").is_visible()
    company.ended(run)


def _further(company: Company, run: str, let_go: Callable[[float], None]) -> int:
    """Resumes the backend for some calls of the run. Returns the number of done items."""
    before = _done(company, run)
    for _ in range(200):
        let_go(0.02)
        # The worker continues. A busy machine delays its records, and a resumed backend would answer all calls
        # meanwhile.
        for _ in range(6):
            if (now := _done(company, run)) > before:
                assert now < 34
                return now
            time.sleep(0.05)
    raise AssertionError(f"{run} does not move on")


PROGRESS = """() => {
  const bar = document.querySelector("progress");
  return bar && bar.checkVisibility() ? [bar.getAttribute("value"), bar.labels[0].textContent] : null;
}"""


def _shown(one: Desk, done: int) -> None:
    """Waits until the page shows at least this number of done items. Bar and text must always agree."""
    for _ in range(400):
        progress = one.page.evaluate(PROGRESS)
        if progress is not None:
            value, words = progress
            assert words.startswith(f"{value} of 34 items")
            if int(value) >= done:
                return
        one.page.wait_for_timeout(50)
    raise AssertionError(f"the page does not tell that {done} are done")


def _done(company: Company, run: str) -> int:
    done: int = company.run(run)["counts"].get("document", {}).get("add", {}).get("done", 0)
    return done
