"""Tests of tokens, roles, sessions and forms from other sites, and of their audit rows."""

import re
from datetime import timedelta
from itertools import product
from pathlib import Path
from random import Random
from threading import BoundedSemaphore
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import select

from app.access.index.index import AccessIndex
from app.commands.bootstrap.requirements import short_tokens
from app.foundation.audit import audit_page
from app.foundation.database.engine import reading, writing
from app.foundation.database.programs import SchemaGuard, SchemaNewerError
from app.http.throttle import FAILURES
from app.service.admin.settings import AdminSettings
from app.service.console.credentials import token_digest
from app.service.console.sessions import LINK_PREFIX, LINK_TIMEOUT, MAX_SESSIONS, Sessions
from app.service.console.settings import ConsoleSettings, ConsoleToken, Role
from app.service.console.tables import ConsoleSessionRow
from app.service.console.urls import address
from app.service.refusals import ANONYMOUS_ROWS_PER_HOUR, LAST_ROW_SUFFIX, ROWS_PER_HOUR
from tests.service.console.conftest import ADMIN_TOKEN, OURS, TOKENS, Browser, Office

pytestmark = pytest.mark.one_database


def audit_rows(office: Office) -> list[tuple[str, str, str]]:
    """Actor, action and outcome of each audit row, newest first."""
    with reading(office.engine) as connection:
        return [(row.actor, row.action, row.outcome) for row in audit_page(connection, limit=1000)]


def test_requests_without_a_session_return_after_sign_in(office: Office) -> None:
    browser = office.browser()
    html = browser.get("/console/runs?status=held")
    assert "<h1>Sign in</h1>" in html
    assert 'value="/console/runs?status=held"' in html
    html = browser.sign_in(TOKENS[Role.VIEWER], "/console/runs?status=held")
    assert "<h1>Runs</h1>" in html


ELSEWHERE = [
    "https://evil.example/console/",
    "//evil.example/console/",
    "/\\evil.example",
    "/console/\\evil",
    "/metrics",
    "javascript:alert(1)",
    "/console/\r\nSet-Cookie: a=b",
    "/console/sign-in",
]


def test_sign_in_redirects_to_this_console_only(office: Office) -> None:
    browser = office.browser()
    for to in ELSEWHERE:
        browser.post("/console/sign-in", {"token": TOKENS[Role.VIEWER], "to": to}, follow=False)
        assert browser.answer is not None
        assert browser.answer.headers["Location"] == "/console/"


def test_wrong_tokens_are_throttled(office: Office) -> None:
    browser = office.browser()
    for _ in range(FAILURES):
        html = browser.sign_in("guessed")
        assert browser.status == 403
        assert "This token is not accepted." in html
        assert "guessed" not in html
    assert "Too many wrong tokens" in browser.sign_in("guessed")
    assert browser.status == 429
    assert browser.answer is not None
    assert int(browser.answer.headers["Retry-After"]) > 0
    assert "Overview" in browser.sign_in(TOKENS[Role.ADMIN])  # a right one is never refused
    assert audit_rows(office)[0] == ("the admin", "signed in", "done")
    # What is slowed down leaves no more rows: nobody fills the log by guessing.
    assert len(audit_rows(office)) == FAILURES + 1


def test_audit_rows_of_wrong_tokens_are_limited(office: Office) -> None:
    client = office.browser().client
    for number in range(30):
        client.environ_base["REMOTE_ADDR"] = f"192.0.2.{number}"
        for _ in range(7):
            assert client.post("/console/sign-in", data={"token": "guessed"}, headers=OURS).status_code == 403
        headers = {"Authorization": "Bearer guessed"}
        for path in ("/resync", "/permissions/explain"):
            for _ in range(3):
                assert client.post(path, json={}, headers=headers).status_code == 401
    with reading(office.engine) as connection:
        rows = audit_page(connection, limit=1000)
    assert len(rows) == ANONYMOUS_ROWS_PER_HOUR
    assert rows[0].outcome.endswith(LAST_ROW_SUFFIX)


