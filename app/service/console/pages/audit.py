"""The page of the audit log with its filters, and its export as JSON Lines."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import Any, NamedTuple

from flask import Response, stream_with_context
from werkzeug.exceptions import BadRequest, NotFound

from app.foundation.audit import AuditAction, audit_page
from app.foundation.audit_tables import AuditRow
from app.foundation.clock import epoch_ms
from app.service.console.console import Console
from app.service.console.formatting import utc_moment
from app.service.console.names import mentions_of_runs, read_names
from app.service.console.paging import PAGE_ROWS
from app.service.console.urls import query
from app.service.console.views import VIEWS
from app.sync.runs.history import find_runs

_NUMBER = re.compile(r"[0-9]{1,18}")
_RUN = re.compile(r"[0-9]{8}T[0-9]{9}-[0-9a-f]{12}\b")
_LINES_PER_READ = 500
_FILTERS = ("actor", "action", "since", "until")
_REQUESTS = {AuditAction.SYNC, AuditAction.PREVIEW}
"""The actions whose runs have a scope."""
_SIGN_IN = "sign-in"
"""The subject of refused sign-ins."""


@VIEWS.get("audit")
def audit(console: Console) -> Response:
    parameters = query(*_FILTERS, "zone", "before")
    before = parameters["before"]
    if before and not _NUMBER.fullmatch(before):
        raise NotFound("This is not a position in the audit log; start from its first page")
    filters, errors = _parse_filters(parameters)
    rows = [] if errors else _read_rows(console, filters, int(before) if before else None, PAGE_ROWS + 1)
    shown = [_show_row(entry) for entry in rows[:PAGE_ROWS]]
    with console.reading() as connection:
        requested = find_runs(connection, [row.run_id for row in shown if row.action in _REQUESTS])
        names = read_names(connection, mentions_of_runs(requested.values()))
    return console.show(
        "audit.html",
        rows=shown,
        requested=requested,
        names=names,
        next_before=rows[PAGE_ROWS - 1].audit_id if len(rows) > PAGE_ROWS else None,
        filters={name: parameters[name] for name in _FILTERS},
        zone=parameters["zone"],
        errors=errors,
        status=400 if errors else 200,
    )


@VIEWS.get("audit_lines")
def audit_lines(console: Console) -> Response:
    filters, errors = _parse_filters(query(*_FILTERS, "zone"))
    if errors:
        raise BadRequest("; ".join(f"{name}: {error}" for name, error in errors.items()))

    def lines() -> Iterator[str]:
        # Each part is read in a transaction of its own, so that a slow client keeps none open.
        before: int | None = None
        while rows := _read_rows(console, filters, before, _LINES_PER_READ):
            yield "".join(json.dumps(entry.to_wire(), ensure_ascii=False) + "\n" for entry in rows)
            before = rows[-1].audit_id

    response = Response(stream_with_context(lines()), content_type="application/jsonl; charset=utf-8")
    response.headers["Content-Disposition"] = "attachment; filename=usher-audit.jsonl"
    return response


class _ShownRow(NamedTuple):
    entry: AuditRow
    is_refused: bool
    action: str
    """The action, also of a refused one. ``refused``: the row has only the path of the request."""
    run_id: str
    """The run that the row is about. It is empty if the row is about something else."""
    subject: str
    """What follows the run, or the subject."""


def _show_row(entry: AuditRow) -> _ShownRow:
    action, subject = entry.action, entry.subject
    is_refused = action == AuditAction.REFUSE
    if is_refused:
        refused, _, rest = subject.partition(": ")
        if refused == _SIGN_IN or refused in set(AuditAction):
            action, subject = (AuditAction.SIGN_IN if refused == _SIGN_IN else refused), rest
    match = _RUN.match(subject)
    run_id = match[0] if match else ""
    return _ShownRow(entry, is_refused, action, run_id, subject[len(run_id) :])


def _parse_filters(parameters: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The filters as ``audit_page`` takes them, and the errors in them."""
    filters: dict[str, Any] = {name: parameters[name] or None for name in ("actor", "action")}
    errors = {}
    for name in ("since", "until"):
        try:
            filters[name] = _parse_moment(parameters[name], parameters["zone"], is_end=name == "until")
        except (ValueError, OverflowError):
            errors[name] = "Enter a day like 2026-11-21, or a time like 2026-11-21 16:00."
    return filters, errors


def _parse_moment(text: str, zone: str, *, is_end: bool) -> int | None:
    """Epoch milliseconds. A day without a time is its beginning, or with ``is_end`` its end. Raises as
    ``utc_moment``."""
    if not text:
        return None
    if is_end and len(text.strip()) == len("2026-11-21"):
        next_day = date.fromisoformat(text.strip()) + timedelta(days=1)
        return epoch_ms(utc_moment(next_day.isoformat(), zone)) - 1
    return epoch_ms(utc_moment(text.strip(), zone))


def _read_rows(console: Console, filters: Mapping[str, Any], before: int | None, limit: int) -> list[AuditRow]:
    if "\0" in f"{filters['actor']}{filters['action']}":
        return []
    with console.reading() as connection:
        return audit_page(connection, **filters, before=before, limit=limit)
