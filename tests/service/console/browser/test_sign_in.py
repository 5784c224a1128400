"""Sign-in through an independent issuer, as each role; and manipulated callbacks and responses of issuers."""

import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from sqlalchemy import func, select

from app.commands.demo.tour import _console_link
from app.foundation.audit import audit_page
from app.foundation.database.engine import reading
from app.service.console.tables import ConsoleSessionRow
from tests.service.console import issuer as issuers
from tests.service.console.browser.company import PASSWORD, Company, Newborn
from tests.service.console.browser.conftest import OpenDesk
from tests.service.console.browser.desk import Desk
from tests.service.console.issuer import FakeIssuer

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.timeout(180), pytest.mark.xdist_group("browser")]

Back = dict[str, str]

ROLES = {"vera": "viewer", "adele": "approver", "max": "admin"}
"""A member of several groups has the highest role."""


@pytest.mark.parametrize("name", ROLES)
def test_a_sign_in_through_the_issuer_returns_to_the_requested_page(
    desk: OpenDesk, company: Company, name: str
) -> None:
    one = to_the_issuer(desk, company, "runs", status="held")
    show_password(one, name)
    one.page.get_by_role("heading", name="Runs", level=1).wait_for()
    assert one.page.url == one.at("runs", status="held")
    assert one.page.locator("details.user summary").inner_text().split() == [name, ROLES[name]]
    may_approve = one.page.get_by_role("link", name="Sync now").count()
    assert may_approve == (ROLES[name] != "viewer")
    with reading(company.engine) as connection:
        entry = next(one for one in audit_page(connection) if one.action == "signed in")
    assert (entry.actor, entry.role, entry.way) == (name, ROLES[name], "oidc")


def test_a_sign_in_through_the_issuer_without_a_script(desk: OpenDesk, company: Company) -> None:
    one = to_the_issuer(lambda role: desk(role, java_script_enabled=False), company, "runs", status="held")
    show_password(one, "adele")
    one.page.get_by_role("heading", name="Runs", level=1).wait_for()
    assert one.page.url == one.at("runs", status="held")
    assert cookies(one) == {"usher"}


def test_a_user_without_a_role_sees_the_groups_that_have_one(desk: OpenDesk, company: Company) -> None:
    one = to_the_issuer(desk, company, "overview")
    one.expected = {403}
    show_password(one, "nils")
    one.page.get_by_role("heading", name="None of your groups").wait_for()
    text = one.page.locator("main").inner_text()
    assert all(group in text for group in ("readers", "deciders", "keepers"))
    assert one.violations() == []
    assert "usher" not in cookies(one)


BENT: dict[str, Callable[[Back], Back]] = {
    "another state": lambda back: {**back, "state": "x" * len(back["state"])},
    "no state": lambda back: {"code": back["code"]},
    "another issuer": lambda back: {**back, "iss": "https://evil.example"},
    "no code": lambda back: {"state": back["state"]},
    "an error": lambda back: {"state": back["state"], "error": "<b>access</b>_denied"},
    "everything": lambda back: dict.fromkeys(back, "\u202e<script>"),
}
"""Another code is missing: canaille also finds one by its client (``test_oidc.py`` tries it)."""


def test_manipulated_callbacks_do_not_sign_in(desk: OpenDesk, company: Company) -> None:
    one = to_the_issuer(desk, company, "overview")
    one.expected = {403}
    show_password(one, "max")
    one.page.get_by_role("heading", name="Overview").wait_for()
    one.page.context.clear_cookies(name="usher")
    # The original callback signs in, but only once.
    back = _on_the_way_back(one)
    for heading in ("Overview", "Sign in"):
        one.page.goto(back)
        assert one.heading() == heading
        one.page.context.clear_cookies(name="usher")
    for how, bend in BENT.items():
        back = _on_the_way_back(one)
        bent = bend({name: values[0] for name, values in parse_qs(urlsplit(back).query).items()})
        one.page.goto(f"{back.partition('?')[0]}?{urlencode(bent)}")
        assert one.heading() == "Sign in", how
        assert one.page.locator("main p.muted").first.inner_text(), how
        assert "usher" not in cookies(one), how
        one.go("overview")
        assert one.heading() == "Sign in", how


