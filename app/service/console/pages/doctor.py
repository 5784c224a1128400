"""The doctor's page: the findings of the last examination, and a button that starts another."""

from collections import Counter
from typing import Any

from flask import Response, request

from app.foundation.audit import AuditAction
from app.foundation.clock import epoch_ms
from app.service.console.console import Console
from app.service.console.examinations import begin_examination, last_examination, run_examination
from app.service.console.settings import Role
from app.service.console.urls import address, go_to, query
from app.service.console.views import VIEWS

_STATES = ("problem", "warning", "ok")
"""The worst first."""


@VIEWS.get("doctor")
def doctor(console: Console) -> Response:
    query()
    return _page(console)


@VIEWS.post("doctor", Role.ADMIN)
def examine(console: Console) -> Response:
    operator, parts = console.operator, console.parts
    if parts.examine is None:
        return _page(console, is_refused=True)
    examination_id = begin_examination(
        parts.engine,
        parts.clock,
        operator.asked_by,
        lambda connection: console.gate.audit.record(connection, operator.actor, AuditAction.DOCTOR),
    )
    if examination_id is None:
        return _page(console, is_refused=True)
    run_examination(parts.engine, parts.clock, examination_id, parts.examine)
    return go_to(address("doctor"))


def _page(console: Console, *, is_refused: bool = False) -> Response:
    now = console.parts.clock()
    with console.reading() as connection:
        last = last_examination(connection, now)
    numbers = Counter[str]() if last is None else Counter(finding.state for finding in last.findings)
    context: dict[str, Any] = {
        "last": last,
        "is_live": last is not None and last.is_running,
        "took": None if last is None else ((last.finished_at or epoch_ms(now)) - last.started_at) / 1000,
        "counts": {state: numbers[state] for state in _STATES},
        "findings": [] if last is None else sorted(last.findings, key=lambda finding: _STATES.index(finding.state)),
    }
    if request.headers.get("x-fragment") == "1" and last is not None:
        return console.bare("doctor_live.html", ended=not last.is_running, **context)
    can_run = console.parts.examine is not None
    status = 409 if is_refused else 200
    return console.show("doctor.html", is_refused=is_refused, can_run=can_run, status=status, **context)
