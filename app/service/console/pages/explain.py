"""The page Explain: a permission decision, the path to it, its records, and on request the backend's own answer."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from flask import Response, request
from sqlalchemy import Connection

from app.access.browse.lists import ListEntry
from app.access.browse.lookup import find
from app.access.browse.suggestions import ranked, suggest
from app.access.decision.decide import Decision, decide_uncapped
from app.access.decision.explain import Explanation, explain, reason_of, record_to_wire
from app.access.origins import find_origins
from app.access.records import Organization, Record, User
from app.access.search import search, search_exactly
from app.access.shared_aliases import with_shared_aliases
from app.access.sql_view import SqlView
from app.client.single_permission import SUPPORTED_TYPES
from app.contract.permission_call import Question
from app.foundation.clock import utc_text
from app.foundation.ids import may_be_stored
from app.service.console.backend_answer import compare
from app.service.console.console import Console
from app.service.console.explain_form import (
    FIELDS,
    RECORDS,
    REQUIRED,
    TYPES,
    InvalidFormError,
    ParsedForm,
    parse_form,
    resolve_names,
)
from app.service.console.ladder import Ladder, UnusedReason, make_ladder, unused_records
from app.service.console.names import (
    MENTION,
    Field,
    Mention,
    RecordNames,
    fields_of,
    organizations_of,
    read_names,
    with_mentions,
)
from app.service.console.pages.search import with_id
from app.service.console.urls import one_of, query
from app.service.console.views import VIEWS
from app.service.provider.answer import PermissionAnswer

_MAX_MATCHES = 10
_MAX_SUGGESTIONS = 5
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT[\d:]+Z)")
"""A time in the sentence of an explanation."""


@VIEWS.get("explain")
def explain_page(console: Console) -> Response:
    typed = query(*FIELDS, "ask")
    asks_backend = one_of(typed.pop("ask"), ("1",), "ask") == "1"
    typed["type"] = one_of(typed["type"], TYPES, "type") or "document"
    # Links from other pages contain some fields; the form always sends all of them.
    was_sent = "at" in request.args or (typed["user"] and (typed["resource"] or typed["organization"]))
    if not was_sent or not any(typed[name] for name in REQUIRED):
        return _show(console, typed)
    form = resolve_names(console, typed)
    now = console.parts.clock()
    try:
        parsed = parse_form(form, now)
    except InvalidFormError as error:
        return _show_errors(console, form, error.errors)
    result = _explain(console, parsed)
    if result is None:
        return _show(console, form, never_read=True)
    comparison = None
    backend = console.parts.ask_backend
    if asks_backend and backend is not None and parsed.question.type in SUPPORTED_TYPES:
        # The transaction has ended: the backend may take its time, and may call the permission provider.
        comparison = compare(backend, parsed.question, result.decision)
    body = {"data": {"requests": [parsed.request]}}
    return _show(
        console,
        form,
        result=result,
        unknown=result.unknown,
        errors=_unknown_errors(result.unknown),
        names=result.names,
        resolved=[(typed[name], name, form[name]) for name in REQUIRED if typed[name] != form[name]],
        is_past=parsed.at < now,
        can_ask=backend is not None and parsed.question.type in SUPPORTED_TYPES,
        comparison=comparison,
        request=_json(body, indent=1),
        curl=_curl(console, body),
    )


def _show(console: Console, form: Mapping[str, str], *, status: int = 200, **context: object) -> Response:
    empty: dict[str, object] = {"errors": {}, "unknown": (), "resolved": (), "result": None, "never_read": False}
    context = {**empty, **context, "types": TYPES, "form": form}
    return console.show("explain.html", current="explain", status=status, **context)


def _show_errors(console: Console, form: Mapping[str, str], errors: Mapping[str, str]) -> Response:
    """The page of an incomplete form. If only the organization is missing, with the ids that are unknown."""
    unknown, names = list[UnknownId](), RecordNames()
    if errors.keys() == {"organization"} and form["resource"]:
        with console.reading() as connection:
            if SqlView(connection).revision:
                unknown = _unknown_ids(connection, form["type"], form["user"], form["resource"], "")
            names = read_names(connection, organizations_of(*(one.entries for one in unknown)))
        if any(one.field == "resource" and not one.is_match for one in unknown):
            errors = {}
    return _show(console, form, errors={**errors, **_unknown_errors(unknown)}, unknown=unknown, names=names, status=400)


class ExplainRow(NamedTuple):
    """A record that led to the decision, or was not applied."""

    kind: str
    fields: Sequence[Field]
    places: Sequence[object]
    """Where the sources contain it."""
    unused: UnusedReason | None = None
    """Why it was not applied. None: it led to the decision."""


class UnknownId(NamedTuple):
    """A field with an unknown id, and records that it may mean."""

    field: str
    kind: str
    is_match: bool
    """Whether the records have exactly this name, address or id. Otherwise theirs are similar."""
    entries: Sequence[ListEntry]
    is_cut: bool
    """Whether there are more records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainResult:
    """A decision and its evidence, all of the same revision."""

    decision: Decision
    sentence: Sequence[str | Mention | datetime]
    """The reason, with the records and the times that it mentions as items of their own."""
    steps: Sequence[ExplainRow]
    """The records that led to the decision."""
    unused: Sequence[ExplainRow]
    """The user's other grants and memberships."""
    unknown: Sequence[UnknownId]
    ladder: Ladder | None
    names: RecordNames
    revision: int
    at: datetime
    response: str
    """The response to the permission call, as JSON."""


