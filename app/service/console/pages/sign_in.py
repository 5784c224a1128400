"""The sign-in, the sign-out, and how pages look."""

from flask import Response, request

from app.foundation.audit import Actor, Way
from app.foundation.database.engine import writing
from app.http.request_id import current_request_id
from app.service.console.console import Console, address, go_to, query, safe_back, set_look
from app.service.console.sessions import TokenOwner, session_digest
from app.service.console.settings import Role
from app.service.console.views import Views

_LONGEST_TOKEN = 4096
_WRONG = "This token is not accepted."


VIEWS = Views()


@VIEWS.get("sign_in", None)
def sign_in(console: Console) -> Response:
    given = query("to", "lost")
    if console.gate.operator() is not None:
        return go_to(safe_back(given["to"]))
    says = "The session has ended, or the browser did not accept its cookie: sign in." if given["lost"] else ""
    return sign_in_page(console, back=given["to"], says=says)


@VIEWS.post("sign_in", None)
def take_token(console: Console) -> Response:
    gate, back = console.gate, request.form.get("to", "")
    found = gate.credentials.of_token(request.form.get("token", "")[:_LONGEST_TOKEN])
    if found is None:
        seconds = console.parts.failures.record(request.remote_addr or "")
        if seconds:
            says = f"Too many wrong tokens from this address: try again in {seconds} s."
            return sign_in_page(console, back=back, wrong=says, status=429, retry_after=seconds)
        # Throttled callers leave no rows.
        gate.refusals.wrong_token(newcomer("", "console"), "sign-in", "the token is not accepted")
        return sign_in_page(console, back=back, wrong=_WRONG, status=403)
    credential, owner = found
    return open_session(console, owner, credential=credential, way="console", back=back)


@VIEWS.post("sign_out", Role.VIEWER)
def sign_out(console: Console) -> Response:
    gate, operator = console.gate, console.operator
    with writing(console.parts.engine) as connection:
        gate.sessions.end(connection, operator.session_digest)
        gate.audit.record(connection, operator.actor, "signed out")
    response = go_to(address("sign_in"))
    gate.let_out(response)
    return response


@VIEWS.post("look", Role.VIEWER)
def look(console: Console) -> Response:
    response = go_to(safe_back(request.form.get("back", "")))
    for name in ("theme", "times", "keys"):
        if name in request.form:
            set_look(response, name, request.form[name], secure=not console.gate.is_plain)
    return response


@VIEWS.get("keys")
def keys(console: Console) -> Response:
    query()
    return console.show("keys.html", current="keys")


def sign_in_page(
    console: Console, *, back: str, says: str = "", wrong: str = "", status: int = 200, retry_after: int = 0
) -> Response:
    """The sign-in page. ``says``: a notice above the form; ``wrong``: the error of the token; ``retry_after``: seconds
    that the caller has to wait."""
    response = console.bare(
        "sign_in.html",
        to=back,
        wrong=wrong,
        says=says,
        has_tokens=bool(console.gate.credentials),
        issuer_name="" if console.issuer is None else console.issuer.settings.shown_name,
        status=status,
    )
    if retry_after:
        response.headers["Retry-After"] = str(retry_after)
    return response


def newcomer(name: str, way: Way, role: str = "") -> Actor:
    """Somebody who is not signed in yet, as the audit log knows them."""
    return Actor(
        name=name, role=role, way=way, address=request.remote_addr or "", request_id=current_request_id() or ""
    )


def open_session(console: Console, owner: TokenOwner, *, credential: str, way: Way, back: str) -> Response:
    """Lets somebody in, and sends them to the page that they wanted."""
    gate = console.gate
    with writing(console.parts.engine) as connection:
        # The browser's old session ends: its id is replaced, and nobody could sign out of it any more.
        gate.sessions.end(connection, session_digest(gate.shown_session()))
        session_id = gate.sessions.open(
            connection,
            name=owner.name,
            role=owner.role,
            credential=credential,
            address=request.remote_addr or "",
            browser=request.headers.get("User-Agent", ""),
        )
        gate.audit.record(connection, newcomer(owner.name, way, owner.role.value), "signed in")
    response = go_to(safe_back(back))
    gate.let_in(response, session_id)
    return response
