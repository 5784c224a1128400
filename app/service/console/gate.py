"""Checks the requests of the console, and adds security headers to its responses.

Each request occupies one of few slots, so that pages never take all threads from permission calls. Requests without a
session are sent to the sign-in. A request that changes something needs the form token of its session, and must come
from a page of this console.
"""

import hmac
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from random import Random
from threading import BoundedSemaphore
from urllib.parse import urlsplit

from flask import Blueprint, Response, g, request
from sqlalchemy import Engine
from werkzeug.exceptions import Forbidden, RequestEntityTooLarge, ServiceUnavailable, UnsupportedMediaType

from app.access.index.turns import DatabaseTurns
from app.foundation.audit import Actor, Audit
from app.foundation.clock import Clock
from app.foundation.database.engine import writing
from app.foundation.outbound.urls import is_loopback
from app.service.console.oidc.sign_in import credential_prefix, is_by_issuer
from app.service.console.sessions import Credentials, Operator, Session, Sessions, TokenOwner, form_token
from app.service.console.settings import ConsoleSettings, Role
from app.service.console.transactions import page_reading
from app.service.refusals import Refusals
from app.sync.runs.audit import audited
from app.sync.runs.lifecycle import AuditHook

MAX_FORM_BYTES = 64 * 1024

_SLOT_TIMEOUT = 2.0
"""Seconds that a request waits for a slot."""
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_FORM_TYPE = "application/x-www-form-urlencoded"
_FILES_TYPE = "multipart/form-data"


class SignInNeeded(Exception):  # noqa: N818 - it is not an error: it redirects to the sign-in
    """The request has no valid session."""


class RoleTooLow(Forbidden):
    """The operator's role does not allow the request."""