def test_audit_rows_of_refused_operators_are_limited(office: Office) -> None:
    browser = office.browser(Role.VIEWER)
    token = token_of(browser)
    for _ in range(ROWS_PER_HOUR):
        browser.post(address("sync"), {"formToken": token})
        browser.post(address("look"), {"formToken": "x"})
        browser.post(address("end_session"), {"formToken": token, "session": "all"})
    rows = [row for row in audit_rows(office) if row[1] == "refused"]
    assert len(rows) == ROWS_PER_HOUR
    assert rows[0][2].endswith(LAST_ROW_SUFFIX)
    # Somebody else has their own limit.
    other = Browser(browser.client.application.test_client())
    other.sign_in(TOKENS[Role.APPROVER])
    other.post(address("look"), {"formToken": "x"})
    assert audit_rows(office)[0] == ("the approver", "refused", "the form had no valid token")


def test_wrong_admin_tokens_over_http_are_audited(office: Office) -> None:
    client = office.browser().client
    for path in ("/permissions/explain", "/resync"):
        assert client.post(path, json={}, headers={"Authorization": "Bearer guessed"}).status_code == 401
    assert audit_rows(office) == [("", "refused", "the bearer token is not accepted")] * 2


def test_an_admin_token_is_an_admin_without_a_name(office: Office) -> None:
    browser = office.browser()
    assert "admin token" in browser.sign_in(ADMIN_TOKEN)
    assert ADMIN_TOKEN not in browser.get(address("settings", all=1))


def test_the_database_keeps_no_session_id(office: Office) -> None:
    browser = office.browser(Role.VIEWER)
    cookie = browser.client.get_cookie("usher")
    assert cookie is not None
    assert len(cookie.value) == 64
    assert cookie.http_only
    with reading(office.engine) as connection:
        kept = str(connection.execute(select(ConsoleSessionRow.__table__)).all())
    assert cookie.value not in kept
    assert TOKENS[Role.VIEWER] not in kept


def test_beyond_loopback_the_cookie_is_bound_to_tls_and_host(office: Office) -> None:
    office = office.with_console(public_url="https://usher.corp.example")
    client = office.browser().client
    answer = client.post("/console/sign-in", data={"token": TOKENS[Role.VIEWER]}, headers=OURS)
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("__Host-usher=")
    for part in ("Secure", "HttpOnly", "SameSite=Lax", "Path=/"):
        assert part in cookie
    assert "Domain" not in cookie
    assert answer.headers["Strict-Transport-Security"]


@pytest.mark.parametrize(
    ("change", "seconds"),
    [({}, 3601), ({"idle_timeout": 86_400}, 43_201)],
    ids=["idle", "longest"],
)
def test_sessions_expire(office: Office, change: dict[str, Any], seconds: int) -> None:
    browser = office.with_console(**change).browser(Role.VIEWER)
    office.time.move_on(seconds=seconds - 2)
    assert "<h1>Runs</h1>" in browser.get("/console/runs")
    office.time.move_on(seconds=3 if change else seconds)
    assert "The session has ended" in browser.get("/console/runs")


def test_a_session_ends_with_its_token(office: Office) -> None:
    browser = office.browser(Role.ADMIN)
    without = office.with_console(tokens=office.settings.console.tokens[:2]).browser()
    cookie = browser.client.get_cookie("usher")
    assert cookie is not None
    without.client.set_cookie("usher", cookie.value)
    assert "<h1>Sign in</h1>" in without.get("/console/")


