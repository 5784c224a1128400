"""The page of all settings with their origins, and the page of sessions, which operators can end."""

import re
from itertools import groupby

from flask import Response, request
from werkzeug.exceptions import Forbidden, NotFound

from app.foundation.audit import AuditAction, subject_of_refused
from app.foundation.database.engine import writing
from app.service.console.console import Console
from app.service.console.credentials import is_by_issuer
from app.service.console.sessions import Operator
from app.service.console.settings import Role
from app.service.console.urls import address, go_to, one_of, query
from app.service.console.views import VIEWS

_DEFAULT = "default"
"""The origin of settings that were not set."""
_NUMBER = re.compile(r"[0-9.]+")
_SECONDS = "full_every grace jitter max_age max_staleness missed_after poll provider_deadline provider_pause push_delay"
_UNITS = {
    **dict.fromkeys([*_SECONDS.split(), "decision_ttl", "worker_after"], "s"),
    **dict.fromkeys(("keep_audit_days", "keep_runs"), "days"),
    **dict.fromkeys(("delete_percent", "percent"), "%"),
    "max_body_bytes": "bytes",
}
"""The last part of a key → its unit. Those that end with ``timeout`` are in seconds."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


@VIEWS.get("settings")
def settings(console: Console) -> Response:
    parameters = query("q", "all")
    text = parameters["q"]
    # A search finds defaults as well.
    only_changed = not (one_of(parameters["all"], ("1",), "all") or text)
    rows = console.parts.settings_rows()
    matches = [
        row for row in rows if text.casefold() in "\n".join(row).casefold() and (row[2] != _DEFAULT or not only_changed)
    ]
    return console.show(
        "settings.html",
        groups=[(section, list(of_section)) for section, of_section in groupby(matches, _section)],
        unit_of=_unit,
        number=len(rows),
        changed=sum(origin != _DEFAULT for _, _, origin in rows),
        text=text,
        only_changed=only_changed,
    )


def _unit(key: str, value: str) -> str:
    """The unit of a number. It is empty if it has none, or an unknown one."""
    name = key.rpartition(".")[2]
    return _UNITS.get(name, "s" if name.endswith("timeout") else "") if _NUMBER.fullmatch(value) else ""


def _section(row: tuple[str, str, str]) -> str:
    """The section of a setting, as in its file. It is empty for a setting outside of sections."""
    section, dot, _ = row[0].partition(".")
    return section.partition("[")[0] if dot else ""


@VIEWS.get("sessions")
def sessions(console: Console) -> Response:
    query()
    operator = console.operator
    with console.reading() as connection:
        sessions = console.gate.sessions.list_all(connection)
    rows = [
        session
        for session in sessions
        if console.gate.owner_of(session) is not None
        and (operator.may(Role.ADMIN) or session.credential == operator.credential)
    ]
    return console.show("sessions.html", rows=rows, own=operator.session_digest, by_issuer=is_by_issuer)


@VIEWS.post("end_session", Role.VIEWER)
def end_session(console: Console) -> Response:
    operator = console.operator
    digest = request.form.get("session", "")
    audit = console.gate.audit
    if digest == "all":
        if not operator.may(Role.ADMIN):
            raise _too_low(console, operator, "all sessions")
        with writing(console.parts.engine) as connection:
            ended = console.gate.sessions.end_others(connection, operator.session_digest)
            audit.record(connection, operator.actor, AuditAction.END_SESSIONS, subject=f"{ended} others")
        return go_to(address("sessions"))
    with console.reading() as connection:
        sessions = {session.session_digest: session for session in console.gate.sessions.list_all(connection)}
    session = sessions.get(digest) if _DIGEST.fullmatch(digest) else None
    if session is None:
        raise NotFound("That session has ended already")
    if session.credential != operator.credential and not operator.may(Role.ADMIN):
        raise _too_low(console, operator, "the session of another operator")
    with writing(console.parts.engine) as connection:
        console.gate.sessions.end(connection, digest)
        audit.record(connection, operator.actor, AuditAction.END_SESSION, subject=session.name)
    return go_to(address("sessions"))


def _too_low(console: Console, operator: Operator, sessions: str) -> Forbidden:
    """The error for an operator who may not end these sessions. The refusal is audited."""
    console.gate.audit_refusal(
        operator.actor, subject_of_refused(AuditAction.END_SESSION, sessions), f"needs the role {Role.ADMIN}"
    )
    return Forbidden(f"ending {sessions} needs the role admin")
