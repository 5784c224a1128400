"""The page of the audit log with its filters, and its export as JSON Lines."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from flask import Response, stream_with_context
from werkzeug.exceptions import BadRequest, NotFound

from app.foundation.audit import audit_page
from app.foundation.audit_tables import AuditRow
from app.foundation.clock import epoch_ms
from app.service.console.console import Console
from app.service.console.formatting import utc_moment
from app.service.console.paging import PAGE_ROWS
from app.service.console.urls import query
from app.service.console.views import VIEWS

_NUMBER = re.compile(r"[0-9]{1,18}")
_RUN = re.compile(r"[0-9]{8}T[0-9]{9}-[0-9a-f]{12}\b")
_LINES_PER_READ = 500
_FILTERS = ("actor", "action", "since", "until")


@VIEWS.get("audit")
def audit(console: Console) -> Response:
    parameters = query(*_FILTERS, "before")
    search = _parse_search(parameters)
    rows = _read_rows(console, search, PAGE_ROWS + 1)
    return console.show(
        "audit.html",
        rows=[(entry, _run_in(entry.subject)) for entry in rows[:PAGE_ROWS]],
        next_before=rows[PAGE_ROWS - 1].audit_id if len(rows) > PAGE_ROWS else None,
        filters={name: parameters[name] for name in _FILTERS},
        errors=search.errors,
        status=400 if search.errors else 200,
    )


@VIEWS.get("audit_lines")
def audit_lines(console: Console) -> Response:
    search = _parse_search({**query(*_FILTERS), "before": ""})
    if search.errors:
        raise BadRequest("; ".join(f"{name}: {error}" for name, error in search.errors.items()))

    def lines() -> Iterator[str]:
        # Each part is read in a transaction of its own, so that a slow client keeps none open.
        before: int | None = None
        while rows := _read_rows(console, replace(search, before=before), _LINES_PER_READ):
            yield "".join(json.dumps(entry.to_wire(), ensure_ascii=False) + "\n" for entry in rows)
            before = rows[-1].audit_id

    response = Response(stream_with_context(lines()), content_type="application/jsonl; charset=utf-8")
    response.headers["Content-Disposition"] = "attachment; filename=usher-audit.jsonl"
    return response


def _run_in(subject: str) -> str:
    """The id of the run that a row is about. It is empty if the row is about something else."""
    match = _RUN.match(subject)
    return match[0] if match else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The filters of rows, and the position of the page."""

    actor: str
    action: str
    since: int | None
    """Epoch milliseconds, as ``until``."""
    until: int | None
    before: int | None
    """The rows with smaller numbers are on the page."""
    errors: Mapping[str, str]
    """Filter → the error in it."""


def _parse_search(parameters: Mapping[str, str]) -> _Search:
    """Raises ``NotFound`` for an invalid position."""
    before = parameters["before"]
    if before and not _NUMBER.fullmatch(before):
        raise NotFound("This is not a position in the audit log; start from its first page")
    moments: dict[str, int | None] = {"since": None, "until": None}
    errors = {}
    for name in moments:
        try:
            moments[name] = _parse_moment(parameters[name], is_end=name == "until")
        except (ValueError, OverflowError):
            errors[name] = "Enter a day like 2026-11-21, or a time like 2026-11-21 16:00 (UTC)."
    return _Search(
        actor=parameters["actor"],
        action=parameters["action"],
        since=moments["since"],
        until=moments["until"],
        before=int(before) if before else None,
        errors=errors,
    )


def _parse_moment(text: str, *, is_end: bool) -> int | None:
    """Epoch milliseconds. A day without a time is its beginning, or with ``is_end`` its end. Raises ``ValueError``."""
    if not text:
        return None
    moment = utc_moment(text.strip())
    if is_end and len(text.strip()) == len("2026-11-21"):
        return epoch_ms(moment + timedelta(days=1)) - 1
    return epoch_ms(moment)


def _read_rows(console: Console, search: _Search, limit: int) -> list[AuditRow]:
    if search.errors or "\0" in search.actor + search.action:
        return []
    with console.reading() as connection:
        return audit_page(
            connection,
            actor=search.actor or None,
            action=search.action or None,
            since=search.since,
            until=search.until,
            before=search.before,
            limit=limit,
        )
