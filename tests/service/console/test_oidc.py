"""Tests of the sign-in through an OpenID Connect issuer: names and roles, and answers that must not sign in."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from threading import Event, Thread
from time import monotonic
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import request
from joserfc import jwk, jwt
from pydantic import SecretStr
from sqlalchemy import func, select

from app.commands.bootstrap import requirements
from app.commands.bootstrap.requirements import SetUpError, require_libraries
from app.commands.doctor.issuer import check_issuer
from app.foundation.audit import audit_page
from app.foundation.database.engine import reading
from app.http.throttle import FAILURES
from app.service.admin.settings import AdminSettings
from app.service.console.oidc import cache, calls
from app.service.console.oidc.cache import FRESH_SECONDS, MAX_AGE, RETRY_AFTER
from app.service.console.oidc.sign_in import ATTEMPT_TIMEOUT
from app.service.console.settings import OidcSettings, Role
from app.service.console.tables import ConsoleSessionRow
from app.service.console.urls import address
from app.service.refusals import ANONYMOUS_ROWS_PER_HOUR, LAST_ROW_SUFFIX, ROWS_PER_HOUR
from app.settings import ServerSettings
from tests.service.console import issuer as issuers
from tests.service.console.conftest import TOKENS, Browser, Office
from tests.service.console.issuer import CLIENT_ID, CLIENT_SECRET, KEY, NEW_KEY, FakeIssuer, rsa_key, weak_key

pytestmark = pytest.mark.one_database

ROLES = {"ops": Role.APPROVER, "everybody": Role.VIEWER, "chiefs": Role.ADMIN}


@pytest.fixture(scope="module")
def running_issuer() -> Iterator[FakeIssuer]:
    with issuers.running_issuer() as issuer:
        yield issuer


@pytest.fixture
def issuer(running_issuer: FakeIssuer, office: Office) -> FakeIssuer:
    running_issuer.now = lambda: office.time().timestamp()
    running_issuer.reset()
    return running_issuer


@pytest.fixture
def front(office: Office, issuer: FakeIssuer) -> Office:
    """The console with this issuer."""
    return office.with_console(public_url="http://localhost", oidc=settings_of(issuer.url))


def settings_of(url: str, **changed: Any) -> OidcSettings:
    """The settings of the console for this issuer."""
    given = {
        "issuer": url,
        "name": "Acme SSO",
        "client_id": CLIENT_ID,
        "client_secret": SecretStr(CLIENT_SECRET),
        "roles": ROLES,
    }
    return OidcSettings(**{**given, **changed})


def start_sign_in(browser: Browser, to: str = "") -> str:
    """The URL to which the button redirects the browser."""
    answer = browser.client.get(address("oidc", to=to))
    assert answer.status_code == 303, answer.get_data(as_text=True)
    return answer.headers["Location"]


def call_back(browser: Browser, parameters: dict[str, str]) -> str:
    """The page after a callback with these parameters."""
    return browser.get(address("oidc_back", **parameters))


def sign_in(browser: Browser, issuer: FakeIssuer, to: str = "", **parameters: str) -> str:
    """Signs in: the redirect, the issuer, and the callback."""
    return call_back(browser, {**issuer.authorize(start_sign_in(browser, to)), **parameters})


def audit_rows(office: Office) -> list[tuple[str, str, str, str]]:
    """Actor, way, action and outcome of each audit row, newest first."""
    with reading(office.engine) as connection:
        return [(row.actor, row.way, row.action, row.outcome) for row in audit_page(connection, limit=1000)]


def sessions(office: Office) -> int:
    """The number of sessions."""
    with reading(office.engine) as connection:
        return connection.scalar(select(func.count()).select_from(ConsoleSessionRow)) or 0


GROUPS: list[tuple[Any, Role]] = [
    (["everybody"], Role.VIEWER),
    (["ops"], Role.APPROVER),
    (["everybody", "chiefs", "ops"], Role.ADMIN),
    ("ops", Role.APPROVER),
    (["ops", 7, None, {"a": 1}], Role.APPROVER),
]


def test_the_highest_role_of_all_groups_applies(front: Office, issuer: FakeIssuer) -> None:
    for groups, role in GROUPS:
        issuer.user["groups"] = groups
        browser = front.browser()
        assert "Continue with Acme SSO</a>" in browser.get("/console/runs?status=held")
        html = sign_in(browser, issuer, "/console/runs?status=held")
        assert "<h1>Runs</h1>" in html
        assert f"<strong>mira</strong> {role}" in html
        assert audit_rows(front)[0] == ("mira", "oidc", "signed in", "done")


def test_the_requests_to_the_issuer(front: Office, issuer: FakeIssuer) -> None:
    browser = front.browser()
    browser.client.environ_base["HTTP_HOST"] = "evil.example"
    parameters = parse_qs(urlsplit(start_sign_in(browser)).query)
    assert parameters["redirect_uri"] == ["http://localhost/console/oidc/back"]
    assert parameters["client_id"] == [CLIENT_ID]
    assert parameters["scope"] == ["openid profile groups"]
    assert parameters["code_challenge_method"] == ["S256"]
    for name in ("state", "nonce", "code_challenge"):
        assert len(parameters[name][0]) == 43
    front = front.with_console(oidc=settings_of(issuer.url, scopes=("email",)))
    assert parse_qs(urlsplit(start_sign_in(front.browser())).query)["scope"] == ["openid email"]


def test_without_groups_in_the_token_the_userinfo_is_read(front: Office, issuer: FakeIssuer) -> None:
    del issuer.user["groups"]
    issuer.userinfo = {"sub": "u1", "groups": ["ops"]}
    assert "<h1>Overview</h1>" in sign_in(front.browser(), issuer)
    issuer.userinfo = {"sub": "somebody else", "groups": ["chiefs"]}
    assert "gave no valid answer" in sign_in(front.browser(), issuer)
    issuer.userinfo = None
    assert "None of your groups" in sign_in(front.browser(), issuer)


def test_users_without_a_role_see_the_groups_that_have_one(front: Office, issuer: FakeIssuer) -> None:
    issuer.user |= {"groups": ["sales", "<b>"], "preferred_username": "<script>\u202emira"}
    browser = front.browser()
    html = sign_in(browser, issuer)
    assert browser.status == 403
    assert "<script>" not in html.replace("<script src", "")
    for group, role in ROLES.items():
        assert f'<code class="id">{group}</code> <span class="muted">as {role}</span>' in html
    assert audit_rows(front)[0][1:] == ("oidc", "refused", "none of their groups has a role")
    assert sessions(front) == 0


def expired(issuer: FakeIssuer) -> None:
    issuer.claims = {"exp": int(issuer.now()) - 61}


def issued_tomorrow(issuer: FakeIssuer) -> None:
    issuer.claims = {"iat": int(issuer.now()) + 86_400}


def with_claims(**claims: Any) -> Callable[[FakeIssuer], None]:
    """Changes claims of the ID token."""
    return lambda issuer: issuer.claims.update(claims)


def signing(sign: Callable[[dict[str, Any]], str]) -> Callable[[FakeIssuer], None]:
    """Signs the ID token in another way."""
    return lambda issuer: setattr(issuer, "sign", sign)


def answering(answer: Callable[[], Any]) -> Callable[[FakeIssuer], None]:
    """Replaces the response to the code."""
    return lambda issuer: setattr(issuer, "token_answer", answer)


INVALID_RESPONSES: dict[str, Callable[[FakeIssuer], None]] = {
    "nonce": with_claims(nonce="another"),
    "no nonce": with_claims(nonce=None),
    "audience": with_claims(aud="another"),
    "several audiences": with_claims(aud=[CLIENT_ID, "another"]),
    "authorized party": with_claims(azp="another"),
    "issuer": with_claims(iss="https://another.example"),
    "issuer with a slash": lambda issuer: issuer.claims.update(iss=f"{issuer.url}/"),
    "no subject": with_claims(sub=None),
    "an empty subject": with_claims(sub=""),
    "a subject that is no text": with_claims(sub=7),
    "expired": expired,
    "issued tomorrow": issued_tomorrow,
    "without end": with_claims(exp=None),
    "an end that is no number": with_claims(exp="later"),
    "an end that is not a number": with_claims(exp=float("nan")),
    "not yet": with_claims(nbf=9_999_999_999),
    "of another access token": with_claims(at_hash=issuers.at_hash("b")),
    "unsigned": signing(issuers.unsigned),
    "signed with the public key": signing(issuers.signed_with_public_key),
    "signed by another key": signing(issuers.signed_by_another_key),
    "no token at all": signing(lambda _: ""),
    "half a token": signing(lambda _: "eyJhbGciOiJFUzI1NiJ9.x"),
    "no text": signing(lambda _: "ü.ü.ü"),
    "ten megabytes": answering(issuers.large_response),
    "dripping": answering(issuers.slow_response),
    "sent elsewhere": answering(issuers.redirect_response),
    "a page": answering(lambda: "<h1>Welcome</h1>"),
    "a list": answering(list),
    "null": answering(lambda: ("null", {"Content-Type": "application/json"})),
    "deep": answering(lambda: ("[" * 100_000, {"Content-Type": "application/json"})),
    "odd numbers": answering(lambda: {"expires_in": "soon", "access_token": 7, "id_token": ["x"]}),
    "an error": answering(lambda: ({"error": "invalid_grant", "error_description": "<b>"}, 400)),
    "out of order": answering(lambda: ("oops", 500)),
    "hung up": answering(lambda: (_ for _ in ()).throw(ConnectionError)),
    "signed by a key that is not published": signing(lambda claims: issuers.signed(claims, NEW_KEY)),
}


def test_invalid_answers_are_refused(front: Office, issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "CALLS_TIMEOUT", 0.3)
    monkeypatch.setattr("app.service.console.oidc.issuer._KEYS_MIN_AGE", 0)
    browser = front.browser()
    for number, (case, break_issuer) in enumerate(INVALID_RESPONSES.items(), 1):
        issuer.reset()
        where = start_sign_in(browser)
        break_issuer(issuer)
        browser.client.environ_base["REMOTE_ADDR"] = f"192.0.2.{number}"
        html = call_back(browser, issuer.authorize(where))
        assert browser.status == 403, case
        assert "Acme SSO gave no valid answer: try again, or use a token." in html, case
        assert "<h1>Sign in</h1>" in browser.get("/console/"), case
        rows = audit_rows(front)
        assert len(rows) == number, case
        assert rows[0][:3] == ("", "oidc", "refused"), case
        assert CLIENT_SECRET not in rows[0][3], case
    assert sessions(front) == 0
    # A valid answer signs in after all of these, and so does a token.
    issuer.reset()
    assert "<h1>Overview</h1>" in sign_in(browser, issuer)
    assert "<h1>Overview</h1>" in front.browser().sign_in(TOKENS[Role.VIEWER])


def test_callbacks_of_other_browsers_are_refused(front: Office, issuer: FakeIssuer) -> None:
    browser, other = front.browser(), front.browser()
    theirs = issuer.authorize(start_sign_in(other))
    mine = issuer.authorize(start_sign_in(browser))
    for callback in (
        theirs,
        {**mine, "state": theirs["state"]},
        {**mine, "state": "ü"},
        {"code": mine["code"]},
        {},
    ):
        assert "was started in another browser" in call_back(browser, callback)
        assert browser.status == 403
    # None of these called the issuer or wrote an audit row.
    assert "token" not in issuer.calls
    assert audit_rows(front) == []


def test_an_attempt_is_used_once(front: Office, issuer: FakeIssuer) -> None:
    browser = front.browser()
    callback = issuer.authorize(start_sign_in(browser))
    cookie = browser.client.get_cookie("usher-oidc")
    assert cookie is not None
    assert cookie.http_only
    assert "<h1>Overview</h1>" in call_back(browser, callback)
    assert browser.client.get_cookie("usher-oidc") is None
    assert "was started in another browser" in call_back(browser, callback)
    # With the cookie again, the issuer refuses the code.
    browser.client.set_cookie("usher-oidc", cookie.value)
    before = sessions(front)
    assert "gave no valid answer" in call_back(browser, callback)
    assert sessions(front) == before


def test_an_attempt_expires_after_ten_minutes(front: Office, issuer: FakeIssuer) -> None:
    browser = front.browser()
    callback = issuer.authorize(start_sign_in(browser))
    front.time.move_on(seconds=ATTEMPT_TIMEOUT.total_seconds() + 1)
    assert "took too long" in call_back(browser, callback)


def test_invalid_cookies_are_refused(front: Office, issuer: FakeIssuer) -> None:
    browser = front.browser()
    callback = issuer.authorize(start_sign_in(browser))
    cookie = browser.client.get_cookie("usher-oidc")
    assert cookie is not None
    began, secret, back = cookie.value.split(".")
    for value in (
        "",
        "..",
        "x",
        f"{began}.{secret}",
        f"{began}.{secret}.x",
        f"{began}.{secret}._w",
        f"{began}..{back}",
        f"{int(began) + 1}.{secret}.{back}",
        f"{'9' * 15}.{secret}.{back}",
        f"\u0661.{secret}.{back}",
    ):
        browser.client.set_cookie("usher-oidc", value)
        assert "was started in another browser" in call_back(browser, callback), value
    assert "token" not in issuer.calls
    browser.client.set_cookie("usher-oidc", f"{began}.{secret}.Ly9ldmlsLmV4YW1wbGUv")  # //evil.example/
    assert "<h1>Overview</h1>" in call_back(browser, callback)


def test_the_issuer_in_the_callback_is_checked(front: Office, issuer: FakeIssuer) -> None:
    assert "gave no valid answer" in sign_in(front.browser(), issuer, iss="https://another.example")
    browser = front.browser()
    callback = issuer.authorize(start_sign_in(browser))
    del callback["iss"]
    assert "gave no valid answer" in call_back(browser, callback)
    assert "token" not in issuer.calls
    issuer.metadata["authorization_response_iss_parameter_supported"] = False
    browser = front.browser()
    callback = issuer.authorize(start_sign_in(browser))
    del callback["iss"]
    assert "<h1>Overview</h1>" in call_back(browser, {**callback, "session_state": "x", "scope": "openid"})


def test_error_codes_of_the_issuer_are_shown(front: Office, issuer: FakeIssuer) -> None:
    browser = front.browser()
    state = issuer.authorize(start_sign_in(browser))["state"]
    html = call_back(browser, {"error": "access_denied", "error_description": "<script>", "state": state})
    assert "Acme SSO refused the sign-in: access_denied." in html
    assert browser.status == 403
    assert audit_rows(front)[0][3] == "the issuer's error code is access_denied"
    state = issuer.authorize(start_sign_in(browser))["state"]
    assert "an error code that OpenID Connect does not define" in call_back(browser, {"error": "<b>", "state": state})


def test_many_attempts_do_not_displace_others(front: Office, issuer: FakeIssuer) -> None:
    browser = front.browser()
    app = browser.client.application
    callback = issuer.authorize(start_sign_in(browser, "/console/runs"))
    for _ in range(60):
        start_sign_in(Browser(app.test_client()))
    assert "<h1>Runs</h1>" in call_back(browser, callback)
    assert "<h1>Overview</h1>" in sign_in(Browser(app.test_client()), issuer)


def test_a_sign_in_begins_by_opening_its_page_only(front: Office, issuer: FakeIssuer) -> None:
    browser = front.browser()
    callback = issuer.authorize(start_sign_in(browser))
    for kind in ("image", "iframe", "empty", "script", "object"):
        answer = browser.client.get(address("oidc"), headers={"Sec-Fetch-Dest": kind, "Sec-Fetch-Site": "cross-site"})
        assert answer.status_code == 403, kind
        assert "Set-Cookie" not in answer.headers, kind
    assert "<h1>Overview</h1>" in call_back(browser, callback)
    # Browsers send the header to secure origins only, and old browsers never do.
    for headers in ({"Sec-Fetch-Dest": "document"}, {}):
        assert front.browser().client.get(address("oidc"), headers=headers).status_code == 303


def test_failed_sign_ins_leave_few_rows_and_none_with_text_of_the_caller(front: Office, issuer: FakeIssuer) -> None:
    browser = front.browser()
    statuses = []
    for number in range(FAILURES + 5):
        state = issuer.authorize(start_sign_in(browser))["state"]
        bring = {"error": f"call 555-{number}"} if number % 2 else {"code": f"made-up-{number}", "iss": issuer.url}
        html = call_back(browser, {**bring, "state": state})
        statuses.append(browser.status)
        assert "call 555" not in html
    assert statuses == [403] * FAILURES + [429] * 5
    assert "Too many failed sign-ins from this address" in html
    rows = audit_rows(front)
    assert len(rows) == FAILURES
    assert {row[3].removesuffix(LAST_ROW_SUFFIX) for row in rows} == {
        "the issuer's error code is none of OpenID Connect's",
        "its answer is not valid (invalid_grant)",
    }
    # A valid sign-in is never throttled.
    assert "<h1>Overview</h1>" in sign_in(browser, issuer)
    for number in range(30):
        browser = Browser(browser.client.application.test_client())
        browser.client.environ_base["REMOTE_ADDR"] = f"192.0.2.{number}"
        for _ in range(5):
            state = issuer.authorize(start_sign_in(browser))["state"]
            call_back(browser, {"error": "access_denied", "state": state})
    assert len([row for row in audit_rows(front) if row[2] == "refused"]) == ANONYMOUS_ROWS_PER_HOUR


@pytest.mark.parametrize("answer", [lambda: ("oops", 500), lambda: (_ for _ in ()).throw(ConnectionError)])
def test_errors_of_the_issuer_do_not_throttle_callers(
    front: Office, issuer: FakeIssuer, answer: Callable[[], Any]
) -> None:
    browser = front.browser()
    issuer.token_answer = answer
    for _ in range(FAILURES + 2):
        assert "gave no valid answer" in sign_in(browser, issuer)
        assert browser.status == 403
    assert len(audit_rows(front)) == ROWS_PER_HOUR
    browser.sign_in("guessed")
    assert browser.status == 403


def test_a_recent_failure_of_the_issuer_does_not_throttle_callers(front: Office, issuer: FakeIssuer) -> None:
    browser = front.browser()
    issuer.broken = frozenset({"keys"})
    for _ in range(FAILURES + 2):
        assert "gave no valid answer" in sign_in(browser, issuer)
        assert browser.status == 403
    assert issuer.calls.count("keys") == 1
    browser.sign_in("guessed")
    assert browser.status == 403


def test_audit_rows_of_users_without_a_role_are_limited(front: Office, issuer: FakeIssuer) -> None:
    issuer.user["groups"] = []
    browser = front.browser()
    for number in range(ROWS_PER_HOUR + 5):
        issuer.user["preferred_username"] = f"name {number}"
        assert "None of your groups" in sign_in(browser, issuer)
    assert len(audit_rows(front)) == ROWS_PER_HOUR


def test_invalid_codes_of_one_address_do_not_delay_others(front: Office, issuer: FakeIssuer) -> None:
    front.settings = front.settings.model_copy(update={"server": ServerSettings(threads=8)})
    app = front.browser().client.application
    attackers = [Browser(app.test_client()) for _ in range(8)]
    for attacker in attackers:
        attacker.client.environ_base["REMOTE_ADDR"] = "198.51.100.7"
    for _ in range(FAILURES):
        call_back(attackers[0], {**issuer.authorize(start_sign_in(attackers[0])), "code": "made-up"})
    called, answers = Event(), Event()

    def slow() -> Any:
        if request.form["code"] == "made-up":
            called.set()
            assert answers.wait(5)
            return {"error": "invalid_grant"}, 400
        return issuer.redeem(request.form["code"], request.form["code_verifier"])

    states = [issuer.authorize(start_sign_in(attacker))["state"] for attacker in attackers]
    issuer.token_answer = slow
    with ThreadPoolExecutor(8) as threads:
        under_way = [
            threads.submit(call_back, attacker, {"code": "made-up", "state": state, "iss": issuer.url})
            for attacker, state in zip(attackers, states, strict=True)
        ]
        assert called.wait(2)
        assert "<h1>Overview</h1>" in sign_in(Browser(app.test_client()), issuer)
        answers.set()
        pages = [answer.result() for answer in under_way]
    # One of these calls ran at a time. The others were refused at once, without an audit row.
    assert sum("Too many sign-ins wait for Acme SSO" in page for page in pages) >= 6
    assert len([row for row in audit_rows(front) if row[2] == "refused"]) == FAILURES


def test_tokens_are_accepted_while_the_issuer_is_invalid(front: Office, issuer: FakeIssuer) -> None:
    for metadata in (
        {"issuer": "https://another.example"},
        {"token_endpoint": None},
        {"token_endpoint": "http://login.corp.example/token"},
        {"jwks_uri": 7},
        {"authorization_endpoint": ""},
    ):
        issuer.metadata = metadata
        browser = front.browser()
        assert "You can sign in by token." in browser.get(address("oidc"))
        assert browser.status == 503
        calls = len(issuer.calls)
        browser.get(address("oidc"))
        assert len(issuer.calls) == calls  # it is not asked again at once
    assert "<h1>Overview</h1>" in browser.sign_in(TOKENS[Role.VIEWER])


def test_an_unavailable_issuer_does_not_delay_other_sign_ins(
    front: Office, issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = front.with_console(oidc=settings_of("http://127.0.0.1:9"))
    assert "cannot be reached" in away.browser().get(address("oidc"))
    monkeypatch.setattr(calls, "CALLS_TIMEOUT", 0.2)
    monkeypatch.setattr(calls, "_THREAD_TIMEOUT", 0.01)
    browser, other = front.browser(), front.browser()
    callback, theirs = issuer.authorize(start_sign_in(browser)), issuer.authorize(start_sign_in(other))
    issuer.token_answer = issuers.slow_response
    began = monotonic()
    assert "gave no valid answer" in call_back(browser, callback)
    assert monotonic() - began < 1.5
    assert sessions(front) == 0
    assert "<h1>Overview</h1>" in other.sign_in(TOKENS[Role.VIEWER])
    assert theirs["code"] in issuer.codes


def test_while_one_waits_for_the_issuer_others_sign_in_by_token(
    front: Office, issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_THREAD_TIMEOUT", 0.01)
    app = front.browser().client.application
    waiting, late, other = (Browser(app.test_client()) for _ in range(3))
    callback, too_many = issuer.authorize(start_sign_in(waiting)), issuer.authorize(start_sign_in(late))
    called, answers = Event(), Event()

    def answer_late() -> str:
        called.set()
        assert answers.wait(2)
        return ""

    issuer.token_answer = answer_late
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(call_back, waiting, callback)
        assert called.wait(2)
        assert "<h1>Overview</h1>" in other.sign_in(TOKENS[Role.VIEWER])
        assert "Too many sign-ins wait for Acme SSO" in call_back(late, too_many)
        assert late.status == 503
        assert audit_rows(front)[0][2] == "signed in"
        assert not answer.done()
        answers.set()
        assert "gave no valid answer" in answer.result()


def test_unknown_keys_are_requested_at_a_limited_rate(
    front: Office, issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = front.browser()
    assert "<h1>Overview</h1>" in sign_in(browser, issuer)
    issuer.keys = [NEW_KEY]
    issuer.sign = lambda claims: issuers.signed(claims, NEW_KEY)
    later = Browser(browser.client.application.test_client())
    for _ in range(3):
        assert "gave no valid answer" in sign_in(later, issuer)
    assert issuer.calls.count("keys") == 1
    monkeypatch.setattr("app.service.console.oidc.issuer._KEYS_MIN_AGE", 0)
    assert "<h1>Overview</h1>" in sign_in(later, issuer)
    assert issuer.calls.count("keys") == 2
    assert KEY.kid != NEW_KEY.kid


def nameless(claims: dict[str, Any], *, key: Any, algorithm: str) -> str:
    """A token without a key id, so that all keys are tried."""
    return jwt.encode({"alg": algorithm}, claims, key, algorithms=[algorithm])


@pytest.mark.extended
def test_keys_that_cannot_verify_are_skipped(front: Office, issuer: FakeIssuer) -> None:
    """Whatever their kind, the keys beside them still verify."""
    ed = jwk.generate_key("OKP", "Ed25519", {"kid": "ed"})
    for good, algorithm in ((KEY, "ES256"), (rsa_key(), "RS256"), (ed, "EdDSA")):
        issuer.sign = partial(nameless, key=good, algorithm=algorithm)
        for unusable in issuers.unusable_keys():
            issuer.raw_keys = [unusable, good.as_dict(private=False)]
            browser = front.browser()
            assert "<h1>Overview</h1>" in sign_in(browser, issuer), (algorithm, unusable)
    issuer.raw_keys = list(issuers.unusable_keys())
    assert [finding.state.value for finding in check_issuer(front.settings, clock=front.time)] == ["problem"]


BAD_SIGNERS: list[tuple[Callable[[], Any], str, dict[str, Any]]] = [
    (weak_key, "RS256", {}),
    (weak_key, "PS256", {}),
    (rsa_key, "RS256", {"use": "enc"}),
    (rsa_key, "RS256", {"key_ops": ["encrypt"]}),
    (rsa_key, "RS256", {"alg": "RSA-OAEP"}),
    (rsa_key, "PS256", {"alg": "RS256"}),
    (lambda: KEY, "ES256", {"use": "enc"}),
]


@pytest.mark.parametrize(("make_key", "algorithm", "changed"), BAD_SIGNERS)
def test_keys_for_other_uses_are_refused(
    front: Office, issuer: FakeIssuer, make_key: Callable[[], Any], algorithm: str, changed: dict[str, Any]
) -> None:
    key = make_key()
    issuer.sign = partial(nameless, key=key, algorithm=algorithm)
    issuer.raw_keys = [{**key.as_dict(private=False), **changed}]
    assert "gave no valid answer" in sign_in(front.browser(), issuer)
    assert audit_rows(front)[0][3] == "the ID token is not signed by one of its keys"


def later_by(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves the time of the cache forward."""
    monkeypatch.setattr(cache, "monotonic", lambda: monotonic() + seconds)


