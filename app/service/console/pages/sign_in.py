"""The sign-in by token or link, what it shares with that through an issuer, and the sign-out."""

from flask import Response, request

from app.foundation.audit import AuditAction, Way
from app.foundation.database.engine import writing
from app.service.console.console import Console
from app.service.console.credentials import CredentialOwner
from app.service.console.sessions import LINK_PREFIX, session_digest
from app.service.console.settings import Role
from app.service.console.urls import address, go_to, query, safe_back
from app.service.console.views import VIEWS
from app.service.refusals import request_actor

_MAX_TOKEN = 4096


@VIEWS.get("sign_in", None)
def sign_in(console: Console) -> Response:
    parameters = query("to", "lost")
    if console.gate.operator() is not None:
        return go_to(safe_back(parameters["to"]))
    notice = "The session has ended, or the browser did not accept its cookie." if parameters["lost"] else ""
    return sign_in_page(console, back=parameters["to"], notice=notice)


@VIEWS.post("sign_in", None)
def sign_in_by_token(console: Console) -> Response:
    gate, back = console.gate, request.form.get("to", "")
    token = request.form.get("token", "")[:_MAX_TOKEN]
    # A configured token may begin with the prefix of links, too.
    match = gate.credentials.find(token)
    is_link = match is None and token.startswith(LINK_PREFIX)
    if is_link:
        match = _redeem(console, token)
    if match is None:
        seconds = console.parts.failures.record(request.remote_addr or "")
        if seconds:
            error = f"Too many wrong tokens from this address: try again in {seconds} s."
            return sign_in_page(console, back=back, error=error, status=429, retry_after=seconds)
        # Throttled callers get no audit row. Otherwise they could fill the log.
        gate.refusals.record_wrong_token(request_actor("", "console"), "sign-in", "the token is not accepted")
        return sign_in_page(console, back=back, error="This token is not accepted.", status=403)
    credential, owner = match
    reason = "a sign-in link" if is_link else ""
    return open_session(console, owner, credential=credential, way="console", back=back, reason=reason)


def _redeem(console: Console, token: str) -> tuple[str, CredentialOwner] | None:
    """The credential of a sign-in link, which is used up, and its owner. None: the link is not valid."""
    sessions = console.gate.sessions
    # A guessed token must not cost a write.
    with console.reading() as connection:
        if sessions.find(connection, token.removeprefix(LINK_PREFIX)) is None:
            return None
    with writing(console.parts.engine) as connection:
        credential = sessions.redeem_link(connection, token)
    owner = None if credential is None else console.gate.credentials.owner_of(credential)
    return None if credential is None or owner is None else (credential, owner)


@VIEWS.post("sign_out", Role.VIEWER)
def sign_out(console: Console) -> Response:
    gate, operator = console.gate, console.operator
    with writing(console.parts.engine) as connection:
        gate.sessions.end(connection, operator.session_digest)
        gate.audit.record(connection, operator.actor, AuditAction.SIGN_OUT)
    response = go_to(address("sign_in"))
    gate.cookie.delete(response)
    return response


def sign_in_page(
    console: Console, *, back: str, notice: str = "", error: str = "", status: int = 200, retry_after: int = 0
) -> Response:
    """The sign-in page, with a notice above it and an error of the token. ``back``: the page to open after it."""
    response = console.bare(
        "sign_in.html",
        back=back,
        error=error,
        notice=notice,
        has_tokens=bool(console.gate.credentials),
        issuer_name="" if console.issuer is None else console.issuer.settings.label,
        status=status,
    )
    if retry_after:
        response.headers["Retry-After"] = str(retry_after)
    return response


def open_session(
    console: Console, owner: CredentialOwner, *, credential: str, way: Way, back: str, reason: str = ""
) -> Response:
    """Opens a session, and redirects to the page that the caller requested. ``reason`` is for the audit log."""
    gate = console.gate
    with writing(console.parts.engine) as connection:
        # The new cookie replaces the one of the browser's previous session. Without it, no one can end that session.
        gate.sessions.end(connection, session_digest(gate.cookie.value))
        session_id = gate.sessions.open(
            connection,
            name=owner.name,
            role=owner.role,
            credential=credential,
            address=request.remote_addr or "",
            browser=request.headers.get("User-Agent", ""),
        )
        gate.audit.record(
            connection, request_actor(owner.name, way, owner.role.value), AuditAction.SIGN_IN, reason=reason
        )
    response = go_to(safe_back(back))
    gate.cookie.set(response, session_id)
    return response
