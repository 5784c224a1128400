"""The sign-in, the sign-out, and how pages look."""

from flask import Blueprint, Response, request

from app.audit import Actor
from app.console.console import Console, address, go_to, query, route_of, safe_back, set_look
from app.console.settings import Role
from app.database.engine import writing
from app.edge.request_id import current_request_id

_LONGEST_TOKEN = 4096


def install(blueprint: Blueprint, console: Console) -> None:
    """``/sign-in``, ``/sign-out``, ``/look`` and ``/keys``."""
    gate = console.gate

    @blueprint.get(route_of("sign_in"))
    def sign_in() -> Response:
        given = query("to", "lost")
        if gate.principal() is not None:
            return go_to(safe_back(given["to"]))
        says = "The session has ended, or the browser did not keep its cookie." if given["lost"] else ""
        return console.bare("sign_in.html", to=given["to"], wrong="", says=says, has_tokens=bool(gate.credentials))

    @blueprint.post(route_of("sign_in"))
    def take_token() -> Response:
        to = request.form.get("to", "")
        found = gate.credentials.of_token(request.form.get("token", "")[:_LONGEST_TOKEN])
        where = request.remote_addr or ""
        if found is None:
            seconds = console.parts.failed(where)
            says = f"Too many wrong tokens from this address: try again in {seconds} s." if seconds else _WRONG
            if not seconds:
                # Whoever is slowed down leaves no more rows: nobody fills the log by guessing.
                gate.refused(
                    Actor(name="", way="console", address=where, request_id=current_request_id() or ""),
                    "sign-in",
                    "the token is not accepted",
                )
            status = 429 if seconds else 403
            return console.bare(
                "sign_in.html", to=to, wrong=says, says="", has_tokens=bool(gate.credentials), status=status
            )
        credential, owner = found
        actor = Actor(
            name=owner.name,
            role=owner.role.value,
            way="console",
            address=where,
            request_id=current_request_id() or "",
        )
        with writing(console.parts.engine) as connection:
            # Whatever was shown before is worth nothing any more: nobody can have put it there for this sign-in.
            session_id = gate.sessions.open(
                connection,
                name=owner.name,
                role=owner.role,
                credential=credential,
                address=where,
                browser=request.headers.get("User-Agent", ""),
            )
            gate.audit.note(connection, actor, "signed in")
        response = go_to(safe_back(to))
        gate.let_in(response, session_id)
        return response

    @blueprint.post(route_of("sign_out"))
    def sign_out() -> Response:
        principal = gate.required(Role.VIEWER)
        with writing(console.parts.engine) as connection:
            gate.sessions.end(connection, principal.session_digest)
            gate.audit.note(connection, principal.actor, "signed out")
        response = go_to(address("sign_in"))
        gate.let_out(response)
        return response

    @blueprint.post(route_of("look"))
    def look() -> Response:
        gate.required(Role.VIEWER)
        response = go_to(safe_back(request.form.get("back", "")))
        for name in ("theme", "times", "keys"):
            if name in request.form:
                set_look(response, name, request.form[name], secure=not gate.is_plain)
        return response

    @blueprint.get(route_of("keys"))
    def keys() -> Response:
        gate.required(Role.VIEWER)
        query()
        return console.show("keys.html", current="keys")


_WRONG = "This token is not accepted."