def test_sessions_are_ended_by_their_owners_and_by_admins(office: Office) -> None:
    viewer, other, admin = office.browser(Role.VIEWER), office.browser(Role.APPROVER), office.browser(Role.ADMIN)
    office.time.move_on(seconds=20)
    html = viewer.get(address("sessions"))
    assert "the approver" not in html
    # The request for this page is the last one of its session.
    assert re.search(r'data-ago>now</time></td><td[^>]*><span class="muted">this one', html)
    with reading(office.engine) as connection:
        digests = {row.name: row.session_digest for row in connection.execute(select(ConsoleSessionRow.__table__))}
    form = {"session": digests["the approver"], "formToken": token_of(viewer)}
    viewer.post(address("end_session"), form)
    assert viewer.status == 403
    assert "<h1>Runs</h1>" in other.get("/console/runs")
    admin.send(address("sessions"), address("end_session"))
    assert "<h1>Sign in</h1>" in other.get("/console/runs")
    assert "<h1>Sign in</h1>" in viewer.get("/console/runs")
    assert "<h1>Runs</h1>" in admin.get("/console/runs")
    assert ("the admin", "sessions ended", "done") in audit_rows(office)


def test_signing_in_again_ends_the_session_that_the_browser_had(office: Office) -> None:
    browser, other = office.browser(Role.ADMIN), office.browser(Role.APPROVER)
    old = browser.client.get_cookie("usher")
    assert old is not None
    browser.sign_in(TOKENS[Role.VIEWER])
    assert "<h1>Runs</h1>" in browser.get("/console/runs")
    assert "<h1>Runs</h1>" in other.get("/console/runs")
    stolen = office.browser()
    stolen.client.set_cookie("usher", old.value)
    assert "<h1>Sign in</h1>" in stolen.get("/console/runs")


def test_a_token_has_a_limited_number_of_sessions(office: Office) -> None:
    other, first = office.browser(Role.APPROVER), office.browser(Role.VIEWER)
    app = first.client.application
    for _ in range(MAX_SESSIONS):
        office.time.move_on(seconds=1)
        last = Browser(app.test_client())
        last.post("/console/sign-in", {"token": TOKENS[Role.VIEWER]}, follow=False)
    with reading(office.engine) as connection:
        assert len(connection.execute(select(ConsoleSessionRow.__table__)).all()) == MAX_SESSIONS + 1
    assert "<h1>Sign in</h1>" in first.get("/console/runs")
    assert "<h1>Runs</h1>" in last.get("/console/runs")
    assert "<h1>Runs</h1>" in other.get("/console/runs")


def test_signing_out_ends_the_session_in_the_database_too(office: Office) -> None:
    browser = office.browser(Role.VIEWER)
    cookie = browser.client.get_cookie("usher")
    assert cookie is not None
    assert "<h1>Sign in</h1>" in browser.send("/console/", address("sign_out"))
    browser.client.set_cookie("usher", cookie.value)
    assert "<h1>Sign in</h1>" in browser.get("/console/")


FROM_WHERE = [
    ({"Sec-Fetch-Site": "same-origin"}, 303),
    ({"Origin": "http://localhost"}, 303),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403),
    ({"Sec-Fetch-Site": "none"}, 403),
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": "http://[::1"}, 403),
    ({"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"}, 403),
    ({}, 403),
]


def test_forms_come_from_our_own_pages(office: Office) -> None:
    browser = office.browser(Role.APPROVER)
    form = {"formToken": token_of(browser), "preview": "1"}
    for headers, status in FROM_WHERE:
        before = len(office.runs.recent())
        browser.post(
            address("sync"), {**form, "users": f"u{len(headers)}{headers.get('Origin')}"}, headers, follow=False
        )
        assert browser.status == status, headers
        assert len(office.runs.recent()) - before == (status == 303), headers


def test_a_form_without_its_token_changes_nothing(office: Office) -> None:
    browser = office.browser(Role.ADMIN)
    paths = ("sync", "retry", "cancel", "apply", "approve", "discard", "sign_out", "end_session", "look")
    for path, token in product(paths, ("", "x", "ü", "0" * 64)):
        browser.post(address(path), {"formToken": token, "run": "x"})
        assert browser.status == 403, path
    assert office.runs.recent() == []
    assert ("the admin", "refused", "the form had no valid token") in audit_rows(office)


