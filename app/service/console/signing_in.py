"""What both ways to sign in share: the sign-in page, and the start of a session."""

from flask import Response, request

from app.foundation.audit import Way
from app.foundation.database.engine import writing
from app.service.console.console import Console
from app.service.console.credentials import CredentialOwner
from app.service.console.sessions import session_digest
from app.service.console.urls import go_to, safe_back
from app.service.refusals import request_actor


def sign_in_page(
    console: Console, *, back: str, notice: str = "", error: str = "", status: int = 200, retry_after: int = 0
) -> Response:
    """The sign-in page. ``notice`` is shown above the form, and ``error`` as the error of the token field.

    ``back`` is the page to open after the sign-in. ``retry_after`` is in seconds.
    """
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
        gate.audit.record(connection, request_actor(owner.name, way, owner.role.value), "signed in", reason=reason)
    response = go_to(safe_back(back))
    gate.cookie.set(response, session_id)
    return response
