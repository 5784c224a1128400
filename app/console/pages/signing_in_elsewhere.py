"""The sign-in through an issuer of OpenID Connect: on the way there, and on the way back."""

import hmac
from typing import TYPE_CHECKING

import structlog
from flask import Blueprint, Response, request
from werkzeug.exceptions import NotFound

from app.audit import Actor
from app.console.console import Console, address, go_to, query, route_of, safe_back
from app.console.credentials import TokenOwner
from app.console.oidc.attempts import LIVES, Attempt, Attempts
from app.console.oidc.identity import credential_of
from app.console.oidc.outgoing import IssuerError
from app.console.pages.signing_in import newcomer, open_session, sign_in_page
from app.database.engine import writing
from app.text import named

if TYPE_CHECKING:
    from app.console.oidc.issuer import Issuer

_LONGEST_CODE = 4096
_ELSEWHERE = "This sign-in was started elsewhere, was already used, or took too long: start again."


def install(blueprint: Blueprint, console: Console) -> None:
    """``/oidc`` and ``/oidc/back``."""
    attempts = Attempts(console.parts.clock, console.parts.random)

    @blueprint.get(route_of("oidc"))
    def oidc() -> Response:
        issuer = _issuer(console)
        back = query("to")["to"]
        if console.gate.operator() is not None:
            return go_to(safe_back(back))
        with writing(console.parts.engine) as connection:
            attempt = attempts.begin(connection, address=request.remote_addr or "", back=back)
        if attempt is None:
            says = "Too many sign-ins from this address are under way: finish one, or try again in a few minutes."
            return sign_in_page(console, back=back, says=says, status=429)
        try:
            where = issuer.sign_in_address(attempt)
        except IssuerError as error:
            _log(error)
            with writing(console.parts.engine) as connection:
                attempts.end(connection, attempt)
            return sign_in_page(console, back=back, says=_away(console, issuer), status=503)
        response = go_to(where)
        # Lax: the way back is a link from the issuer's site.
        response.set_cookie(
            _cookie(console),
            attempt.secret,
            max_age=int(LIVES.total_seconds()),
            secure=not console.gate.is_plain,
            httponly=True,
            samesite="Lax",
            path="/",
        )
        return response

    @blueprint.get(route_of("oidc_back"))
    def oidc_back() -> Response:
        # What else an issuer says (session_state, scope, …) is to be ignored, by its specification.
        issuer = _issuer(console)
        response = _taken_back(console, issuer, attempts)
        response.delete_cookie(_cookie(console), secure=not console.gate.is_plain, httponly=True, samesite="Lax")
        return response


def _taken_back(console: Console, issuer: "Issuer", attempts: Attempts) -> Response:
    attempt = Attempt(request.cookies.get(_cookie(console), ""))
    shown = request.args.get("state", "")
    is_ours = attempt.secret and hmac.compare_digest(
        shown.encode("utf-8", "surrogatepass"), attempt.state.encode("ascii")
    )
    back = None
    if is_ours and all(len(request.args.getlist(name)) == 1 for name in request.args):
        with writing(console.parts.engine) as connection:
            back = attempts.end(connection, attempt)
    if back is None:
        return sign_in_page(console, back="", says=_ELSEWHERE, status=403)
    code = request.args.get("code", "")
    if "error" in request.args or not code or len(code) > _LONGEST_CODE:
        error = named(request.args.get("error", "no code"), limit=60)
        _refused(console, newcomer("", "oidc"), f"the issuer says {error}")
        says = f"{issuer.settings.shown_name} refused the sign-in: {error}."
        return sign_in_page(console, back=back, says=says, status=403)
    try:
        identity = issuer.identity(attempt, code=code, iss=request.args.get("iss"))
    except IssuerError as failure:
        _log(failure)
        _refused(console, newcomer("", "oidc"), str(failure))
        says = f"{issuer.settings.shown_name} gave no valid answer: try again, or use a token."
        return sign_in_page(console, back=back, says=says, status=403)
    if identity.role is None:
        _refused(console, newcomer(identity.name, "oidc"), "none of their groups opens the console")
        roles = sorted(issuer.settings.roles.items())
        return console.alone(
            "no_role.html", status=403, name=identity.name, issuer_name=issuer.settings.shown_name, roles=roles
        )
    owner = TokenOwner(identity.name, identity.role)
    return open_session(
        console, owner, credential=credential_of(issuer.settings, identity.subject), way="oidc", back=back
    )


def _issuer(console: Console) -> "Issuer":
    if console.issuer is None:
        raise NotFound
    return console.issuer


def _cookie(console: Console) -> str:
    return "usher-oidc" if console.gate.is_plain else "__Host-usher-oidc"


def _refused(console: Console, actor: Actor, why: str) -> None:
    console.gate.refused(actor, "sign-in", why)


def _away(console: Console, issuer: "Issuer") -> str:
    otherwise = " A token still opens the console." if console.gate.credentials else ""
    return f"{issuer.settings.shown_name} cannot be reached, or gives no valid answer.{otherwise}"


def _log(error: IssuerError) -> None:
    structlog.stdlib.get_logger(__name__).warning("issuer_failed", problem=str(error), sign_in=address("oidc"))