def test_another_sessions_token_does_not_fit(office: Office) -> None:
    theirs = token_of(office.browser(Role.ADMIN))
    browser = office.browser(Role.APPROVER)
    browser.post(address("sync"), {"formToken": theirs})
    assert browser.status == 403


NO_FORMS = [
    (b"{}", "application/json", 415),
    (b"a=b", "multipart/form-data; boundary=x", 415),
    (b"a=" + b"b" * 70_000, "application/x-www-form-urlencoded", 413),
    (b"&" * 60_000, "application/x-www-form-urlencoded", 403),
    (b"formToken=%ff%fe", "application/x-www-form-urlencoded", 403),
    (b"formToken=%00", "application/x-www-form-urlencoded", 403),
]


def test_bodies_other_than_forms_are_refused(office: Office) -> None:
    browser = office.browser(Role.ADMIN)
    for body, content_type, status in NO_FORMS:
        answer = browser.client.post(address("sync"), data=body, content_type=content_type, headers=OURS)
        assert answer.status_code == status, body[:20]
        assert answer.content_type.startswith("text/html")


def test_actions_do_not_accept_get(office: Office) -> None:
    browser = office.browser(Role.ADMIN)
    for name in ("retry", "cancel", "apply", "sign_out", "end_session", "look"):
        browser.get(address(name))
        assert browser.status == 404
    assert office.runs.recent() == []


def test_without_tokens_the_page_names_no_setting(office: Office) -> None:
    bare = office.with_console(tokens=())
    bare.settings = bare.settings.model_copy(update={"admin": bare.settings.admin.model_copy(update={"tokens": []})})
    html = bare.browser().get("/console/")
    assert "Sign-in is not possible" in html
    assert "console.tokens" not in html


def test_empty_tokens_are_invalid_and_short_ones_prevent_the_start(office: Office) -> None:
    tokens = (ConsoleToken(name="x", role=Role.ADMIN, token=SecretStr("")),)
    bare = office.with_console(tokens=tokens)
    bare.settings = bare.settings.model_copy(update={"admin": AdminSettings(tokens=[SecretStr("")])})
    browser = bare.browser()
    browser.sign_in("")
    assert browser.status == 403
    assert short_tokens(bare.settings)[-1] == "console.tokens[0].token"


def test_the_console_can_be_disabled(office: Office) -> None:
    browser = office.with_console(enabled=False).browser()
    browser.get("/console/")
    assert browser.status == 404
    assert browser.answer is not None
    assert browser.answer.is_json


def test_valid_preferences_are_stored(office: Office) -> None:
    browser = office.browser(Role.VIEWER)
    assert 'data-theme="dark"' in browser.send("/console/", address("look"), theme="dark")
    browser.send("/console/", address("look"), theme='"><script>')
    assert 'data-theme="dark"' in browser.get("/console/")
    browser.client.set_cookie("usher-look", 'x."><script>.y')
    assert "<script>" not in browser.get("/console/")


@pytest.mark.parametrize("url", ["usher.corp.example", "https://u.example/console", "ftp://u.example", "https://a:b@u"])
def test_public_url_is_an_origin(url: str) -> None:
    with pytest.raises(ValueError, match=r"must (be|have|not have)"):
        ConsoleSettings(public_url=url)


def token_of(browser: Browser) -> str:
    """The form token of this browser's session."""
    return browser.get("/console/").partition('name="formToken" value="')[2].partition('"')[0]


def offered(office: Office, seed: int = 1) -> str:
    """The token of a sign-in link for the approver."""
    sessions = Sessions(office.time, Random(seed), idle_timeout=timedelta(hours=1), max_age=timedelta(hours=1))
    with writing(office.engine) as connection:
        return sessions.create_link(connection, token_digest(TOKENS[Role.APPROVER]))


