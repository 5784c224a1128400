"""The pages of one item: in the plan of a run, and in the ledger."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby, islice
from typing import Any, NamedTuple

import orjson
from flask import Response
from pydantic import ValidationError
from sqlalchemy import Connection
from werkzeug.exceptions import NotFound

from app.access.browse.grants import ResourceIds, group_grants_on
from app.access.browse.lookup import folder_paths
from app.access.origins import find_origins
from app.access.records import Folder, Group, GroupMember, Key, Record
from app.access.sql_view import SqlView
from app.contract import operations as contract
from app.foundation.ids import may_be_stored
from app.service.console.console import Console
from app.service.console.failures import Advice, FieldNow, advise, failures_now, fields_now, own_records
from app.service.console.names import CONTAINER_OF_ITEM, RECORD_OF_ITEM, Item, Mention, mentions_of, read_names
from app.service.console.pages.parked import format_key
from app.service.console.run_changes import item_causes
from app.service.console.runs import find_run
from app.service.console.urls import address, one_of, parse_ordinal, query
from app.service.console.views import VIEWS
from app.sync.apply.requests import NotExpressibleError, request_of
from app.sync.ledger.failure_lists import Failure
from app.sync.ledger.items import ITEM_KINDS, ItemKey, ItemStatus, Kind
from app.sync.ledger.journal import SentCall, call_of_item
from app.sync.ledger.ledger import item_state, ledger_in_use
from app.sync.plan.fields import NOT_KNOWN, FieldChange, all_fields
from app.sync.plan.listing import PastChange, item_history, read_change
from app.sync.plan.stored import PlanItem

_HISTORY = 20
_LEDGER_HISTORY = 50
_SENT_SHOWN = 4_000
_FAILING = frozenset({"failed", "parked", "waiting"})
"""The statuses of items whose present state is shown as well."""
_NO_ITEM = "This run has no item with that number"


@VIEWS.get("item")
def item(console: Console) -> Response:
    parameters = query("run", "ordinal")
    run = find_run(console, parameters["run"])
    ordinal = parse_ordinal(parameters["ordinal"])
    if ordinal is None or run.plan_id is None:
        raise NotFound(_NO_ITEM)
    with console.reading() as connection:
        item = read_change(connection, run.plan_id, ordinal)
        if item is None:
            raise NotFound(_NO_ITEM)
        fields = all_fields(connection, item, item.was)
        cause = item_causes(connection, run, [item])[ordinal]
        history = _folded(item_history(connection, item, limit=_HISTORY), (run.run_id, ordinal))
        call = _call(connection, item)
        supporting, more_groups = supporting_records(connection, item, console.parts.clock())
        mentions = [mention for record in supporting for mention in record.mentions(item.organization_id)]
        mentions += [("group", item.organization_id, group) for group in cause.groups]
        names = read_names(connection, [*mentions_of([item]), *mentions])
        failing = (
            None if item.status not in _FAILING else _failing_now(connection, item, json.loads(item.payload or "{}"))
        )
        if failing is not None and item.status == ItemStatus.WAITING and not failing.failures:
            # It waits for the end of a grace period, or did when the plan was made.
            failing = None
    return console.show(
        "item.html",
        current="runs",
        failing=failing,
        names=names,
        run=run,
        item=item,
        cause=cause,
        changed=[_field_row(field) for field in fields if field.is_changed],
        unchanged=[_field_row(field) for field in fields if not field.is_changed and field.new is not None],
        covered_by=item.covered_by,
        request=None if call is None and item.covered_by is not None else _request(item),
        call=call,
        took=None if call is None or call.settled_at is None else (call.settled_at - call.sent_at) / 1000,
        history=history,
        supporting=supporting,
        more_groups=more_groups,
        explain=_explain_link(item),
    )


class _FailingNow(NamedTuple):
    """An item that failed, as it is now."""

    failures: Sequence[tuple[Failure, Advice, str]]
    """Its failures, each with advice and the key for a retry. Empty: it does not fail any more."""
    fields: Sequence[FieldNow] | None
    """See ``fields_now``."""
    has_sent: bool
    """Whether it is known what was sent last."""


def _failing_now(connection: Connection, item: Item, sent: Mapping[str, object] | None) -> _FailingNow:
    failures = failures_now(connection, item)
    advice = advise(connection, {failure.message: [failure] for failure in failures})
    rows = [(failure, advice[failure.message], format_key(failure)) for failure in failures]
    return _FailingNow(rows, fields_now(connection, item, sent), has_sent=bool(sent))


def _folded(history: Iterable[PastChange], shown: tuple[str, int] = ("", 0)) -> list[list[PastChange]]:
    """Equal outcomes in a row in one list. ``shown``: the run and the ordinal of an item that has a list of its own."""

    def outcome(past: PastChange) -> tuple[object, ...]:
        return past.operation, past.action, past.status, past.message, (past.run_id, past.ordinal) == shown

    return [list(same) for _, same in groupby(history, outcome)]


def _call(connection: Connection, item: PlanItem) -> SentCall | None:
    if item.status in {"planned", "held", "waiting", "parked", "discarded"}:
        return None
    ordinal = item.ordinal if item.covered_by is None else item.covered_by
    return call_of_item(connection, item.plan_id, ordinal)


def _field_row(field: FieldChange) -> dict[str, Any]:
    return {
        "field": field.field,
        "before": _text(field.old),
        "after": _text(field.new),
        "before_is_known": field.old_is_known,
    }


def _text(value: object) -> str | None:
    if value is None or value is NOT_KNOWN:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _request(item: PlanItem) -> dict[str, str] | None:
    """The request with this item alone. None: the contract has no request for it."""
    operation = contract.by_name(item.operation)
    try:
        request = request_of(item.operation, [item])
    except (NotExpressibleError, ValidationError):
        return None
    body = orjson.dumps(operation.body(request), option=orjson.OPT_INDENT_2).decode()
    cut = "\n…" if len(body) > _SENT_SHOWN else ""
    return {"path": operation.path, "body": body[:_SENT_SHOWN] + cut}


_RESOURCES = {Kind.ORGANIZATION_USER: "organization", Kind.FOLDER_USER: "folder", Kind.DOCUMENT_USER: "document"}


def _explain_link(item: PlanItem) -> str:
    """The URL that explains the user's access to the resource. It is empty for an item that is not about access."""
    resource_type = _RESOURCES.get(Kind(item.kind))
    if resource_type is None:
        return ""
    resource = item.container_id or item.organization_id
    return address(
        "explain", user=item.item_id, type=resource_type, resource=resource, organization=item.organization_id
    )


