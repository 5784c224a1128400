"""The settings in force, the sessions, and the audit log."""

import json
import re
from collections.abc import Iterator

from flask import Blueprint, Response, request, stream_with_context
from werkzeug.exceptions import Forbidden, NotFound

from app.audit import AuditEntry, audit_page
from app.clock import from_epoch_ms
from app.console.console import PAGE_ROWS, Console, address, go_to, query, route_of
from app.console.settings import Role
from app.database.engine import writing

_NUMBER = re.compile(r"[0-9]{1,18}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LINES_AT_A_TIME = 500


def install(blueprint: Blueprint, console: Console) -> None:
    """``/settings``, ``/sessions``, ``/end-session`` and ``/audit``."""

    @blueprint.get(route_of("settings"))
    @console.gate.page(Role.VIEWER)
    def settings() -> Response:
        query()
        return console.show("settings.html", current="settings", rows=console.parts.settings_rows())

    @blueprint.get(route_of("sessions"))
    @console.gate.page(Role.VIEWER)
    def sessions() -> Response:
        query()
        principal = console.gate.required(Role.VIEWER)
        with console.reading() as connection:
            found = console.gate.sessions.listed(connection)
        rows = [
            (session, from_epoch_ms(session.created_at), from_epoch_ms(session.seen_at))
            for session in found
            if console.gate.owner_of(session) is not None
            and (principal.may(Role.ADMIN) or session.credential == principal.credential)
        ]
        return console.show("sessions.html", current="sessions", rows=rows, own=principal.session_digest)

    @blueprint.post(route_of("end_session"))
    def end_session() -> Response:
        principal = console.gate.required(Role.VIEWER)
        which = request.form.get("session", "")
        audit = console.gate.audit
        with writing(console.parts.engine) as connection:
            found = {one.session_digest: one for one in console.gate.sessions.listed(connection)}
            if which == "all":
                if not principal.may(Role.ADMIN):
                    raise Forbidden("to end everybody's sessions needs the role admin")
                ended = console.gate.sessions.end_all(connection, but=principal.session_digest)
                audit.note(connection, principal.actor, "sessions ended", subject=f"{ended} others")
                return go_to(address("sessions"))
            session = found.get(which) if _DIGEST.fullmatch(which) else None
            if session is None:
                raise NotFound
            if session.credential != principal.credential and not principal.may(Role.ADMIN):
                raise Forbidden("to end somebody else's session needs the role admin")
            console.gate.sessions.end(connection, which)
            audit.note(connection, principal.actor, "session ended", subject=session.name)
        return go_to(address("sessions"))

    @blueprint.get(route_of("audit"))
    @console.gate.page(Role.VIEWER)
    def audit() -> Response:
        given = query("actor", "action", "before")
        page = _page(console, given, PAGE_ROWS + 1)
        return console.show(
            "audit.html",
            current="audit",
            rows=[(entry, from_epoch_ms(entry.at)) for entry in page[:PAGE_ROWS]],
            next_before=page[PAGE_ROWS - 1].audit_id if len(page) > PAGE_ROWS else None,
            filters=given,
        )

    @blueprint.get(route_of("audit_lines"))
    @console.gate.page(Role.VIEWER)
    def audit_lines() -> Response:
        given = {**query("actor", "action"), "before": ""}

        def lines() -> Iterator[str]:
            # A page at a time, each in a transaction of its own: who reads slowly holds none open.
            before = ""
            while page := _page(console, {**given, "before": before}, _LINES_AT_A_TIME):
                yield "".join(json.dumps(entry.to_wire(), ensure_ascii=False) + "\n" for entry in page)
                before = str(page[-1].audit_id)

        response = Response(stream_with_context(lines()), content_type="application/jsonl; charset=utf-8")
        response.headers["Content-Disposition"] = "attachment; filename=usher-audit.jsonl"
        return response


def _page(console: Console, given: dict[str, str], limit: int) -> list[AuditEntry]:
    before = given["before"]
    if before and not _NUMBER.fullmatch(before):
        raise NotFound
    if any("\0" in given[name] for name in ("actor", "action")):
        return []
    with console.reading() as connection:
        return audit_page(
            connection,
            actor=given["actor"] or None,
            action=given["action"] or None,
            before=int(before) if before else None,
            limit=limit,
        )
