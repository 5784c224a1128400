"""Tests of unusual query parameters and form fields: each page shows text, an error or nothing found."""

import json
import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import quote

import pytest

from app.service.console.settings import Role
from app.service.console.urls import PREFIX, address
from tests.commands.conftest import DIRECTORY
from tests.conftest import DATABASES
from tests.service.console.conftest import Browser, Office, standing_office
from tests.service.console.test_pages import HOSTILE, planned_run

pytestmark = pytest.mark.one_database

ODD = {
    "tags and quotes": quote(HOSTILE),
    "a zero byte": "%00",
    "no UTF-8": "%ff%fe",
    "half a surrogate": "%ED%A0%80",
    "half a surrogate in JSON": quote(json.dumps(["contents", "x", "\ud800"])),
    "512 bytes": quote("é" * 256),
    "more": "x" * 4000,
    "turned round": quote("\u202eabc\u2066"),
    "lines": "a%0d%0aSet-Cookie:%20usher=x",
    "deep": "[" * 3000,
    "negative": "-1",
    "a large number": "9" * 30,
    "no number": "NaN",
    "a path": "..%2f..%2fetc%2fpasswd",
    "a statement": quote("'; DROP TABLE run; --"),
    "wildcards": "%25%5F",
    "blank": "%20",
}
WAYS_IN = {"sign-in", "oidc", "oidc/back"}
"""Pages that redirect signed-in users (``test_gate.py``, ``test_oidc.py``)."""


@pytest.fixture(scope="module", params=DATABASES)
def office(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with standing_office(request, tmp_path_factory.mktemp("input"), DIRECTORY) as opened:
        yield opened


def _valid(run: str) -> dict[str, dict[str, str]]:
    """For each page with parameters the ones that lead somewhere."""
    acme = {"organization": "acme"}
    return {
        "run": {"id": run},
        "item": {"run": run, "ordinal": "1"},
        "approve": {"run": run},
        "discard": {"run": run},
        "ledger_item": {"kind": "document", **acme, "item": "handbook"},
        "access": {"user": "ada", **acme},
        "access.csv": {"user": "ada", **acme},
        "explain": {"user": "ada", "type": "document", "resource": "handbook", **acme, "at": "now"},
        "organization": {"id": "acme"},
        "folder": {**acme, "id": "x"},
        "document": {**acme, "id": "handbook"},
        "group": {**acme, "id": "x"},
        "user": {"id": "ada", **acme},
        "problems": {"source": "people", "sort": "dangling"},
    }


def _pages(browser: Browser) -> list[str]:
    app = browser.client.application
    rules = [rule for rule in app.url_map.iter_rules() if "GET" in (rule.methods or ()) and "<" not in rule.rule]
    names = {rule.rule.removeprefix(f"{PREFIX}/") for rule in rules if rule.rule.startswith(f"{PREFIX}/")}
    return sorted(names - WAYS_IN)


def _known(browser: Browser, page: str) -> list[str]:
    """The parameters of a page, from its error message for an unknown one."""
    html = unescape(browser.get(f"{PREFIX}/{page}?nothing=1"))
    assert browser.status == 400, page
    known = re.search(r"is not a parameter of this page; allowed: ([a-z, ]+)\.", html)
    assert known is not None, page
    return [] if known[1] == "none" else known[1].split(", ")


def _look(browser: Browser, html: str, what: str, statuses: set[int]) -> None:
    assert browser.status in statuses, f"{what}: {browser.status}"
    assert "<script>alert" not in html, what
    assert "Traceback" not in html, what
    # A field holds what was typed, which is for its writer to see.
    assert not re.search(
        "[\u202e\u2066\x00]", re.sub(r'value="[^"]*"|<textarea.*?</textarea>', "", html, flags=re.DOTALL)
    ), what
    assert browser.answer is not None
    if browser.answer.mimetype == "text/html":
        assert 'href="/console/' in html, what


@pytest.mark.extended
@pytest.mark.parametrize("role", list(Role))
def test_odd_values_of_parameters(office: Office, role: Role) -> None:
    browser = office.browser(role)
    run = _planned(office)
    valid = _valid(run)
    asked = 0
    for page in _pages(browser):
        if role is Role.VIEWER and page in {"approve", "discard", "preview-file", "sync"}:
            continue
        known = _known(browser, page)
        assert set(valid.get(page, {})) <= set(known)
        # What a page makes of its parameters is the same for all roles.
        for name in known if role is Role.ADMIN else known[:1]:
            rest = {key: value for key, value in valid.get(page, {}).items() if key != name}
            for how, value in ODD.items():
                path = address(page, **rest) if page else f"{PREFIX}/"
                html = browser.get(f"{path}{'&' if '?' in path else '?'}{name}={value}")
                _look(browser, html, f"{page}: {name} is {how}", {200, 400, 404})
                asked += 1
    assert asked > (500 if role is Role.ADMIN else 100)


def test_ids_that_are_too_long_for_a_list_of_access(office: Office) -> None:
    browser = office.browser(Role.VIEWER)
    for subject in (
        "user={}&organization=acme",
        "user=ada&organization={}",
        "organization=acme&type=folder&resource={}",
    ):
        html = browser.get(f"{PREFIX}/access?{subject.format(quote('é' * 257))}")
        assert browser.status == 400
        assert "an id has at most 512 bytes" in html


FORMS = {
    "sync": ("organizations", "users", "preview", "verify", "deletes", "reason"),
    "apply": ("run",),
    "cancel": ("run",),
    "approve": ("run", "reason", "number"),
    "discard": ("run", "reason", "number"),
    "retry": ("kind", "organization", "message", "chosen", "only"),
    "end_session": ("session",),
    "look": ("back", "theme", "times", "keys"),
    "doctor": ("anything",),
}


@pytest.mark.extended
def test_odd_values_of_fields(office: Office) -> None:
    browser = office.browser(Role.ADMIN)
    token = browser.get(address("keys")).split('name="formToken" value="', 1)[1].split('"', 1)[0]
    for form, names in FORMS.items():
        for name in names:
            for how, value in ODD.items():
                fields = {"run": office.held_run().run_id} if form in {"approve", "discard"} and name != "run" else {}
                fields |= {"reason": "x"} if name != "reason" else {}
                body = "&".join(f"{key}={quote(one)}" for key, one in fields.items() if key != name)
                browser.answer = browser.client.post(
                    address(form),
                    data=f"formToken={token}&{body}&{name}={value}",
                    headers={"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"},
                )
                html = browser.answer.get_data(as_text=True)
                if browser.status == 303:
                    where = browser.answer.headers["Location"]
                    assert where.startswith(f"{PREFIX}/"), (form, name, how)
                    html = browser.get(where)
                _look(browser, html, f"{form}: {name} is {how}", {200, 400, 403, 404, 409})
    for page in ("runs", "audit", "overview", "held"):
        _look(browser, browser.get(address(page)), page, {200})


def _planned(office: Office) -> str:
    """A run with a plan."""
    found = next((one.run_id for one in office.runs.recent(1000) if one.plan_id), None)
    return found or planned_run(office, item_id="handbook")
