"""The audit log: fifty rows a page, and all rows as JSON Lines."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from flask import Response, stream_with_context
from werkzeug.exceptions import BadRequest, NotFound

from app.foundation.audit import audit_page
from app.foundation.audit_tables import AuditRow
from app.foundation.clock import epoch_ms
from app.service.console.console import Console, query
from app.service.console.paging import PAGE_ROWS
from app.service.console.views import VIEWS

_NUMBER = re.compile(r"[0-9]{1,18}")
_RUN = re.compile(r"[0-9]{8}T[0-9]{9}-[0-9a-f]{12}\b")
_LINES_PER_READ = 500
_FILTERS = ("actor", "action", "since", "until")


@VIEWS.get("audit")
def audit(console: Console) -> Response:
    parameters = query(*_FILTERS, "before")
    wrong: dict[str, str] = {}
    page = _page(console, parameters, PAGE_ROWS + 1, wrong)
    return console.show(
        "audit.html",
        rows=[(entry, _run_in(entry.subject)) for entry in page[:PAGE_ROWS]],
        next_before=page[PAGE_ROWS - 1].audit_id if len(page) > PAGE_ROWS else None,
        filters={name: parameters[name] for name in _FILTERS},
        wrong=wrong,
        status=400 if wrong else 200,
    )


@VIEWS.get("audit_lines")
def audit_lines(console: Console) -> Response:
    parameters = {**query(*_FILTERS), "before": ""}
    wrong: dict[str, str] = {}
    _page(console, parameters, 1, wrong)
    if wrong:
        raise BadRequest("; ".join(f"{name}: {problem}" for name, problem in wrong.items()))

    def lines() -> Iterator[str]:
        # Each part is read in a transaction of its own, so that a slow client keeps none open.
        before = ""
        while page := _page(console, {**parameters, "before": before}, _LINES_PER_READ, {}):
            yield "".join(json.dumps(entry.to_wire(), ensure_ascii=False) + "\n" for entry in page)
            before = str(page[-1].audit_id)

    response = Response(stream_with_context(lines()), content_type="application/jsonl; charset=utf-8")
    response.headers["Content-Disposition"] = "attachment; filename=usher-audit.jsonl"
    return response


def _run_in(subject: str) -> str:
    """The id of the run that a row is about; empty: none."""
    match = _RUN.match(subject)
    return match[0] if match else ""


def _page(console: Console, parameters: dict[str, str], limit: int, wrong: dict[str, str]) -> list[AuditRow]:
    before = parameters["before"]
    if before and not _NUMBER.fullmatch(before):
        raise NotFound("This is not a position in the audit log; start from its first page")
    since, until = (_moment(parameters[name], name, wrong) for name in ("since", "until"))
    if wrong or any("\0" in parameters[name] for name in ("actor", "action")):
        return []
    with console.reading() as connection:
        return audit_page(
            connection,
            actor=parameters["actor"] or None,
            action=parameters["action"] or None,
            since=since,
            until=until,
            before=int(before) if before else None,
            limit=limit,
        )


def _moment(text: str, name: str, wrong: dict[str, str]) -> int | None:
    """Epoch milliseconds. A day without a time is its beginning, or for ``until`` its end."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        ends = name == "until" and len(text.strip()) == len("2026-11-21")
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return epoch_ms(moment + timedelta(days=1)) - 1 if ends else epoch_ms(moment)
    except (ValueError, OverflowError):
        wrong[name] = "Enter a day like 2026-11-21, or a time like 2026-11-21 16:00 (UTC)."
        return None
