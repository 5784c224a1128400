"""One item of a run's plan: what changes, why, what was sent and answered, and where its record stands."""

import json
from typing import Any

import orjson
from flask import Response
from pydantic import ValidationError
from sqlalchemy import Connection
from werkzeug.exceptions import NotFound

from app.contract import operations as contract
from app.foundation.clock import from_epoch_ms
from app.service.console.console import Console, address, query
from app.service.console.pages.runs import find_run, ordinal_of
from app.service.console.pages.supporting import supporting_records
from app.service.console.views import Views
from app.sync.apply.requests import NotExpressibleError, request_of
from app.sync.ledger.journal import SentCall, call_of_item
from app.sync.plan.detail import NOT_KNOWN, FieldStory, field_stories, item_history, was_of
from app.sync.plan.listing import list_changes
from app.sync.plan.rules import Kind
from app.sync.plan.stored import PlanItem, read_item

_HISTORY = 20
_SENT_SHOWN = 4_000
_NO_ITEM = "This run has no item of that number; its page lists those that it has"


VIEWS = Views()


@VIEWS.get("item")
def item(console: Console) -> Response:
    given = query("run", "ordinal")
    run = find_run(console, given["run"])
    ordinal = ordinal_of(given["ordinal"])
    if ordinal is None or run.plan_id is None:
        raise NotFound(_NO_ITEM)
    with console.reading() as connection:
        found = read_item(connection, run.plan_id, ordinal)
        if found is None:
            raise NotFound(_NO_ITEM)
        change = list_changes(connection, run.plan_id, after=ordinal - 1, limit=1)[0]
        stories = field_stories(connection, found, was_of(connection, run.plan_id, ordinal))
        history = item_history(connection, change, limit=_HISTORY)
        call = _call(connection, found)
        supporting, more_groups = supporting_records(connection, found, console.parts.clock())
    return console.show(
        "item.html",
        current="runs",
        run=run,
        item=change,
        changed=[_shown(story) for story in stories if story.is_changed],
        unchanged=[_shown(story) for story in stories if not story.is_changed and story.after is not None],
        covered_by=found.covered_by,
        sent=None if call is None and found.covered_by is not None else _request(found),
        call=call,
        sent_at=None if call is None else from_epoch_ms(call.sent_at),
        took=None if call is None or call.settled_at is None else (call.settled_at - call.sent_at) / 1000,
        history=history,
        supporting=supporting,
        more_groups=more_groups,
        links=_links(found),
    )


def _call(connection: Connection, item: PlanItem) -> SentCall | None:
    if item.status in {"planned", "held", "waiting", "parked", "discarded"}:
        return None
    ordinal = item.ordinal if item.covered_by is None else item.covered_by
    return call_of_item(connection, item.plan_id, ordinal)


def _shown(story: FieldStory) -> dict[str, Any]:
    return {
        "field": story.field,
        "before": _text(story.before),
        "after": _text(story.after),
        "before_is_known": story.before is not NOT_KNOWN,
    }


def _text(value: object) -> str | None:
    if value is None or value is NOT_KNOWN:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _request(item: PlanItem) -> dict[str, str] | None:
    """The request that tells this item alone, made as for sending it; None: the contract cannot say it."""
    contracted = contract.by_name(item.operation)
    try:
        request = request_of(item.operation, [item])
    except (NotExpressibleError, ValidationError):
        return None
    body = orjson.dumps(contracted.body(request), option=orjson.OPT_INDENT_2).decode()
    cut = "\n…" if len(body) > _SENT_SHOWN else ""
    return {"path": contracted.path, "body": body[:_SENT_SHOWN] + cut}


_RESOURCES = {
    Kind.ORGANIZATION_USER: "organization",
    Kind.FOLDER_USER: "folder",
    Kind.DOCUMENT_USER: "document",
}


def _links(item: PlanItem) -> list[tuple[str, str]]:
    """Where one reads on: what decides about it now, and what the backend holds of it."""
    links = []
    resource = _RESOURCES.get(Kind(item.kind))
    if resource is not None:
        opened = item.container_id or item.organization_id
        where = address("explain", user=item.item_id, type=resource, resource=opened, organization=item.organization_id)
        links.append(("Explain what they may open now", where))
    told = address(
        "told", kind=item.kind, organization=item.organization_id, container=item.container_id, item=item.item_id
    )
    return [*links, ("What the backend was told about it", told)]