def test_cached_metadata_bridges_a_short_outage(
    front: Office, issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = front.browser()
    assert "<h1>Overview</h1>" in sign_in(browser, issuer)
    app = browser.client.application
    later_by(FRESH_SECONDS + 1, monkeypatch)
    with issuer.stopped():
        later = Browser(app.test_client())
        callback = issuer.authorize(start_sign_in(later))
    # It is available again, but not its metadata and keys.
    issuer.broken = frozenset({"metadata", "keys"})
    assert "<h1>Overview</h1>" in call_back(later, callback)
    assert audit_rows(front)[0] == ("mira", "oidc", "signed in", "done")
    assert issuer.calls[-2:] == ["token", "keys"]
    calls = len(issuer.calls)
    assert "<h1>Overview</h1>" in sign_in(Browser(app.test_client()), issuer)
    assert issuer.calls[calls:] == ["token"]  # what failed is not asked again at once
    # When they are available again, they are read again.
    issuer.broken = frozenset()
    later_by(FRESH_SECONDS + RETRY_AFTER + 5, monkeypatch)
    calls = len(issuer.calls)
    assert "<h1>Overview</h1>" in sign_in(Browser(app.test_client()), issuer)
    assert issuer.calls[calls:] == ["metadata", "token", "keys"]


def test_cached_metadata_is_used_for_an_hour(
    front: Office, issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = front.browser()
    sign_in(browser, issuer)
    app = browser.client.application
    later_by(MAX_AGE - 60, monkeypatch)
    issuer.broken = frozenset({"metadata", "keys"})
    early, late = (Browser(app.test_client()) for _ in range(2))
    callback = issuer.authorize(start_sign_in(late))
    assert "<h1>Overview</h1>" in sign_in(early, issuer)
    later_by(MAX_AGE + 60, monkeypatch)
    issuer.broken = frozenset({"keys"})
    assert "gave no valid answer" in call_back(late, callback)
    assert audit_rows(front)[0][3] == "it answers with HTTP 503"
    later_by(2 * MAX_AGE + 120, monkeypatch)
    with issuer.stopped():
        away = Browser(app.test_client())
        assert "You can sign in by token." in away.get(address("oidc"))
        assert away.status == 503
        assert "<h1>Overview</h1>" in away.sign_in(TOKENS[Role.VIEWER])


def test_changed_metadata_takes_effect_at_once(
    front: Office, issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = front.browser()
    sign_in(browser, issuer)
    app = browser.client.application
    later_by(FRESH_SECONDS + 1, monkeypatch)
    issuer.keys = [NEW_KEY]
    # A withdrawn key is refused after the next read of the keys.
    assert "gave no valid answer" in sign_in(Browser(app.test_client()), issuer)
    later_by(2 * FRESH_SECONDS + 60, monkeypatch)
    issuer.metadata = {"issuer": "https://another.example"}
    for _ in range(2):
        other = Browser(app.test_client())
        assert "gave no valid answer" in other.get(address("oidc"))
        assert other.status == 503


def test_a_session_keeps_its_role_until_it_ends_or_the_settings_change(front: Office, issuer: FakeIssuer) -> None:
    browser = front.browser()
    sign_in(browser, issuer)
    issuer.user["groups"] = []
    assert "<strong>mira</strong> approver" in browser.get("/console/runs")
    cookie = browser.client.get_cookie("usher")
    assert cookie is not None
    changed = settings_of(issuer.url, roles={**ROLES, "ops": Role.VIEWER})
    for oidc in (changed, OidcSettings()):
        later = front.with_console(oidc=oidc).browser()
        later.client.set_cookie("usher", cookie.value)
        assert "<h1>Sign in</h1>" in later.get("/console/runs")
    front.time.move_on(seconds=timedelta(hours=13).total_seconds())
    assert "<h1>Sign in</h1>" in browser.get("/console/runs")


def test_equal_names_do_not_share_sessions(front: Office, issuer: FakeIssuer) -> None:
    """A user with the same name as a token neither sees nor ends its sessions."""
    issuer.user |= {"preferred_username": "the viewer", "groups": ["everybody"]}
    theirs, browser = front.browser(Role.VIEWER), front.browser()
    sign_in(browser, issuer)
    assert browser.get(address("sessions")).count('<th scope="row">the viewer</th>') == 1
    with reading(front.engine) as connection:
        rows = connection.execute(select(ConsoleSessionRow.__table__)).all()
    token = browser.get("/console/").partition('name="formToken" value="')[2].partition('"')[0]
    assert ">issuer</td>" in browser.get(address("sessions"))
    for row in rows:
        if not row.credential.startswith("oidc:"):
            browser.post(address("end_session"), {"session": row.session_digest, "formToken": token})
    assert browser.status == 403
    assert "<h1>Runs</h1>" in theirs.get("/console/runs")


def test_without_an_issuer_its_pages_are_not_found(office: Office) -> None:
    for name in ("oidc", "oidc_back"):
        browser = office.browser()
        browser.get(address(name))
        assert browser.status == 404


def test_a_missing_library_is_reported(front: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    require_libraries(front.settings)
    monkeypatch.setattr(requirements, "find_spec", lambda _: None)
    with pytest.raises(SetUpError, match=r"pip install 'usher\[console\]'"):
        require_libraries(front.settings)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"issuer": "http://login.corp.example"}, "must begin with https"),
        ({"issuer": "http://127.0.0.1", "proxy": SecretStr("http://proxy.example:3128")}, "must begin with https"),
        ({"issuer": "login.corp.example"}, "must be the issuer exactly"),
        ({"issuer": "https://a:b@login.corp.example"}, "must be the issuer exactly"),
        ({"issuer": "https://[::1"}, "must be the issuer exactly"),
        ({"client_id": ""}, "client_id is empty"),
        ({"roles": {}}, "roles is empty"),
        ({"roles": {"ops": "owner"}}, "roles.ops"),
        ({"client_secret": SecretStr("a b")}, "must be printable ASCII"),
    ],
)
def test_unsafe_settings_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_of("https://login.corp.example", **changed)


