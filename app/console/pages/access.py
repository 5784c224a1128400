"""Why somebody may open something."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, Response, request

from app.access.explain import explain
from app.clock import from_epoch_ms
from app.console.console import Console, one_of, query, route_of
from app.console.frame.words import visible
from app.console.ladder import draw, make_ladder
from app.console.settings import Role
from app.contract.permission_call import Question, QuestionError, parse_question
from app.provider.answer import PermissionAnswer

_TYPES = ("document", "folder", "organization", "context")
_FIELDS = ("user", "type", "resource", "organization", "context", "at")


def install(blueprint: Blueprint, console: Console) -> None:
    """``/explain``."""

    @blueprint.get(route_of("explain"))
    @console.gate.page(Role.VIEWER)
    def explain_page() -> Response:
        given = query(*_FIELDS)
        given["type"] = one_of(given["type"], _TYPES, "type") or "document"
        if not given["user"] and not given["resource"]:
            return console.show("explain.html", current="explain", form=given, wrong={}, found=None, types=_TYPES)
        wrong: dict[str, str] = {}
        now = console.parts.clock()
        at = _moment(given["at"], now, wrong)
        entry = _request(given, wrong)
        question = parse_question(entry)
        if isinstance(question, QuestionError):
            wrong.setdefault(_field_of(question.error), f"{question.error[0].upper()}{question.error[1:]}.")
        if wrong:
            return console.show(
                "explain.html", current="explain", form=given, wrong=wrong, found=None, types=_TYPES, status=400
            )
        assert isinstance(question, Question)  # noqa: S101 - the other is wrong
        return console.show(
            "explain.html",
            current="explain",
            form=given,
            wrong={},
            found=_explained(console, question, entry, at, now),
            types=_TYPES,
        )


def _explained(
    console: Console, question: Question, entry: Mapping[str, Any], at: datetime, now: datetime
) -> dict[str, object]:
    policy = console.parts.policy
    view = console.parts.load_view([question])
    if view.revision == 0:
        return {"never_read": True}
    explanation = explain(view, question, at, policy)
    origins = console.parts.load_origins(explanation.records)
    answer = PermissionAnswer([])
    result = answer.add(question, explanation.decision)
    ladder = make_ladder(view, question, explanation.decision, explanation.reason, at)
    _, _, reason = explanation.reason.partition(": ")
    asked = {"data": {"requests": [entry]}}
    return {
        "never_read": False,
        "decision": explanation.decision,
        "reason": reason,
        "steps": [
            (*_step(shown), [str(one) for one in origins.get(record.key, ())])
            for shown, record in zip(explanation.path, explanation.records, strict=True)
        ],
        "revision": view.revision,
        "at": at,
        "is_past": at < now,
        "ladder": None if ladder is None or not ladder.rungs else draw(ladder),
        "request": _shown(asked, indent=1),
        "answer": _shown(result, indent=1),
        "curl": _curl(console, asked),
    }


def _step(record: Mapping[str, object]) -> tuple[str, list[tuple[str, str]]]:
    """The record's kind, and its fields as text; milliseconds since the epoch as a time."""
    fields = []
    for name, value in record.items():
        if name in {"kind", "organizationId"}:
            continue
        if name.endswith("At") and isinstance(value, int):
            shown = f"{from_epoch_ms(value):%Y-%m-%d %H:%M:%S} UTC"
        else:
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        fields.append((name, visible(shown)))
    return str(record["kind"]), fields


def _request(given: Mapping[str, str], wrong: dict[str, str]) -> dict[str, Any]:
    """The entry of a permission call that asks this."""
    resource: dict[str, Any] = {"type": given["type"], "id": given["resource"]}
    if given["type"] == "organization":
        resource["id"] = given["resource"] or given["organization"]
        resource["organizationId"] = resource["id"]
    else:
        resource["organizationId"] = given["organization"]
    if given["type"] == "context":
        try:
            access = json.loads(given["context"] or "{}")
        except (ValueError, RecursionError):
            access = None
        if not isinstance(access, dict):
            wrong["context"] = 'Write the fields as a JSON object, as {"entityIds": "table-1"}.'
        resource["context"] = {"access": access or {}}
    return {"userId": given["user"], "resource": resource}


def _field_of(problem: str) -> str:
    for part, field in (
        ("userId", "user"),
        ("organizationId", "organization"),
        ("context", "context"),
        ("type", "type"),
    ):
        if part in problem:
            return field
    return "resource"


def _moment(text: str, now: datetime, wrong: dict[str, str]) -> datetime:
    """``now``, or the moment that was written; in UTC unless it says otherwise."""
    if not text or text == "now":
        return now
    try:
        moment = datetime.fromisoformat(text.strip().replace(" UTC", "+00:00"))
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        wrong["at"] = "Write a time as 2026-11-21 16:00 (UTC), or leave it empty for now."
        return now


def _curl(console: Console, asked: Mapping[str, object]) -> str:
    body = _shown(asked).replace("'", "'\\''")
    base = console.parts.settings.public_url or request.host_url.rstrip("/")
    return (
        f"curl {base}{console.parts.provider_path} -H 'Content-Type: application/json'"
        f" -H \"Authorization: Bearer $TOKEN\" -d '{body}'"
    )


def _shown(value: object, indent: int | None = None) -> str:
    """JSON that may be copied: what cannot be seen, or turns its surroundings round, is escaped."""
    shown = json.dumps(value, indent=indent, ensure_ascii=False)
    return shown if shown.replace("\n", "").isprintable() else json.dumps(value, indent=indent)