def test_a_sign_in_link_is_valid_once_and_for_five_minutes(office: Office) -> None:
    token = offered(office)
    browser = office.browser()
    assert "Overview" in browser.sign_in(token)
    assert "the approver" in browser.get(address("overview"))
    with reading(office.engine) as connection:
        entry = audit_page(connection, limit=1)[0]
    assert (entry.actor, entry.action, entry.reason) == ("the approver", "signed in", "a sign-in link")
    assert "This token is not accepted." in office.browser().sign_in(token)
    token = offered(office, 2)
    office.time.move_on(seconds=LINK_TIMEOUT.total_seconds() + 1)
    assert "This token is not accepted." in office.browser().sign_in(token)
    token = offered(office, 3)
    changed = office.with_console(tokens=())
    assert "This token is not accepted." in changed.browser().sign_in(token)


def test_a_configured_token_may_begin_like_a_sign_in_link(office: Office) -> None:
    token = f"{LINK_PREFIX}in a lifetime, a long token"
    tokens = (ConsoleToken(name="ada", role=Role.VIEWER, token=SecretStr(token)),)
    assert "Overview" in office.with_console(tokens=tokens).browser().sign_in(token)
    with reading(office.engine) as connection:
        entry = audit_page(connection, limit=1)[0]
    assert (entry.actor, entry.action, entry.reason or "") == ("ada", "signed in", "")


def test_a_sign_in_link_is_no_session_and_is_not_stored(office: Office) -> None:
    token = offered(office)
    browser = office.browser()
    browser.client.set_cookie("usher", token.removeprefix(LINK_PREFIX))
    assert "<h1>Sign in</h1>" in browser.get(address("overview"))
    with reading(office.engine) as connection:
        stored = str(connection.execute(select(ConsoleSessionRow.__table__)).all())
    assert token.removeprefix(LINK_PREFIX) not in stored
    assert "link:" not in office.browser(Role.ADMIN).get(address("sessions"))


def test_guessed_sign_in_links_are_throttled(office: Office) -> None:
    browser = office.browser()
    for _ in range(FAILURES):
        assert "This token is not accepted." in browser.sign_in(f"{LINK_PREFIX}guessed")
    assert "Too many wrong tokens" in browser.sign_in(f"{LINK_PREFIX}guessed")


def test_a_request_that_waits_for_a_slot_holds_no_turn(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.access.index.turns.WAIT", 0.01)
    index = AccessIndex(office.engine, tmp_path / "index", clock=office.time, turns=1)
    browser = office.browser(index=index)
    waits: list[float] = []

    class Full(BoundedSemaphore):
        def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            with index.turns.take():
                return False

    enter: Any = browser.client.application.before_request_funcs["console"][0]
    with monkeypatch.context() as patched:
        patched.setattr(enter.__self__, "_slots", Full())
        assert "too many pages are loading" in browser.get("/console/sign-in").lower()
        # If the database does not respond, the other threads are left to permission calls.
        patched.setattr(index.turns, "responds", lambda: False)
        browser.get("/console/sign-in")
    assert (browser.status, waits) == (503, [2, 0])


def test_a_page_without_a_turn_leaves_its_slot(office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.access.index.turns.WAIT", 0.01)
    index = AccessIndex(office.engine, tmp_path / "index", clock=office.time, turns=1)
    browser = office.browser(index=index)
    with index.turns.take():
        for _ in range(office.settings.server.threads):
            assert "Too many requests are in progress." in browser.get("/console/sign-in")
            assert browser.status == 503
    for _ in range(2):
        assert "<h1>Sign in</h1>" in browser.get("/console/sign-in")


def test_a_newer_version_of_the_database_is_reported(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_guard: SchemaGuard) -> None:
        raise SchemaNewerError

    monkeypatch.setattr(SchemaGuard, "check", refuse)
    browser = office.browser()
    assert "newer version" in browser.get("/console/sign-in")
    assert browser.status == 503
    assert browser.client.get("/console/assets/none").status_code == 404
