"""A real browser and a running installation. Each is started once, so one process runs all tests of the group
``browser``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from app.service.console.settings import Role
from tests.service.console.browser.company import ISSUER, Company, Newborn, running
from tests.service.console.browser.company import newborn as born
from tests.service.console.browser.desk import WIDE, Desk

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROGRAM = "chromium-headless-shell"
WANTED = bool(os.environ.get("USHER_TEST_BROWSER"))
"""Whether a missing browser fails the tests instead of skipping them (CI)."""
_CALM = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

OpenDesk = Callable[..., Desk]


def _missing() -> str:
    drivers = ("playwright", "pytest_playwright", "axe_playwright_python")
    if any(find_spec(name) is None for name in drivers) or not (ISSUER / "canaille").is_dir():
        return "what drives a browser is not installed: make test-browser installs and runs these tests"
    if shutil.which(PROGRAM) is None:
        return f"there is no {PROGRAM} (Debian: apt-get install {PROGRAM})"
    return ""


@pytest.fixture(scope="session", autouse=True)
def _can_be_had() -> None:
    """Skips the tests if something that they need is missing."""
    reason = _missing()
    if reason and WANTED:
        pytest.fail(f"USHER_TEST_BROWSER demands it: {reason}")
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    """The browser for pytest-playwright: that of Debian, without calls of its own."""
    return {"executable_path": shutil.which(PROGRAM), "args": list(_CALM)}


@pytest.fixture(scope="session")
def company(_can_be_had: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """A company in step. A test that changes it restores it."""
    with running(tmp_path_factory.mktemp("company")) as one:
        yield one


@pytest.fixture(scope="session")
def newborn(_can_be_had: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newborn]:
    """A service with an empty database, whose issuer the test controls."""
    with born(tmp_path_factory.mktemp("newborn")) as one:
        yield one


@pytest.fixture(scope="session")
def passes(company: Company, browser: Browser) -> dict[Role, Any]:
    """The cookies of an operator of each role. A test that ends these sessions signs them in again."""
    found: dict[Role, Any] = {}
    sign_all_in(found, company, browser)
    return found


def sign_all_in(passes: dict[Role, Any], company: Company, browser: Browser) -> None:
    """Signs in an operator of each role."""
    for role in Role:
        context = browser.new_context()
        one = Desk(context.new_page(), company)
        one.go("sign_in")
        one.sign_in(role)
        passes[role] = context.storage_state()
        context.close()


@pytest.fixture
def desk(company: Company, passes: dict[Role, Any], new_context: Callable[..., Any]) -> Iterator[OpenDesk]:
    """Opens a browser for an operator of a role, or without a session. Fails if a page writes to its console or calls
    another host."""
    desks: list[Desk] = []

    def opened(role: Role | None = Role.APPROVER, place: Company | Newborn = company, **options: Any) -> Desk:
        given = {"viewport": WIDE, "locale": "en-GB", "timezone_id": "UTC", **options}
        context = new_context(storage_state=None if role is None else passes[role], **given)
        context.set_default_timeout(15_000)
        desks.append(Desk(context.new_page(), place))
        return desks[-1]

    yield opened
    for one in desks:
        one.check()
