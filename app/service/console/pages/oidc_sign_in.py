"""The sign-in through an issuer of OpenID Connect: the redirect to the issuer, and the callback."""

import hmac
from typing import TYPE_CHECKING

import structlog
from flask import Response, request
from werkzeug.exceptions import Forbidden, NotFound

from app.foundation.text import quoted
from app.service.console.console import Console
from app.service.console.cookies import Cookie
from app.service.console.credentials import CredentialOwner, issuer_credential
from app.service.console.oidc.calls import IssuerAwayError, IssuerBusyError, IssuerError
from app.service.console.oidc.sign_in import ATTEMPT_TIMEOUT, Attempt, attempt_from_cookie, begin_attempt
from app.service.console.pages.sign_in import open_session, sign_in_page
from app.service.console.urls import address, go_to, query, safe_back
from app.service.console.views import VIEWS
from app.service.refusals import request_actor

if TYPE_CHECKING:
    from app.service.console.oidc.issuer import Issuer

_log = structlog.stdlib.get_logger(__name__)

_MAX_CODE = 4096
_UNKNOWN_ATTEMPT = "This sign-in was started in another browser, was already used, or took too long: start again."
_ERROR_CODES = frozenset(
    {
        # RFC 6749, section 4.1.2.1
        *("invalid_request", "unauthorized_client", "access_denied", "unsupported_response_type", "invalid_scope"),
        *("server_error", "temporarily_unavailable"),
        # OpenID Connect Core 1.0, section 3.1.2.6
        *("interaction_required", "login_required", "account_selection_required", "consent_required"),
        *("invalid_request_uri", "invalid_request_object", "request_not_supported", "request_uri_not_supported"),
        "registration_not_supported",
    }
)
"""Other codes are not shown or stored, because anybody can send a callback with any text."""


@VIEWS.get("oidc", None)
def oidc(console: Console) -> Response:
    issuer = _issuer(console)
    back = query("to")["to"]
    # An image or a frame of another site must not replace the attempt of this browser. Old browsers do not send the
    # header, and no browser sends it to an origin without TLS.
    if request.headers.get("Sec-Fetch-Dest", "document") != "document":
        raise Forbidden("a sign-in must be started by opening its page")
    if console.gate.operator() is not None:
        return go_to(safe_back(back))
    attempt = begin_attempt(console.parts.clock, console.parts.random, back=back)
    try:
        url = issuer.sign_in_url(attempt)
    except IssuerError as error:
        _log_failure(str(error))
        alternative = " You can sign in by token." if console.gate.credentials else ""
        notice = f"{issuer.settings.label} cannot be reached, or gave no valid answer.{alternative}"
        return sign_in_page(console, back=back, notice=notice, status=503)
    response = go_to(url)
    _cookie(console).set(response, attempt.cookie)
    return response


@VIEWS.get("oidc_back", None)
def oidc_back(console: Console) -> Response:
    # OpenID Connect requires clients to ignore other parameters (session_state, scope, …).
    issuer = _issuer(console)
    attempt = _attempt(console)
    if attempt is None:
        response = sign_in_page(console, back="", notice=_UNKNOWN_ATTEMPT, status=403)
    elif "error" in request.args:
        response = _refused(console, issuer, attempt, request.args["error"])
    else:
        response = _returned(console, issuer, attempt, request.args.get("code", ""))
    _cookie(console).delete(response)
    return response


def _attempt(console: Console) -> Attempt | None:
    """The attempt of this browser. None: the callback does not belong to it."""
    attempt = attempt_from_cookie(_cookie(console).value, console.parts.clock)
    if attempt is None or any(len(request.args.getlist(name)) > 1 for name in request.args):
        return None
    state = request.args.get("state", "")
    is_ours = hmac.compare_digest(state.encode("utf-8", "surrogatepass"), attempt.state.encode("ascii"))
    return attempt if is_ours else None


def _refused(console: Console, issuer: "Issuer", attempt: Attempt, error: str) -> Response:
    name = issuer.settings.label
    if error in _ERROR_CODES:
        notice = f"{name} refused the sign-in: {error}."
        return _failed(console, attempt, f"the issuer's error code is {error}", notice)
    _log_failure(f"its error code is {quoted(error)}")
    notice = f"{name} refused the sign-in with an error code that OpenID Connect does not define."
    return _failed(console, attempt, "the issuer's error code is none of OpenID Connect's", notice)


def _returned(console: Console, issuer: "Issuer", attempt: Attempt, code: str) -> Response:
    """The page after a callback with a code: opens a session if the user has a role."""
    back, name = attempt.back, issuer.settings.label
    if not code or len(code) > _MAX_CODE:
        return _failed(console, attempt, "the issuer's answer has no code", f"{name} refused the sign-in: no code.")
    is_throttled = console.parts.failures.is_throttled(request.remote_addr or "")
    try:
        identity = issuer.identity(attempt, code=code, iss=request.args.get("iss"), is_throttled=is_throttled)
    except IssuerBusyError as failure:
        _log_failure(str(failure))
        notice = f"Too many sign-ins wait for {name}: try again later."
        return sign_in_page(console, back=back, notice=notice, status=503)
    except IssuerError as failure:
        _log_failure(str(failure))
        notice = f"{name} gave no valid answer: try again, or use a token."
        return _failed(console, attempt, str(failure), notice, is_callers=not isinstance(failure, IssuerAwayError))
    credential = issuer_credential(issuer.settings, identity.subject)
    if identity.role is None:
        actor = request_actor(identity.name, "oidc")
        console.gate.refusals.record(actor, "sign-in", "none of their groups has a role", key=f"no role {credential}")
        roles = sorted(issuer.settings.roles.items())
        return console.anonymous("no_role.html", status=403, name=identity.name, issuer_name=name, roles=roles)
    owner = CredentialOwner(identity.name, identity.role)
    return open_session(console, owner, credential=credential, way="oidc", back=back)


def _failed(console: Console, attempt: Attempt, reason: str, notice: str, *, is_callers: bool = True) -> Response:
    """The sign-in page after a failure, which is audited. ``is_callers``: it counts as a wrong token of the caller."""
    if is_callers and (seconds := console.parts.failures.record(request.remote_addr or "")):
        notice = f"Too many failed sign-ins from this address: try again in {seconds} s."
        return sign_in_page(console, back=attempt.back, notice=notice, status=429, retry_after=seconds)
    console.gate.refusals.record_wrong_token(request_actor("", "oidc"), "sign-in", reason)
    return sign_in_page(console, back=attempt.back, notice=notice, status=403)


def _issuer(console: Console) -> "Issuer":
    if console.issuer is None:
        raise NotFound
    return console.issuer


def _cookie(console: Console) -> Cookie:
    return Cookie("usher-oidc", console.parts.settings, max_age=ATTEMPT_TIMEOUT)


def _log_failure(problem: str) -> None:
    _log.warning("issuer_failed", problem=problem, sign_in=address("oidc"))
