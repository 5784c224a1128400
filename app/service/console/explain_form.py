"""The form of Explain: finds the ids of typed names, and parses the question."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from markupsafe import Markup
from sqlalchemy import Connection

from app.access.browse.lookup import find, find_by_id
from app.access.records import Document, Folder, Organization, Record, User
from app.access.search import search_exactly
from app.contract.permission_call import MalformedQuestion, Question, parse_question
from app.foundation.ids import may_be_stored
from app.service.console.console import Console
from app.service.console.formatting import utc_moment

FIELDS = ("user", "type", "resource", "organization", "context", "at", "zone")
TYPES = ("document", "folder", "organization", "context")
REQUIRED = {
    "user": "Enter a user.",
    "resource": "Enter the resource that they want to open.",
    "organization": "Enter the resource's organization.",
}
"""Required field → the message if it is empty."""
RECORDS: dict[str, type[Record]] = {
    "document": Document,
    "folder": Folder,
    "organization": Organization,
    "context": Document,
}
"""The type of a resource → its record."""
_FIELD_OF_REQUEST = {
    "userId": "user",
    "resource.id": "resource",
    "resource.organizationId": "organization",
    "resource.type": "type",
    "resource.context": "context",
    "resource.context.access": "context",
}
"""The path of a field in the permission request → the field of the form."""


class ParsedForm(NamedTuple):
    question: Question
    request: Mapping[str, object]
    """The question as in the body of a permission call."""
    at: datetime


class InvalidFormError(Exception):
    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__(errors)
        self.errors = errors
        """Field → the error in it."""


def resolve_names(console: Console, form: Mapping[str, str]) -> dict[str, str]:
    """The form with ids instead of names and addresses that only one record has. Existing ids take precedence."""
    ids = dict(form)
    if not may_be_stored(*form.values()):
        return ids
    resource = RECORDS[form["type"]]
    with console.reading() as connection:
        if not ids["organization"] and ids["resource"] and form["type"] != "organization":
            ids |= _find_organization(connection, ids["resource"], resource)
        for field, record in (("organization", Organization), ("user", User), ("resource", resource)):
            is_within = record.kind in {Document.kind, Folder.kind}
            within = ids["organization"] if is_within else ""
            key = (within, ids[field]) if is_within else (ids[field],)
            if not all(key) or find(connection, record, *key) is not None:
                continue
            matches = search_exactly(connection, ids[field], record.kind, within)
            if len(matches) == 1:
                ids[field] = matches[0].item_id
    return ids


def _find_organization(connection: Connection, text: str, record: type[Record]) -> dict[str, str]:
    """Organization and id of the only resource with this id, or else with this name. It is empty for several."""
    keys: list[tuple[str, ...]] = list(find_by_id(connection, record, text, limit=2))
    if not keys:
        keys = [(hit.organization_id, hit.item_id) for hit in search_exactly(connection, text, record.kind)]
    return dict(zip(("organization", "resource"), keys[0], strict=True)) if len(keys) == 1 else {}


def parse_form(form: Mapping[str, str], now: datetime) -> ParsedForm:
    """The question of the form. Raises ``InvalidFormError``."""
    errors: dict[str, str] = {}
    at = now
    try:
        at = _parse_time(form["at"], form["zone"], now)
    except (ValueError, OverflowError):
        errors["at"] = Markup('Not a time. Enter one like <span class="tight">2026-11-20T12:00Z</span>.')
    access = _parse_access(form["context"]) if form["type"] == "context" else {}
    if access is None:
        errors["context"] = 'Enter the fields as a JSON object, such as {"entityIds": "table-1"}.'
    request = _to_request(form, access or {})
    question = parse_question(request)
    if isinstance(question, MalformedQuestion):
        errors |= {name: text for name, text in REQUIRED.items() if not form[name] and not _is_implied(name, form)}
        errors.setdefault(_FIELD_OF_REQUEST[question.field], f"{question.error[0].upper()}{question.error[1:]}.")
    if errors or isinstance(question, MalformedQuestion):
        raise InvalidFormError(errors)
    return ParsedForm(question, request, at)


def _parse_time(text: str, zone: str, now: datetime) -> datetime:
    """The time in the form, or now if it is empty. Raises as ``utc_moment``."""
    return now if text in {"", "now"} else utc_moment(text.strip().replace(" UTC", "+00:00"), zone)


def _parse_access(text: str) -> dict[str, Any] | None:
    """The fields of a context. None: the text is not a JSON object."""
    try:
        access = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return access if isinstance(access, dict) else None


def _to_request(form: Mapping[str, str], access: Mapping[str, Any]) -> dict[str, object]:
    resource: dict[str, object] = {"type": form["type"], "id": form["resource"], "organizationId": form["organization"]}
    if form["type"] == "organization":
        resource["id"] = resource["organizationId"] = form["resource"] or form["organization"]
    if form["type"] == "context":
        resource["context"] = {"access": access}
    return {"userId": form["user"], "resource": resource}


def _is_implied(name: str, form: Mapping[str, str]) -> bool:
    """Whether a field may be empty. If the resource is an organization, one of two fields is enough."""
    return (
        form["type"] == "organization"
        and name in {"resource", "organization"}
        and bool(form["resource"] or form["organization"])
    )
