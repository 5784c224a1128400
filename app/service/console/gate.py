"""Authenticates and authorizes the requests of the console, and adds security headers to its responses.

A request without a session is redirected to the sign-in. One that changes something needs the form token of its
session. Refusals are audited.
"""

import hmac
from collections.abc import Mapping
from datetime import timedelta
from random import Random

from flask import Blueprint, Response, g, request
from sqlalchemy import Engine
from werkzeug.exceptions import Forbidden

from app.access.index.turns import DatabaseTurns
from app.foundation.audit import Actor, Audit
from app.foundation.clock import Clock
from app.foundation.database.engine import writing
from app.service.console.cookies import Cookie
from app.service.console.credentials import CredentialOwner, Credentials, is_by_issuer, issuer_prefix
from app.service.console.request_checks import FormPolicy, RequestSlots
from app.service.console.sessions import Operator, Session, Sessions, form_token
from app.service.console.settings import ConsoleSettings, Role
from app.service.console.transactions import page_reading
from app.service.refusals import Refusals

_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


class SignInNeeded(Exception):  # noqa: N818 - it is not an error: it redirects to the sign-in
    """The request has no valid session."""


class RoleTooLow(Forbidden):
    """The operator's role does not allow the request."""


class ConsoleGate:
    """Finds the operator of a request, and checks their role."""

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
        """``slots``: the number of requests that this process handles at once. ``turns``: see ``RequestSlots``."""
        self.credentials = credentials
        self.audit = Audit(clock)
        self.refusals = refusals
        self.sessions = Sessions(
            clock,
            random,
            idle_timeout=timedelta(seconds=settings.idle_timeout),
            max_age=timedelta(seconds=settings.session_timeout),
        )
        self.cookie = Cookie("usher", settings)
        """The cookie with the session id."""
        self.slots = RequestSlots(slots, turns)
        self._engine = engine
        self._public_url = settings.public_url
        self._issuer_prefix = issuer_prefix(settings.oidc)

    def install(self, blueprint: Blueprint, upload_limits: Mapping[str, int]) -> None:
        """Registers the checks for every request of the blueprint. ``upload_limits``: see ``FormPolicy``."""
        blueprint.before_request(self.slots.enter)
        blueprint.before_request(FormPolicy(self._public_url, upload_limits).check)
        blueprint.teardown_request(self.slots.leave)
        blueprint.after_request(self._add_security_headers)

    def _add_security_headers(self, response: Response) -> Response:
        headers = response.headers
        headers["Content-Security-Policy"] = _CONTENT_SECURITY_POLICY
        headers["Referrer-Policy"] = "same-origin"
        headers["Cross-Origin-Opener-Policy"] = "same-origin"
        headers["X-Frame-Options"] = "DENY"
        if self._public_url.startswith("https:"):
            headers["Strict-Transport-Security"] = "max-age=31536000"
        return response

    def operator(self) -> Operator | None:
        """The signed-in operator. None: the request has no valid session."""
        if "console_operator" not in g:
            g.console_operator = self._authenticate(self.cookie.value)
        operator: Operator | None = g.console_operator
        return operator

    def _authenticate(self, session_id: str) -> Operator | None:
        """The operator of a session, whose time of the last request is updated."""
        if not session_id:
            return None
        with page_reading(self._engine) as connection:
            session = self.sessions.find(connection, session_id)
        owner = None if session is None else self.owner_of(session)
        if session is None or owner is None:
            return None
        if self.sessions.needs_touch(session):
            with writing(self._engine) as connection:
                self.sessions.touch(connection, session)
        return Operator(
            name=owner.name,
            role=owner.role,
            way="oidc" if is_by_issuer(session.credential) else "console",
            credential=session.credential,
            session_digest=session.session_digest,
            form_token=form_token(session_id),
        )

    def owner_of(self, session: Session) -> CredentialOwner | None:
        """The name and role of a session by the current settings. None: its credential is no longer valid. The role of
        a session through the issuer does not change until the session ends."""
        if not is_by_issuer(session.credential):
            return self.credentials.owner_of(session.credential)
        is_valid = self._issuer_prefix and session.credential.startswith(self._issuer_prefix)
        return CredentialOwner(session.name, session.role) if is_valid else None

    def authorize(self, role: Role) -> None:
        """Raises ``SignInNeeded``, ``RoleTooLow`` if the operator's role does not include ``role``, or ``Forbidden``
        for a form without a valid form token."""
        operator = self.operator()
        if operator is None:
            raise SignInNeeded
        if not operator.may(role):
            self.audit_refusal(operator.actor, request.path, f"needs the role {role}")
            raise RoleTooLow(f"{operator.name} is {operator.role}; this needs the role {role}")
        if request.method == "POST" and not _is_same(request.form.get("formToken", ""), operator.form_token):
            self.audit_refusal(operator.actor, request.path, "the form had no valid token")
            raise Forbidden("the form belongs to another session: reload the page and send it again")

    def audit_refusal(self, actor: Actor, subject: str, reason: str) -> None:
        """Writes an audit row for a signed-in operator whose request was refused."""
        self.refusals.record(actor, subject, reason, key=f"refused {actor.way} {actor.name}")


def _is_same(token: str, expected: str) -> bool:
    return hmac.compare_digest(token.encode("utf-8", "surrogatepass"), expected.encode())
