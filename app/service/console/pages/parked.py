"""Parked items: what was given up after failures, what rests between two tries, and trying either again."""

import json

from flask import Response, request
from werkzeug.exceptions import BadRequest, NotFound

from app.access.browse.lookup import may_be_stored
from app.foundation.clock import from_epoch_ms
from app.service.console.console import MOST_COUNTED, PAGE_ROWS, Console, one_of, query
from app.service.console.pages.run_actions import enqueue, retry_request
from app.service.console.settings import Role
from app.service.console.views import Views
from app.sync.ledger.failures import (
    MAX_GROUPED,
    Failure,
    FailureCount,
    FailureGroup,
    count_failures,
    failure_groups,
    failures_page,
)
from app.sync.ledger.items import ITEM_KINDS, ItemKey
from app.sync.ledger.ledger import ledger_in_use
from app.sync.plan.limits import noun_of

MOST_CHOSEN = 1_000
"""So many items may be chosen one by one, or by what the backend said of them."""

_KEY_PARTS = 5
_GROUPS_SHOWN = 10
_MOST_NARROWED = 100
"""About more organizations than that, a retry is a run of everything."""
_FILTERS = ("kind", "organization", "message")
_ANYTHING = FailureGroup()


VIEWS = Views()


@VIEWS.get("parked")
def parked(console: Console) -> Response:
    given = query(*_FILTERS, "state", "after")
    state = one_of(given["state"], ("parked", "waiting"), "state") or "parked"
    like = _like(given["kind"], given["organization"], given["message"])
    after = _key(given["after"], like)
    counted: list[FailureCount] = []
    found: list[Failure] = []
    groups: list[tuple[FailureGroup, int, int | None]] = []
    is_parked = state == "parked"
    with console.reading() as connection:
        ledger_id = ledger_in_use(connection)
        if ledger_id is not None:
            counted = count_failures(connection, ledger_id, limit=MOST_COUNTED + 1)
            found = failures_page(connection, ledger_id, parked=is_parked, like=like, after=after, limit=PAGE_ROWS + 1)
            groups = failure_groups(connection, ledger_id, parked=is_parked, limit=_GROUPS_SHOWN)
    filters = {name: given[name] for name in _FILTERS}
    return console.show(
        "parked.html",
        current="parked",
        rows=[(one, from_epoch_ms(one.retry_at), _shown_key(one)) for one in found[:PAGE_ROWS]],
        next_after=_shown_key(found[PAGE_ROWS - 1]) if len(found) > PAGE_ROWS else "",
        state=state,
        filters=filters,
        is_filtered=any(filters.values()),
        groups=[(one, items, None if since is None else from_epoch_ms(since)) for one, items, since in groups],
        kind_choices=[("", "Every kind"), *((kind, noun_of(kind)) for kind in ITEM_KINDS)],
        grouped=MAX_GROUPED,
        numbers={
            "parked": sum(one.items for one in counted if one.parked),
            "waiting": sum(one.items for one in counted if not one.parked),
        },
    )


@VIEWS.post("retry", Role.APPROVER)
def retry(console: Console) -> Response:
    operator = console.operator
    shown = [key for one in request.form.getlist("chosen") if (key := _key(one)) is not None]
    if request.form.get("only") and not shown:
        raise BadRequest("no item is selected: select at least one, or retry all of them")
    if shown:
        items = [ItemKey(*key[:-1]) for key in shown]
        wanted = retry_request(operator, kinds=(), organization_ids=_organizations(items), items=items)
        return enqueue(console, operator, wanted, "retry asked for")
    like = _like(*(request.form.get(name, "") for name in _FILTERS))
    kinds = () if like.kind is None else (like.kind,)
    organizations = () if like.organization_id is None else (like.organization_id,)
    items = [] if like.message is None else _said(console, like)
    if like.message is not None and not items:
        raise BadRequest("no item with this failure is parked or waiting any more")
    wanted = retry_request(operator, kinds=kinds, organization_ids=organizations, items=items)
    return enqueue(console, operator, wanted, "retry asked for")


def _like(kind: str, organization_id: str, message: str) -> FailureGroup:
    """What is looked for. Raises ``BadRequest`` and ``NotFound`` for what cannot be."""
    one_of(kind, ITEM_KINDS, "kind")
    if not may_be_stored(organization_id, message):
        raise NotFound("No item is of an organization, or failed with a message, that reads so")
    return FailureGroup(kind=kind or None, organization_id=organization_id or None, message=message or None)


def _said(console: Console, like: FailureGroup) -> list[ItemKey]:
    """The first items of which the backend said so, parked or not."""
    found: list[Failure] = []
    with console.reading() as connection:
        ledger_id = ledger_in_use(connection)
        for parked in (True, False):
            if ledger_id is not None:
                left = MOST_CHOSEN - len(found)
                found += failures_page(connection, ledger_id, parked=parked, like=like, limit=left)
    return [ItemKey(one.kind, one.organization_id, one.container_id, one.item_id) for one in found]


def _organizations(items: list[ItemKey]) -> set[str]:
    named = {item.organization_id for item in items}
    return named if len(named) <= _MOST_NARROWED else set()


def _shown_key(failure: Failure) -> str:
    return json.dumps(
        [failure.kind, failure.organization_id, failure.container_id, failure.item_id, failure.deleting],
        ensure_ascii=False,
    )


def _key(shown: str, like: FailureGroup = _ANYTHING) -> tuple[str, str, str, str, bool] | None:
    """The key of an item, one of those that are alike. Raises ``BadRequest``."""
    if not shown:
        return None
    try:
        parts = json.loads(shown)
    except (ValueError, RecursionError):
        parts = None
    if (
        not isinstance(parts, list)
        or len(parts) != _KEY_PARTS
        or not all(isinstance(part, str) for part in parts[:-1])
        or not may_be_stored(*parts[:-1])
        or not isinstance(parts[-1], bool)
        or parts[0] not in ITEM_KINDS
        or like.kind not in {None, parts[0]}
        or like.organization_id not in {None, parts[1]}
    ):
        raise BadRequest("after names no position in this list; start from its first page")
    kind, organization_id, container_id, item_id, deleting = parts
    return kind, organization_id, container_id, item_id, deleting