def test_the_doctor_checks_the_issuer(front: Office, issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    def findings(office: Office) -> list[tuple[str, str]]:
        return [(finding.state.value, finding.message) for finding in check_issuer(office.settings, clock=office.time)]

    assert findings(front) == [("ok", f"{issuer.url} answers as an issuer")]
    assert "token" not in issuer.calls
    issuer.keys = []
    assert findings(front) == [("problem", f"{issuer.url} has no key that verifies ID tokens")]
    issuer.metadata = {"issuer": "https://another.example"}
    ((state, message),) = findings(front)
    assert (state, "contains another issuer" in message) == ("problem", True)
    alone = front.with_console(tokens=())
    alone.settings = alone.settings.model_copy(update={"admin": AdminSettings()})
    issuer.reset()
    assert [state for state, _ in findings(alone)] == ["ok", "warning"]
    assert findings(front.with_console(oidc=OidcSettings())) == []
    monkeypatch.setattr("app.commands.doctor.issuer.find_spec", lambda _: None)
    assert "not installed" in findings(front)[0][1]


def test_the_place_of_a_sign_in_is_free_again_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise RuntimeError("can't start new thread")

    threads = calls.CallThreads()
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", fails)
        with pytest.raises(calls.IssuerBusyError, match="no thread"):
            threads.run(lambda: 1)
    assert threads.run(lambda: 2) == 2
