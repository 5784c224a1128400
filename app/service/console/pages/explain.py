"""Why somebody may open something: the answer, the way to it, the records that led there, and what the backend says."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from flask import Response, request
from sqlalchemy import Connection

from app.access.browse.lists import ListEntry
from app.access.browse.lookup import find, may_be_stored
from app.access.browse.suggestions import suggest
from app.access.decision.decide import Rule
from app.access.decision.explain import explain, record_to_wire
from app.access.decision.view import AccessView
from app.access.origins import origins_of, with_shared_aliases
from app.access.records import Document, Folder, Organization, Record, User
from app.access.search import DEFAULT_LIMIT, search, search_exactly
from app.access.view.loader import load_view
from app.contract.permission_call import EntryError, RequestEntry, parse_entry
from app.foundation.clock import from_epoch_ms
from app.service.console.backend_answer import ASKABLE, Comparison, ask
from app.service.console.console import Console, one_of, query
from app.service.console.formatting import visible
from app.service.console.ladder import make_ladder, passed_over
from app.service.console.ladder_svg import draw
from app.service.console.views import Views
from app.service.provider.answer import PermissionAnswer

_TYPES = ("document", "folder", "organization", "context")
_RESOURCES: dict[str, type[Record]] = {
    "document": Document,
    "folder": Folder,
    "organization": Organization,
    "context": Document,
}
_OFFERED = 10
_FIELDS = ("user", "type", "resource", "organization", "context", "at")
_NAMES = {
    "user": "Enter a user.",
    "resource": "Enter what they want to open.",
    "organization": "Enter the organization that it belongs to.",
}


VIEWS = Views()


@VIEWS.get("explain")
def explain_page(console: Console) -> Response:
    given = query(*_FIELDS, "ask")
    asks = one_of(given.pop("ask"), ("1",), "ask") == "1"
    given["type"] = one_of(given["type"], _TYPES, "type") or "document"
    # Links from other pages fill in what they know; the form sends every field.
    was_sent = "at" in request.args or (given["user"] and (given["resource"] or given["organization"]))
    if not was_sent or not any(given[name] for name in _NAMES):
        return _show(console, given)
    typed, given = given, _with_ids(console, given)
    wrong: dict[str, str] = {}
    now = console.parts.clock()
    at = _moment(given["at"], now, wrong)
    entry = _request(given, wrong)
    question = parse_entry(entry)
    if isinstance(question, EntryError):
        field = _field_of(question.error)
        told = f"{question.error[0].upper()}{question.error[1:]}."
        wrong.update({name: says for name, says in _NAMES.items() if not given[name] and not _is_implied(name, given)})
        if field not in wrong:
            wrong[field] = told
    if wrong or isinstance(question, EntryError):
        return _show(console, given, status=400, wrong=wrong)
    found = _explained(console, question, entry, at, now)
    if asks and not found["never_read"]:
        found["backend"] = _asked(console, question, found)
    found["resolved"] = [(typed[name], name, given[name]) for name in _NAMES if typed[name] != given[name]]
    return _show(console, given, found=found)


def _with_ids(console: Console, given: Mapping[str, str]) -> dict[str, str]:
    """The fields, with the id instead of a name or an address that only one record has; ids come first."""
    ids = dict(given)
    if not may_be_stored(*given.values()):
        return ids
    resource = _RESOURCES[given["type"]]
    with console.reading() as connection:
        for field, of in (("organization", Organization), ("user", User), ("resource", resource)):
            is_within = of.kind in {Document.kind, Folder.kind}
            within = ids["organization"] if is_within else ""
            key = (within, ids[field]) if is_within else (ids[field],)
            if not all(key) or find(connection, of, *key) is not None:
                continue
            found = search_exactly(connection, ids[field], of.kind, within)
            if len(found) == 1:
                ids[field] = found[0].item_id
    return ids


def _is_implied(name: str, given: Mapping[str, str]) -> bool:
    """Whether a field may be empty: an organization that is opened is named once."""
    return (
        given["type"] == "organization"
        and name in {"resource", "organization"}
        and bool(given["resource"] or given["organization"])
    )


def _show(
    console: Console,
    given: Mapping[str, str],
    *,
    status: int = 200,
    wrong: Mapping[str, str] | None = None,
    found: Mapping[str, object] | None = None,
) -> Response:
    return console.show(
        "explain.html", current="explain", status=status, form=given, wrong=wrong or {}, found=found, types=_TYPES
    )


def _explained(
    console: Console, question: RequestEntry, entry: Mapping[str, Any], at: datetime, now: datetime
) -> dict[str, Any]:
    policy = console.parts.policy
    with console.reading() as connection:
        view = load_view(connection, [question], policy=policy, names=True)
        if view.revision == 0:
            return {"never_read": True}
        explanation = with_shared_aliases(connection, question, explain(view, question, at, policy))
        passed = passed_over(view, question, explanation.decision, at)
        origins = origins_of(connection, [*explanation.records, *(record for record, _ in passed)])
        unknown = _unknown(connection, view, question, explanation.decision.rule)
    result = PermissionAnswer([]).add(question, explanation.decision)
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
        "passed": [
            (*_step(record_to_wire(record)), why, [str(one) for one in origins.get(record.key, ())])
            for record, why in passed
        ],
        "unknown": unknown,
        "revision": view.revision,
        "at": at,
        "is_past": at < now,
        "ladder": None if ladder is None else draw(ladder),
        "request": _shown(asked, indent=1),
        "answer": _shown(result, indent=1),
        "curl": _curl(console, asked),
        "may_ask": question.type in ASKABLE and console.parts.ask_backend is not None,
        "backend": None,
    }


def _asked(console: Console, question: RequestEntry, found: Mapping[str, Any]) -> Comparison | None:
    """What the backend says. The transaction is over by now: it may ask this side in turn, and take its time."""
    backend = console.parts.ask_backend
    if backend is None or question.type not in ASKABLE:
        return None
    return ask(backend, question, found["decision"])


def _unknown(
    connection: Connection, view: AccessView, question: RequestEntry, rule: Rule
) -> list[tuple[str, str, bool, list[ListEntry]]]:
    """Field, kind, whether records of that name follow or only similar ones, and these: of each unknown id."""
    unknown = []
    if view.organization(question.organization_id) is None:
        unknown.append(("organization", "organization", question.organization_id))
    if view.user(question.user_id) is None:
        unknown.append(("user", "user", question.user_id))
    kind = "document" if question.type == "context" else question.type
    if rule is Rule.RESOURCE_UNKNOWN and kind != "organization":
        unknown.append(("resource", kind, question.resource_id))
    return [
        (field, kind, *_offered(connection, kind, question.organization_id, wrong)) for field, kind, wrong in unknown
    ]


def _offered(connection: Connection, kind: str, organization_id: str, wrong: str) -> tuple[bool, list[ListEntry]]:
    """Whether several records have this name or address, or begin with it, and these; else those with a similar id."""
    within = "" if kind in {"organization", "user"} else organization_id
    hits = search_exactly(connection, wrong, kind, within) if may_be_stored(wrong) else []
    if not hits and may_be_stored(wrong):
        hits = [hit for hit in search(connection, wrong, kind, DEFAULT_LIMIT) if within in {"", hit.organization_id}]
    if not hits:
        return False, suggest(connection, kind, organization_id, wrong)
    return True, [
        ListEntry(
            kind=kind,
            organization_id=hit.organization_id,
            item_id=hit.item_id,
            name=f"{hit.label}, {hit.detail}" if hit.detail else hit.label,
        )
        for hit in hits[:_OFFERED]
    ]


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
            wrong["context"] = 'Enter the fields as a JSON object, such as {"entityIds": "table-1"}.'
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
        wrong["at"] = "Not a time. Enter one like 2026-11-20T12:00Z."
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
