"""Explains a permission decision: the path to it, its records, and on request the backend's own answer."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from flask import Response, request
from markupsafe import Markup
from sqlalchemy import Connection

from app.access.browse.lists import ListEntry
from app.access.browse.lookup import find, find_by_id
from app.access.browse.suggestions import suggest
from app.access.decision.decide import Rule
from app.access.decision.explain import Explanation, explain, reason_of, record_to_wire
from app.access.decision.view import AccessView
from app.access.origins import origins_of, with_shared_aliases
from app.access.records import Document, Folder, Organization, Record, User
from app.access.search import DEFAULT_LIMIT, search, search_exactly
from app.access.sql_view import SqlView
from app.contract.permission_call import MalformedQuestion, Question, parse_question
from app.foundation.clock import from_epoch_ms
from app.foundation.ids import may_be_stored
from app.service.console.backend_answer import SUPPORTED_TYPES, compare
from app.service.console.console import Console, one_of, query
from app.service.console.ladder import make_ladder, unused_records
from app.service.console.names import MENTION, Field, Mention, RecordNames, field_of, read_names, with_mentions
from app.service.console.views import VIEWS
from app.service.provider.answer import PermissionAnswer

_TYPES = ("document", "folder", "organization", "context")
_RESOURCES: dict[str, type[Record]] = {
    "document": Document,
    "folder": Folder,
    "organization": Organization,
    "context": Document,
}
_MAX_SUGGESTIONS = 10
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT[\d:]+Z)")
"""A time in the sentence of an explanation."""
_FIELDS = ("user", "type", "resource", "organization", "context", "at")
_REQUIRED = {
    "user": "Enter a user.",
    "resource": "Enter the resource that they want to open.",
    "organization": "Enter the resource's organization.",
}
"""Required field → the message if it is empty."""


@VIEWS.get("explain")
def explain_page(console: Console) -> Response:
    form = query(*_FIELDS, "ask")
    asks_backend = one_of(form.pop("ask"), ("1",), "ask") == "1"
    form["type"] = one_of(form["type"], _TYPES, "type") or "document"
    # Links from other pages contain some fields; the form always sends all of them.
    was_sent = "at" in request.args or (form["user"] and (form["resource"] or form["organization"]))
    if not was_sent or not any(form[name] for name in _REQUIRED):
        return _show(console, form)
    typed, form = form, _resolve_names(console, form)
    wrong: dict[str, str] = {}
    now = console.parts.clock()
    at = _moment(form["at"], now, wrong)
    wire = _request_wire(form, wrong)
    question = parse_question(wire)
    if isinstance(question, MalformedQuestion):
        wrong.update({name: text for name, text in _REQUIRED.items() if not form[name] and not _is_implied(name, form)})
        wrong.setdefault(_field_of(question.error), f"{question.error[0].upper()}{question.error[1:]}.")
    if wrong or isinstance(question, MalformedQuestion):
        return _show(console, form, status=400, wrong=wrong)
    found = _explain(console, question, wire, at, now)
    backend = console.parts.ask_backend
    if asks_backend and found.get("can_ask") and backend is not None:
        # The transaction has ended: the backend may take its time, and may call the permission provider.
        found["comparison"] = compare(backend, question, found["decision"])
    found["resolved"] = [(typed[name], name, form[name]) for name in _REQUIRED if typed[name] != form[name]]
    return _show(console, form, found=found)


def _resolve_names(console: Console, form: Mapping[str, str]) -> dict[str, str]:
    """The form with ids instead of names and addresses that only one record has. Existing ids take precedence."""
    ids = dict(form)
    if not may_be_stored(*form.values()):
        return ids
    with console.reading() as connection:
        if not ids["organization"] and ids["resource"] and form["type"] != "organization":
            _resolve_organization(connection, ids, _RESOURCES[form["type"]])
        for field, record in (
            ("organization", Organization),
            ("user", User),
            ("resource", _RESOURCES[form["type"]]),
        ):
            is_within = record.kind in {Document.kind, Folder.kind}
            within = ids["organization"] if is_within else ""
            key = (within, ids[field]) if is_within else (ids[field],)
            if not all(key) or find(connection, record, *key) is not None:
                continue
            matches = search_exactly(connection, ids[field], record.kind, within)
            if len(matches) == 1:
                ids[field] = matches[0].item_id
    return ids


def _resolve_organization(connection: Connection, ids: dict[str, str], record: type[Record]) -> None:
    """Adds the organization if there is one resource with this id, or else with this name."""
    found: list[tuple[str, ...]] = list(find_by_id(connection, record, ids["resource"], limit=2))
    if not found:
        found = [(hit.organization_id, hit.item_id) for hit in search_exactly(connection, ids["resource"], record.kind)]
    if len(found) == 1:
        ids["organization"], ids["resource"] = found[0]


def _is_implied(name: str, form: Mapping[str, str]) -> bool:
    """Whether a field may be empty: if the resource is an organization, one of two fields is enough."""
    return (
        form["type"] == "organization"
        and name in {"resource", "organization"}
        and bool(form["resource"] or form["organization"])
    )


def _show(
    console: Console,
    form: Mapping[str, str],
    *,
    status: int = 200,
    wrong: Mapping[str, str] | None = None,
    found: Mapping[str, object] | None = None,
) -> Response:
    names = (found or {}).get("names", RecordNames())
    return console.show(
        "explain.html", status=status, form=form, wrong=wrong or {}, found=found, types=_TYPES, names=names
    )


def _explain(
    console: Console, question: Question, wire: Mapping[str, Any], at: datetime, now: datetime
) -> dict[str, Any]:
    policy = console.parts.policy
    with console.reading() as connection:
        view = SqlView(connection)
        if view.revision == 0:
            return {"never_read": True}
        explanation = with_shared_aliases(connection, question, explain(view, question, at, policy))
        unused = unused_records(view, question, explanation.decision, at)
        records = [*explanation.records, *(record for record, _ in unused)]
        origins = origins_of(connection, records)
        unknown = _unknown_ids(connection, view, question, explanation.decision.rule)
        sentence = _sentence(question, explanation)
        fields = {record.key: _fields(record, question.organization_id) for record in records}
        mentions = [field.mention for of_record in fields.values() for field in of_record if field.mention]
        names = read_names(connection, [*mentions, *(part for part in sentence if isinstance(part, tuple))])
        ladder = make_ladder(view, question, explanation.decision, at, names=names)
    result = PermissionAnswer(view.revision, at).add(question, explanation.decision)
    body = {"data": {"requests": [wire]}}
    return {
        "never_read": False,
        "decision": explanation.decision,
        "sentence": sentence,
        "names": names,
        "steps": [(record.kind, fields[record.key], origins.get(record.key, ())) for record in explanation.records],
        "unused": [(record.kind, fields[record.key], why, origins.get(record.key, ())) for record, why in unused],
        "unknown": unknown,
        "revision": view.revision,
        "at": at,
        "is_past": at < now,
        "ladder": ladder,
        "request": _json(body, indent=1),
        "response": _json(result, indent=1),
        "curl": _curl(console, body),
        "can_ask": question.type in SUPPORTED_TYPES and console.parts.ask_backend is not None,
        "comparison": None,
    }


class UnknownId(NamedTuple):
    """A field with an unknown id, and records that it may mean."""

    field: str
    kind: str
    is_match: bool
    """Whether the records have this name or address, or one that begins like it. Otherwise their ids are similar."""
    entries: Sequence[ListEntry]
    is_cut: bool
    """Whether there are more records."""

    @property
    def is_ambiguous(self) -> bool:
        """Whether several records match."""
        return self.is_match and len(self.entries) > 1


def _unknown_ids(connection: Connection, view: AccessView, question: Question, rule: Rule) -> list[UnknownId]:
    """The fields with unknown ids."""
    unknown = []
    if view.organization(question.organization_id) is None:
        unknown.append(("organization", "organization", question.organization_id))
    if view.user(question.user_id) is None:
        unknown.append(("user", "user", question.user_id))
    kind = "document" if question.type == "context" else question.type
    if rule is Rule.RESOURCE_UNKNOWN and kind != "organization":
        unknown.append(("resource", kind, question.resource_id))
    return [
        UnknownId(field, kind, *_suggestions(connection, kind, question.organization_id, item_id))
        for field, kind, item_id in unknown
    ]


def _suggestions(
    connection: Connection, kind: str, organization_id: str, item_id: str
) -> tuple[bool, list[ListEntry], bool]:
    """The rest of an ``UnknownId``."""
    within = "" if kind in {"organization", "user"} else organization_id
    hits = search_exactly(connection, item_id, kind, within) if may_be_stored(item_id) else []
    if not hits and may_be_stored(item_id):
        hits = [hit for hit in search(connection, item_id, kind, DEFAULT_LIMIT) if within in {"", hit.organization_id}]
    if not hits:
        return False, suggest(connection, kind, organization_id, item_id), False
    entries = [
        ListEntry(
            kind=kind,
            organization_id=hit.organization_id,
            item_id=hit.item_id,
            name=f"{hit.label}, {hit.detail}" if hit.detail else hit.label,
        )
        for hit in hits[:_MAX_SUGGESTIONS]
    ]
    return True, entries, len(hits) > _MAX_SUGGESTIONS


def _sentence(question: Question, explanation: Explanation) -> list[str | Mention | datetime]:
    """The reason, with the records and the times that it mentions as items of their own."""
    mentions: list[Mention] = []

    def mention(kind: str, item_id: str) -> str:
        mentions.append((kind, question.organization_id, item_id))
        return MENTION.format(len(mentions) - 1)

    by_id = reason_of(question, explanation.decision)
    before, _, after = explanation.reason.partition(": ")[2].partition(by_id)
    sentence: list[str | Mention | datetime] = []
    for part in with_mentions(f"{before}{reason_of(question, explanation.decision, mention)}{after}", mentions):
        if isinstance(part, str):
            texts = enumerate(_TIME.split(part))
            sentence += [datetime.fromisoformat(text) if number % 2 else text for number, text in texts]
        else:
            sentence.append(part)
    return sentence


_NAMED = {"name", "organizationName", "groupName", "folderName", "documentName"}
"""Fields that are shown by the id of their record."""


def _fields(record: Record, organization_id: str) -> list[Field]:
    """The fields of a record, with epoch milliseconds as times."""
    fields = []
    for name, value in record_to_wire(record).items():
        if name in {"kind", *_NAMED} or (name == "organizationId" and record.kind != Organization.kind):
            continue
        if value is False:
            continue
        if name.endswith("At") and isinstance(value, int):
            text = f"{from_epoch_ms(value):%Y-%m-%d %H:%M:%S} UTC"
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        field = field_of(name, text, organization_id)
        in_folder = name == "folderId" and record.kind == Document.kind
        fields.append(field._replace(label="in folder") if in_folder else field)
    return fields


def _request_wire(form: Mapping[str, str], wrong: dict[str, str]) -> dict[str, Any]:
    """The permission request of the form, as in the body of a permission call."""
    resource: dict[str, Any] = {"type": form["type"], "id": form["resource"]}
    if form["type"] == "organization":
        resource["id"] = form["resource"] or form["organization"]
        resource["organizationId"] = resource["id"]
    else:
        resource["organizationId"] = form["organization"]
    if form["type"] == "context":
        try:
            access = json.loads(form["context"] or "{}")
        except (ValueError, RecursionError):
            access = None
        if not isinstance(access, dict):
            wrong["context"] = 'Enter the fields as a JSON object, such as {"entityIds": "table-1"}.'
        resource["context"] = {"access": access or {}}
    return {"userId": form["user"], "resource": resource}


def _field_of(problem: str) -> str:
    """The field of the form that a problem of the permission request is about."""
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
    """The time in the form; empty: now. Without a time zone it is UTC."""
    if not text or text == "now":
        return now
    try:
        moment = datetime.fromisoformat(text.strip().replace(" UTC", "+00:00"))
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        wrong["at"] = Markup('Not a time. Enter one like <span class="tight">2026-11-20T12:00Z</span>.')
        return now


def _curl(console: Console, body: Mapping[str, object]) -> str:
    quoted = _json(body).replace("'", "'\\''")
    base = console.parts.settings.public_url or request.host_url.rstrip("/")
    return (
        f"curl {base}{console.parts.provider_path} -H 'Content-Type: application/json'"
        f" -H \"Authorization: Bearer $TOKEN\" -d '{quoted}'"
    )


def _json(value: object, indent: int | None = None) -> str:
    """JSON that is safe to copy: if it contains invisible characters, everything but ASCII is escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text if text.replace("\n", "").isprintable() else json.dumps(value, indent=indent)
