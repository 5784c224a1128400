"""The doctor's page: the findings of the last examination, and the start of another."""

from collections import Counter
from typing import Any

from flask import Response, request

from app.foundation.clock import epoch_ms
from app.service.console.console import Console, address, go_to, query
from app.service.console.examinations import Examination, Examinations, begun, run_beside
from app.service.console.settings import Role
from app.service.console.views import Views

_BUSY = "An examination is already under way; here it is."
_STATES = ("problem", "warning", "ok")


VIEWS = Views()


@VIEWS.get("doctor")
def doctor(console: Console) -> Response:
    query()
    return _page(console)


@VIEWS.post("doctor", Role.ADMIN)
def examine(console: Console) -> Response:
    operator = console.operator
    look = console.parts.examine
    if look is None:
        says = "The doctor cannot run from here; run usher doctor on the command line."
        return _page(console, says=says, status=409)
    audit, engine = console.gate.audit, console.parts.engine
    examinations = Examinations(console.parts.clock)
    made = begun(
        engine,
        examinations,
        operator.asked_by,
        lambda connection: audit.record(connection, operator.actor, "doctor run"),
    )
    if made is None:
        return _page(console, says=_BUSY, status=409)
    run_beside(engine, examinations, made, look)
    return go_to(address("doctor"))


def _page(console: Console, *, says: str = "", status: int = 200) -> Response:
    with console.reading() as connection:
        last = Examinations(console.parts.clock).last(connection)
    found = Counter(one.state for one in last.findings) if last is not None else Counter[str]()
    context: dict[str, Any] = {
        "last": last,
        "is_live": last is not None and last.is_running,
        "took": None if last is None else _took(last, epoch_ms(console.parts.clock())),
        "counts": {state: found[state] for state in _STATES},
    }
    if request.headers.get("x-fragment") == "1" and last is not None:
        return console.bare("doctor_live.html", ended=not last.is_running, **context)
    can_run = console.parts.examine is not None
    return console.show("doctor.html", current="doctor", says=says, can_run=can_run, status=status, **context)


def _took(last: Examination, now: int) -> float:
    return ((last.finished_at or now) - last.started_at) / 1000
