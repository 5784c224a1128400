"""The page of failing items, which are parked or wait for a retry, and the buttons that retry them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from flask import Response, request
from sqlalchemy import Connection
from werkzeug.exceptions import BadRequest, NotFound

from app.foundation.audit import AuditAction
from app.foundation.ids import may_be_stored
from app.service.console.console import COUNT_LIMIT, Console
from app.service.console.failures import PLACES_SHOWN, Advice, advise
from app.service.console.names import RecordNames, mentions_of, read_names
from app.service.console.paging import PAGE_ROWS, invalid_cursor
from app.service.console.runs import enqueue
from app.service.console.settings import Role
from app.service.console.urls import one_of, query
from app.service.console.views import VIEWS
from app.sync.ledger.failure_lists import (
    MAX_GROUPED,
    Failure,
    FailureCount,
    FailureGroup,
    FailureKey,
    SameFailures,
    count_failures,
    failure_groups,
    failures_page,
)
from app.sync.ledger.items import ITEM_KINDS, ItemKey, noun_of
from app.sync.ledger.ledger import ledger_in_use
from app.sync.runs.run import RunRequest

MAX_RETRIED = 1_000
"""Items with the same message that one retry includes."""

_GROUPS_SHOWN = 10
_MAX_ORGANIZATIONS = 100
"""A retry of items in more organizations is a full run."""
_FILTERS = ("kind", "organization", "message")
_ANY = FailureGroup()
_RETRY = RunRequest(trigger="console", retry=True, asked_reason="retry")


@VIEWS.get("parked")
def parked(console: Console) -> Response:
    parameters = query(*_FILTERS, "state", "after")
    state = one_of(parameters["state"], ("parked", "waiting"), "state")
    filters = {name: parameters[name] for name in _FILTERS}
    like = _failure_group(**filters)
    after = _parse_key(parameters["after"], like)
    counted: list[FailureCount] = []
    failures: list[Failure] = []
    groups: list[SameFailures] = []
    advice: dict[str, Advice] = {}
    names = RecordNames()
    with console.reading() as connection:
        ledger_id = ledger_in_use(connection)
        if ledger_id is not None:
            counted = count_failures(connection, ledger_id, limit=COUNT_LIMIT + 1)
            only_waiting = bool(counted) and not any(row.parked for row in counted)
            state = state or ("waiting" if only_waiting else "parked")
            failures = failures_page(
                connection, ledger_id, parked=state == "parked", like=like, after=after, limit=PAGE_ROWS + 1
            )
            groups = failure_groups(connection, ledger_id, parked=None, limit=_GROUPS_SHOWN)
            advice = advise(connection, _first_failures(connection, ledger_id, groups, filters["message"]))
            organizations = (("organization", "", group.organization_id or "") for group in groups)
            names = read_names(connection, [*mentions_of(failures[:PAGE_ROWS]), *organizations])
    return console.show(
        "parked.html",
        causes=_by_cause(failures[:PAGE_ROWS]),
        organization_count=len({failure.organization_id for failure in failures[:PAGE_ROWS]}),
        next_after=format_key(failures[PAGE_ROWS - 1]) if len(failures) > PAGE_ROWS else "",
        state=state or "parked",
        names=names,
        filters=filters,
        is_filtered=any(filters.values()),
        groups=groups,
        advice=advice,
        kind_choices=[("", "Every kind"), *((kind, noun_of(kind)) for kind in ITEM_KINDS)],
        grouped=MAX_GROUPED,
        most_retried=MAX_RETRIED,
        numbers={
            "parked": sum(row.items for row in counted if row.parked),
            "waiting": sum(row.items for row in counted if not row.parked),
        },
    )


def _by_cause(failures: Sequence[Failure]) -> list[tuple[str, list[list[tuple[Failure, str]]]]]:
    """Message → the items that fail with it, each with its key. Those in the same container are one list."""

    def place(failure: Failure) -> tuple[str, ...]:
        return failure.kind, failure.organization_id, failure.container_id

    with_message = groupby(sorted(failures, key=attrgetter("message")), key=attrgetter("message"))
    return [
        (message, [[(failure, format_key(failure)) for failure in same] for _, same in groupby(of_message, key=place)])
        for message, of_message in with_message
    ]


def _first_failures(
    connection: Connection, ledger_id: int, groups: Sequence[SameFailures], message: str
) -> dict[str, list[Failure]]:
    """Message → the first items that fail with it, of the kind that most of them have. ``message``: only this one."""
    return {
        group.message: failures_page(
            connection,
            ledger_id,
            parked=bool(group.parked),
            like=FailureGroup(kind=max(group.kinds, key=lambda kind: group.kinds[kind]), message=group.message),
            limit=PLACES_SHOWN,
        )
        for group in groups
        if message in {"", group.message}
    }


@VIEWS.post("retry", Role.APPROVER)
def retry(console: Console) -> Response:
    selected = [key.item for text in request.form.getlist("chosen") if (key := _parse_key(text)) is not None]
    if request.form.get("only") and not selected:
        raise BadRequest("no item is selected: select at least one, or retry all of them")
    if selected:
        run_request = _retry_of_items(selected)
    else:
        run_request = _retry_of_group(console, _failure_group(*(request.form.get(name, "") for name in _FILTERS)))
    return enqueue(console, replace(run_request, asked_by=console.operator.asked_by), AuditAction.RETRY)


def _retry_of_items(items: Sequence[ItemKey]) -> RunRequest:
    organizations = {item.organization_id for item in items}
    if len(organizations) > _MAX_ORGANIZATIONS:
        organizations.clear()
    return replace(_RETRY, organization_ids=tuple(sorted(organizations)), items=tuple(items))


def _retry_of_group(console: Console, like: FailureGroup) -> RunRequest:
    """Raises ``BadRequest`` if no item fails with the message of the group any more."""
    items = () if like.message is None else _items_like(console, like)
    if like.message is not None and not items:
        raise BadRequest("no item with this failure is parked or waiting any more")
    kinds = () if like.kind is None else (like.kind,)
    organization_ids = () if like.organization_id is None else (like.organization_id,)
    return replace(_RETRY, kinds=kinds, organization_ids=organization_ids, items=items)


def _failure_group(kind: str, organization: str, message: str) -> FailureGroup:
    """The filter. Raises ``BadRequest`` for an unknown kind, and ``NotFound`` for text that cannot be stored."""
    one_of(kind, ITEM_KINDS, "kind")
    if not may_be_stored(organization, message):
        raise NotFound("No item has this organization or message")
    return FailureGroup(kind=kind or None, organization_id=organization or None, message=message or None)


def _items_like(console: Console, like: FailureGroup) -> tuple[ItemKey, ...]:
    """The first items of a group, parked or waiting."""
    failures: list[Failure] = []
    with console.reading() as connection:
        ledger_id = ledger_in_use(connection)
        for parked in (True, False):
            if ledger_id is not None:
                remaining = MAX_RETRIED - len(failures)
                failures += failures_page(connection, ledger_id, parked=parked, like=like, limit=remaining)
    return tuple(failure.key.item for failure in failures)


def format_key(failure: Failure) -> str:
    """The key of a failure, as forms and cursors contain it."""
    return json.dumps(failure.key, ensure_ascii=False)


def _parse_key(text: str, like: FailureGroup = _ANY) -> FailureKey | None:
    """The key of a failure in the group. Raises ``BadRequest``."""
    if not text:
        return None
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError):
        parts = None
    if (
        not isinstance(parts, list)
        or len(parts) != len(FailureKey._fields)
        or not all(isinstance(part, str) for part in parts[:-1])
        or not may_be_stored(*parts[:-1])
        or not isinstance(parts[-1], bool)
        or parts[0] not in ITEM_KINDS
        or like.kind not in {None, parts[0]}
        or like.organization_id not in {None, parts[1]}
    ):
        raise invalid_cursor()
    return FailureKey(*parts)