def _explain(console: Console, parsed: ParsedForm) -> ExplainResult | None:
    """None: the directory has never been read."""
    question, at = parsed.question, parsed.at
    with console.reading() as connection:
        view = SqlView(connection)
        if view.revision == 0:
            return None
        explanation = with_shared_aliases(connection, question, explain(view, question, at, console.parts.policy))
        decision = explanation.decision
        unused = unused_records(view, question, decision, at)
        records = [*explanation.records, *(record for record, _ in unused)]
        origins = find_origins(connection, records)
        within = question.organization_id
        rows = {
            record.key: ExplainRow(record.kind, fields_of(record_to_wire(record), within), origins.get(record.key, ()))
            for record in records
        }
        sentence = _sentence(
            question, explanation, decide_uncapped(view, question, at, console.parts.policy).expires_at
        )
        mentions = [field.mention for row in rows.values() for field in row.fields if field.mention]
        names = read_names(connection, [*mentions, *(part for part in sentence if isinstance(part, tuple))])
        return ExplainResult(
            decision=decision,
            sentence=sentence,
            steps=[rows[record.key] for record in explanation.records],
            unused=[rows[record.key]._replace(unused=reason) for record, reason in unused],
            unknown=_unknown_ids(connection, question.type, question.user_id, question.resource_id, within),
            ladder=make_ladder(view, question, decision, at, names=names),
            names=names,
            revision=view.revision,
            at=at,
            response=_json(PermissionAnswer(view.revision, at).add(question, decision), indent=1),
        )


def _unknown_ids(
    connection: Connection, type_: str, user_id: str, resource_id: str, organization_id: str
) -> list[UnknownId]:
    """Without an organization, the resource counts as unknown: several organizations have it, or none."""
    record, unknown = RECORDS[type_], []
    organization = find(connection, Organization, organization_id)
    if organization_id and organization is None:
        unknown.append(_unknown_id(connection, "organization", Organization, organization_id))
    if user_id and find(connection, User, user_id) is None:
        unknown.append(_unknown_id(connection, "user", User, user_id))
    # A disabled organization decides without its resources.
    is_read = not organization_id or (organization is not None and not organization.disabled)
    if record is not Organization and is_read and find(connection, record, organization_id, resource_id) is None:
        unknown.append(_unknown_id(connection, "resource", record, resource_id, organization_id))
    return unknown


def _unknown_id(
    connection: Connection, field: str, record: type[Record], text: str, organization_id: str = ""
) -> UnknownId:
    kind = record.kind
    if not may_be_stored(text):
        return UnknownId(field, kind, False, (), False)
    exact = [] if organization_id else with_id(connection, text, record, _MAX_MATCHES + 1)
    exact = exact or search_exactly(connection, text, kind, organization_id)
    entries = {
        (hit.organization_id, hit.item_id): ListEntry(
            kind=kind,
            organization_id=hit.organization_id,
            item_id=hit.item_id,
            name=f"{hit.label}, {hit.detail}" if hit.detail else hit.label,
        )
        for hit in exact or search(connection, text, kind, organization_id=organization_id)
    }
    if exact:
        return UnknownId(field, kind, True, list(entries.values())[:_MAX_MATCHES], len(entries) > _MAX_MATCHES)
    for entry in suggest(connection, kind, organization_id, text):
        entries.setdefault((entry.organization_id, entry.item_id), entry)
    return UnknownId(field, kind, False, ranked(text, entries.values())[:_MAX_SUGGESTIONS], False)


def _unknown_errors(unknown: Sequence[UnknownId]) -> dict[str, str]:
    """Field → the error in it."""
    return {one.field: "Several match." if one.is_match else f"No such {one.kind}." for one in unknown}


def _sentence(question: Question, explanation: Explanation, ends_at: datetime | None) -> list[str | Mention | datetime]:
    """The reason, up to the end of the access if it has one."""
    mentions: list[Mention] = []

    def mention(kind: str, item_id: str) -> str:
        mentions.append((kind, question.organization_id, item_id))
        return MENTION.format(len(mentions) - 1)

    cause = reason_of(question, explanation.decision, mention)
    # The remark of an allow is the time until which the answer may be cached. The page shows that apart.
    remarks = () if explanation.decision.has_access else explanation.remarks
    end = "" if ends_at is None else f", until {utc_text(ends_at, timespec='seconds')}"
    sentence: list[str | Mention | datetime] = []
    for part in with_mentions(f"{'; '.join((cause, *remarks))}{end}.", mentions):
        if isinstance(part, str):
            texts = enumerate(_TIME.split(part))
            sentence += [datetime.fromisoformat(text) if number % 2 else text for number, text in texts]
        else:
            sentence.append(part)
    return sentence


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