ANSWERS: dict[str, Callable[[FakeIssuer], None]] = {
    "another nonce": lambda issuer: issuer.claims.update(nonce="another"),
    "another audience": lambda issuer: issuer.claims.update(aud="another"),
    "another issuer": lambda issuer: issuer.claims.update(iss="https://another.example"),
    "nobody": lambda issuer: issuer.claims.update(sub=None),
    "expired": lambda issuer: issuer.claims.update(exp=int(issuer.now()) - 61),
    "unsigned": lambda issuer: setattr(issuer, "sign", issuers.unsigned),
    "signed by another key": lambda issuer: setattr(issuer, "sign", issuers.signed_by_another_key),
    "signed with the public key": lambda issuer: setattr(issuer, "sign", issuers.signed_with_public_key),
    "ten megabytes": lambda issuer: setattr(issuer, "token_answer", issuers.large_response),
    "sent elsewhere": lambda issuer: setattr(issuer, "token_answer", issuers.redirect_response),
    "out of order": lambda issuer: setattr(issuer, "token_answer", lambda: ("oops", 500)),
}
"""Manipulations of the issuer's response to the code."""


def test_manipulated_responses_of_the_issuer_do_not_sign_in(desk: OpenDesk, newborn: Newborn) -> None:
    """Each shows the sign-in page with one sentence. Afterwards a valid response signs the same browser in."""
    one = desk(None, newborn)
    one.known = (newborn.issuer.url,)
    one.expected = {403}
    sessions, refused = _kept(newborn)
    for how, bend in ANSWERS.items():
        newborn.issuer.reset()
        bend(newborn.issuer)
        asked = len(newborn.issuer.calls)
        one.go("runs")
        one.page.get_by_role("link", name="Continue with Acme SSO").click()
        one.page.get_by_text("gave no valid answer").wait_for()
        assert "token" in newborn.issuer.calls[asked:], how
        assert one.heading() == "Sign in", how
        text = one.page.locator("main p.muted:not(.small)").all_inner_texts()
        assert text == ["Acme SSO gave no valid answer: try again, or use a token."], how
        assert cookies(one) == set(), how
        one.go("overview")
        assert one.heading() == "Sign in", how
        refused += 1
        assert _kept(newborn) == (sessions, refused), how
    newborn.issuer.reset()
    one.go("runs")
    one.page.get_by_role("link", name="Continue with Acme SSO").click()
    one.page.get_by_role("heading", name="Runs", level=1).wait_for()
    assert cookies(one) == {"usher"}
    one.page.locator("details.user summary").click()
    one.page.get_by_role("button", name="Sign out").click()
    assert cookies(one) == set()


def _kept(newborn: Newborn) -> tuple[int, int]:
    """The numbers of sessions, and of refusals in the audit log. None contains a secret."""
    with reading(newborn.engine) as connection:
        refused = audit_page(connection, action="refused", limit=200)
        sessions = connection.scalar(select(func.count()).select_from(ConsoleSessionRow)) or 0
    assert not any(issuers.CLIENT_SECRET in row.outcome for row in refused)
    return sessions, len(refused)


def _on_the_way_back(one: Desk) -> str:
    """The URL of the callback for a user whom the issuer knows."""
    asked = one.page.request.get(one.at("oidc"), max_redirects=0).headers["location"]
    return one.page.request.get(asked, max_redirects=0).headers["location"]


def to_the_issuer(desk: OpenDesk, company: Company, page: str, **query: object) -> Desk:
    """Opens a page without a session, and chooses the issuer."""
    one = desk(None)
    one.known = (company.issuer,)
    one.go(page, **query)
    one.page.get_by_role("link", name="Continue with Canaille").click()
    return one


def show_password(one: Desk, name: str) -> None:
    """Signs in on the pages of the issuer."""
    one.page.locator("input[name=login]").fill(name)
    one.page.locator("input[name=login]").press("Enter")
    one.page.locator("input[name=password]").fill(PASSWORD)
    one.page.locator("input[name=password]").press("Enter")


def cookies(one: Desk) -> set[str]:
    """The names of the cookies of the console."""
    return {cookie["name"] for cookie in one.page.context.cookies(one.url)}


def test_a_sign_in_link_leaves_no_token_in_the_history(
    desk: OpenDesk, company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    link = re.findall("http[^ ]*#[^ ]*", _console_link(company.demo))[0]
    one = desk(None)
    one.page.goto(link)
    assert one.page.url == one.at("sign_in")
    assert one.page.get_by_label("token").input_value() == link.partition("#")[2]
    one.press("Enter")
    one.page.get_by_role("heading", name="Overview").wait_for()
    # A session is kept; the fragment is removed on the page that it leads to as well.
    one.page.goto(link)
    one.page.get_by_role("heading", name="Overview").wait_for()
    assert "#" not in one.page.url
    other = desk(None)
    other.expected = {403}
    other.page.goto(link)
    other.press("Enter")
    other.page.get_by_text("This token is not accepted.").wait_for()
