"""The gate of the console: who gets through, what a request may look like, and what every page carries.

A request holds one of few slots, so that the provider's threads are never all taken by pages. One without a session
goes to the sign-in. One that changes something shows the form token of its session and comes from our own pages, as the
browser says.
"""

import hmac
from datetime import timedelta
from random import Random
from threading import BoundedSemaphore
from urllib.parse import urlsplit

from flask import Blueprint, Response, g, request
from sqlalchemy import Engine
from werkzeug.exceptions import Forbidden, RequestEntityTooLarge, ServiceUnavailable, UnsupportedMediaType

from app.foundation.audit import Actor, Audit
from app.foundation.clock import Clock
from app.foundation.database.engine import writing
from app.http.request_id import current_request_id
from app.service.console.oidc.sign_in import is_by_issuer, settings_mark
from app.service.console.sessions import Credentials, Operator, Session, Sessions, TokenOwner, form_token
from app.service.console.settings import ConsoleSettings, Role
from app.service.console.transactions import page_reading
from app.service.refusals import Refusals
from app.sync.runs.audit import audited
from app.sync.runs.lifecycle import Witness

MAX_FORM_BYTES = 64 * 1024

_PATIENCE = 2.0
"""Seconds that a request waits for a slot."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_FORM_TYPE = "application/x-www-form-urlencoded"


class SignInNeeded(Exception):  # noqa: N818 - it is no error: it leads to the sign-in
    """Nobody is signed in."""


class RoleTooLow(Forbidden):
    """Somebody is signed in who may not do this."""


class ConsoleGate:
    """Lets requests of one blueprint through."""

    def __init__(
        self,
        settings: ConsoleSettings,
        credentials: Credentials,
        *,
        engine: Engine,
        clock: Clock,
        random: Random,
        slots: int,
        refusals: Refusals,
    ) -> None:
        """``slots``: how many requests may be under way at once in this process."""
        self.settings = settings
        self.credentials = credentials
        self.engine = engine
        self.clock = clock
        self.audit = Audit(clock)
        self.refusals = refusals
        self.sessions = Sessions(
            clock,
            random,
            idle=timedelta(seconds=settings.idle_timeout),
            longest=timedelta(seconds=settings.session_timeout),
        )
        self._slots = BoundedSemaphore(max(1, slots))
        self._issuer_mark = settings_mark(settings.oidc)

    def install(self, blueprint: Blueprint) -> None:
        """Stands before every request of the blueprint."""
        blueprint.before_request(self._enter)
        blueprint.teardown_request(self._leave)
        blueprint.after_request(self._protect)

    def _enter(self) -> None:
        if not self._slots.acquire(timeout=_PATIENCE):
            raise ServiceUnavailable(
                "too many pages are being loaded at once, and permission calls go first; try again in a moment"
            )
        g.console_slot = True
        request.max_content_length = MAX_FORM_BYTES
        if request.method == "POST":
            self._check_form()

    def _leave(self, _error: BaseException | None) -> None:
        if g.pop("console_slot", False):
            self._slots.release()

    def _check_form(self) -> None:
        if request.mimetype != _FORM_TYPE:
            raise UnsupportedMediaType(f"send a form ({_FORM_TYPE})")
        if request.content_length is not None and request.content_length > MAX_FORM_BYTES:
            raise RequestEntityTooLarge
        if not self._is_our_own():
            raise Forbidden("the form was not sent from a page of this console")

    def _is_our_own(self) -> bool:
        site = request.headers.get("Sec-Fetch-Site")
        if site is not None:
            return site == "same-origin"
        origin = request.headers.get("Origin", "")
        if self.settings.public_url:
            return origin.lower() == self.settings.public_url
        return _netloc(origin) == request.host.lower() != ""

    def _protect(self, response: Response) -> Response:
        headers = response.headers
        headers["Content-Security-Policy"] = _POLICY
        headers["Referrer-Policy"] = "same-origin"
        headers["Cross-Origin-Opener-Policy"] = "same-origin"
        headers["X-Frame-Options"] = "DENY"
        if self.settings.public_url.startswith("https:"):
            headers["Strict-Transport-Security"] = "max-age=31536000"
        return response

    @property
    def is_plain(self) -> bool:
        """Whether the cookie may go without TLS: on this machine alone."""
        if self.settings.public_url:
            return urlsplit(self.settings.public_url).scheme == "http" and _is_loopback(self.settings.public_url)
        return _is_loopback(f"//{request.host}")

    @property
    def _cookie(self) -> str:
        return "usher" if self.is_plain else "__Host-usher"

    def shown_session(self) -> str:
        """The session id that the browser shows; empty: none."""
        return request.cookies.get(self._cookie, "")

    def let_in(self, response: Response, session_id: str) -> None:
        """Gives the browser a session's id."""
        response.set_cookie(self._cookie, session_id, secure=not self.is_plain, httponly=True, samesite="Lax", path="/")

    def let_out(self, response: Response) -> None:
        """Takes it away."""
        response.delete_cookie(self._cookie, secure=not self.is_plain, httponly=True, samesite="Lax", path="/")

    def operator(self) -> Operator | None:
        """Who is signed in; None: nobody."""
        if "console_operator" not in g:
            g.console_operator = self._find()
        found: Operator | None = g.console_operator
        return found

    def _find(self) -> Operator | None:
        session_id = self.shown_session()
        if not session_id:
            return None
        with page_reading(self.engine) as connection:
            session = self.sessions.find(connection, session_id)
        owner = None if session is None else self.owner_of(session)
        if session is None or owner is None:
            return None
        if self.sessions.is_to_be_noted(session):
            self._note(session)
        return Operator(
            name=owner.name,
            role=owner.role,
            way="oidc" if is_by_issuer(session.credential) else "console",
            credential=session.credential,
            session_digest=session.session_digest,
            form_token=form_token(session_id),
            address=request.remote_addr or "",
            request_id=current_request_id() or "",
        )

    def owner_of(self, session: Session) -> TokenOwner | None:
        """Whose a session is by the settings of now; None: what it was opened with is accepted no longer. What the
        issuer said of somebody holds until the session ends."""
        if not is_by_issuer(session.credential):
            return self.credentials.of_digest(session.credential)
        fits = self._issuer_mark and session.credential.startswith(self._issuer_mark)
        return TokenOwner(session.name, session.role) if fits else None

    def _note(self, session: Session) -> None:
        with writing(self.engine) as connection:
            self.sessions.note(connection, session)

    def required(self, role: Role) -> Operator:
        """Who is signed in, and may what this role may.

        Raises ``SignInNeeded``, ``RoleTooLow`` (which is audited), and ``Forbidden`` for a form without its token.
        """
        operator = self.operator()
        if operator is None:
            raise SignInNeeded
        if not operator.may(role):
            self.refused(operator.actor, request.path, f"needs the role {role}")
            raise RoleTooLow(f"{operator.name} is {operator.role}; this needs the role {role}")
        if request.method == "POST" and not _is_same(request.form.get("formToken", ""), operator.form_token):
            self.refused(operator.actor, request.path, "the form had no valid token")
            raise Forbidden("the form belongs to another session: reload the page and send it again")
        return operator

    def refused(self, actor: Actor, what: str, why: str) -> None:
        """Writes an audit row for a signed-in user who was refused."""
        self.refusals.note(actor, what, why, sort=f"refused {actor.way} {actor.name}")

    def witness(self, actor: Actor, action: str, reason: str | None = None) -> Witness:
        """Writes down that somebody did this to a run."""
        return audited(self.audit, actor, action, reason)


def _is_same(shown: str, wanted: str) -> bool:
    return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), wanted.encode())


def _netloc(url: str) -> str:
    """Host and port of an address that anybody may have made up; empty where there are none."""
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""


def _is_loopback(url: str) -> bool:
    netloc = _netloc(url)
    host = netloc if netloc.endswith("]") else netloc.rpartition(":")[0] or netloc
    return host in _LOOPBACK