_GROUPS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class SupportingRecord:
    """A record that the item depends on, and its origins. Fields about groups are set for grants and memberships."""

    kind: str
    places: Sequence[str] = ()
    group_id: str = ""
    member_kind: str = ""
    """user or group"""
    member_id: str = ""
    role: str = ""

    def mentions(self, organization_id: str) -> Iterable[Mention]:
        if self.group_id:
            yield Group.kind, organization_id, self.group_id
        if self.member_id:
            yield self.member_kind, organization_id, self.member_id


def supporting_records(connection: Connection, item: PlanItem, now: datetime) -> tuple[list[SupportingRecord], int]:
    """The records that the item depends on, as in the sources now, and the number of groups that are left out."""
    records = [(record, SupportingRecord(record.kind)) for record in own_records(item)]
    kind, more = Kind(item.kind), 0
    if kind in {Kind.FOLDER_USER, Kind.DOCUMENT_USER, Kind.GROUP_MEMBER}:
        view = SqlView(connection)
        if kind is not Kind.GROUP_MEMBER:
            group_grants, more = _group_grants(view, item, now)
            records += group_grants
        elif len(path := view.group_path(item.organization_id, item.item_id, item.container_id)) > 1:
            records += map(_supporting_member, path)
    origins = find_origins(connection, [record for record, _ in records])
    return [
        replace(supporting, places=[str(origin) for origin in origins.get(record.key, ())])
        for record, supporting in records
    ], more


def _group_grants(view: SqlView, item: PlanItem, now: datetime) -> tuple[list[tuple[Record, SupportingRecord]], int]:
    """Grants of the user's groups on the resource, the memberships between, and the number of grants left out."""
    is_folder = Kind(item.kind) is Kind.FOLDER_USER
    level = ResourceIds(item.container_id) if is_folder else ResourceIds(document_id=item.container_id)
    groups = view.groups(item.organization_id, item.item_id)
    grants = group_grants_on(view.connection, item.organization_id, level, groups)
    records: dict[Key, tuple[Record, SupportingRecord]] = {}
    for group, grant in islice(grants.items(), _GROUPS_SHOWN):
        ended = ", ended" if grant.expires_at is not None and grant.expires_at <= now else ""
        records[grant.key] = grant, SupportingRecord(grant.kind, group_id=group, role=f"{grant.access_role}{ended}")
        for member in view.group_path(item.organization_id, item.item_id, group):
            records[member.key] = _supporting_member(member)
    return list(records.values()), max(0, len(grants) - _GROUPS_SHOWN)


def _supporting_member(member: GroupMember) -> tuple[Record, SupportingRecord]:
    return member, SupportingRecord(
        member.kind,
        group_id=member.organization_user_group_id,
        member_kind="group" if member.member_group_id else "user",
        member_id=member.member_group_id or member.user_id or "",
    )


@VIEWS.get("ledger_item")
def ledger_item(console: Console) -> Response:
    parameters = query("kind", "organization", "container", "item")
    kind = one_of(parameters["kind"], ITEM_KINDS, "kind")
    item = ItemKey(
        kind=kind,
        organization_id=parameters["organization"],
        container_id=parameters["container"],
        item_id=parameters["item"],
    )
    if not kind or not item.item_id or not may_be_stored(*parameters.values()):
        raise NotFound("The address contains no valid kind and id of an item")
    with console.reading() as connection:
        ledger_id = ledger_in_use(connection)
        holding = None if ledger_id is None else item_state(connection, ledger_id, item)
        failing = _failing_now(connection, item, None)
        history = _folded(item_history(connection, item, limit=_LEDGER_HISTORY))
        subject = CONTAINER_OF_ITEM.get(kind, RECORD_OF_ITEM[kind]), item.container_id or item.item_id
        folders = folder_paths(connection, item.organization_id, [subject]).get(subject, ())
        parent = () if holding is None else ((Folder.kind, item.organization_id, holding.parent_id),)
        names = read_names(connection, [*mentions_of([item]), *parent])
    return console.show(
        "ledger_item.html",
        current="browse",
        names=names,
        item=item,
        subject=subject,
        folders=folders,
        holding=holding,
        failing=failing,
        history=history,
        keep_runs=console.parts.keep_runs,
    )