class ConsoleGate:
    """Authenticates and checks the requests of the console's blueprint."""

    def __init__(
        self,
        settings: ConsoleSettings,
        credentials: Credentials,
        *,
        engine: Engine,
        clock: Clock,
        random: Random,
        slots: int,
        turns: DatabaseTurns | None,
        refusals: Refusals,
    ) -> None:
        """``slots``: the number of requests that this process handles at once. ``turns``: each of them takes one; None:
        they are not limited."""
        self.settings = settings
        self.credentials = credentials
        self.engine = engine
        self.audit = Audit(clock)
        self.refusals = refusals
        self.sessions = Sessions(
            clock,
            random,
            idle_timeout=timedelta(seconds=settings.idle_timeout),
            max_age=timedelta(seconds=settings.session_timeout),
        )
        self.upload_limits: Mapping[str, int] = {}
        """The endpoints of forms with files → the limit of their bodies in bytes. A body is read after the role was
        checked."""
        self._slots = BoundedSemaphore(max(1, slots))
        self._turns = turns
        self._credential_prefix = credential_prefix(settings.oidc)

    def install(self, blueprint: Blueprint) -> None:
        """Registers the checks for every request of the blueprint."""
        blueprint.before_request(self._enter)
        blueprint.teardown_request(self._leave)
        blueprint.after_request(self._add_security_headers)

    def _enter(self) -> None:
        responds = self._turns is None or self._turns.responds()
        if not self._slots.acquire(timeout=_SLOT_TIMEOUT if responds else 0):
            raise ServiceUnavailable("too many pages are loading; permission calls take precedence; try again later")
        g.console_slot = held = ExitStack()
        held.callback(self._slots.release)
        # A request that waits for a slot holds no turn: the other requests of the service need it.
        if self._turns is not None and request.endpoint != "console.asset":
            held.enter_context(self._turns.taken())
        request.max_content_length = self.upload_limits.get(request.endpoint or "", MAX_FORM_BYTES)
        if request.method == "POST":
            self._check_form()

    def _leave(self, _error: BaseException | None) -> None:
        if (held := g.pop("console_slot", None)) is not None:
            held.close()

    @property
    def is_entered(self) -> bool:
        """Whether the request has a slot."""
        return "console_slot" in g

    def _check_form(self) -> None:
        form_type = _FILES_TYPE if request.endpoint in self.upload_limits else _FORM_TYPE
        if request.mimetype != form_type:
            raise UnsupportedMediaType(f"send a form ({form_type})")
        limit = request.max_content_length
        if limit is not None and request.content_length is not None and request.content_length > limit:
            raise RequestEntityTooLarge(f"the form is larger than {limit // 1024:,} KiB")
        if not self._is_same_origin():
            raise Forbidden("the form was not sent from a page of this console")

    def _is_same_origin(self) -> bool:
        site = request.headers.get("Sec-Fetch-Site")
        if site is not None:
            return site == "same-origin"
        origin = request.headers.get("Origin", "")
        if self.settings.public_url:
            return origin.lower() == self.settings.public_url
        return _netloc(origin) == request.host.lower() != ""

    def _add_security_headers(self, response: Response) -> Response:
        headers = response.headers
        headers["Content-Security-Policy"] = _CONTENT_SECURITY_POLICY
        headers["Referrer-Policy"] = "same-origin"
        headers["Cross-Origin-Opener-Policy"] = "same-origin"
        headers["X-Frame-Options"] = "DENY"
        if self.settings.public_url.startswith("https:"):
            headers["Strict-Transport-Security"] = "max-age=31536000"
        return response

    @property
    def is_plain(self) -> bool:
        """Whether cookies may be sent without TLS: only on this machine."""
        url = self.settings.public_url or f"//{request.host}"
        return not url.startswith("https:") and is_loopback(url)

    @property
    def _cookie(self) -> str:
        return "usher" if self.is_plain else "__Host-usher"

    @property
    def session_id(self) -> str:
        """The session id in the request's cookie; empty: none."""
        return request.cookies.get(self._cookie, "")

    def set_cookie(self, response: Response, session_id: str) -> None:
        """Sets the session's cookie."""
        response.set_cookie(self._cookie, session_id, secure=not self.is_plain, httponly=True, samesite="Lax", path="/")

    def delete_cookie(self, response: Response) -> None:
        """Deletes the session's cookie."""
        response.delete_cookie(self._cookie, secure=not self.is_plain, httponly=True, samesite="Lax", path="/")

    def operator(self) -> Operator | None:
        """The signed-in operator; None: the request has no valid session."""
        if "console_operator" not in g:
            g.console_operator = self._find_operator()
        found: Operator | None = g.console_operator
        return found

    def _find_operator(self) -> Operator | None:
        session_id = self.session_id
        if not session_id:
            return None
        with page_reading(self.engine) as connection:
            session = self.sessions.find(connection, session_id)
        owner = None if session is None else self.owner_of(session)
        if session is None or owner is None:
            return None
        if self.sessions.needs_touch(session):
            with writing(self.engine) as connection:
                self.sessions.touch(connection, session)
        return Operator(
            name=owner.name,
            role=owner.role,
            way="oidc" if is_by_issuer(session.credential) else "console",
            credential=session.credential,
            session_digest=session.session_digest,
            form_token=form_token(session_id),
        )

    def owner_of(self, session: Session) -> TokenOwner | None:
        """The name and role of a session by the current settings. None: its credential is no longer valid.

        The role of a session through the issuer does not change until the session ends.
        """
        if not is_by_issuer(session.credential):
            return self.credentials.owner_of(session.credential)
        is_valid = self._credential_prefix and session.credential.startswith(self._credential_prefix)
        return TokenOwner(session.name, session.role) if is_valid else None

    def required(self, role: Role) -> Operator:
        """The signed-in operator, whose role includes ``role``.

        Raises ``SignInNeeded``, ``RoleTooLow`` (audited), or ``Forbidden`` for a form without a valid form token
        (audited).
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

    def refused(self, actor: Actor, subject: str, reason: str) -> None:
        """Writes an audit row for a signed-in operator whose request was refused."""
        self.refusals.record(actor, subject, reason, key=f"refused {actor.way} {actor.name}")

    def audit_hook(self, actor: Actor, action: str, reason: str | None = None) -> AuditHook:
        """A callback that writes an audit row for an action on a run."""
        return audited(self.audit, actor, action, reason)


def _is_same(token: str, expected: str) -> bool:
    return hmac.compare_digest(token.encode("utf-8", "surrogatepass"), expected.encode())


def _netloc(url: str) -> str:
    """Host and port of an untrusted URL; empty if it is malformed."""
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""
