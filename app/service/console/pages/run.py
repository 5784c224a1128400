"""The page of a run: its stages, changes, affected users and items; and its buttons, which apply or cancel it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from flask import Response, request
from sqlalchemy import Connection
from werkzeug.exceptions import Forbidden, NotFound

from app.access.problems import ProblemSort
from app.foundation.audit import AuditAction, subject_of_refused
from app.foundation.ids import may_be_stored
from app.monitoring.activity import worker_is_running
from app.service.console.changed_entries import changed_entries
from app.service.console.console import COUNT_LIMIT, Console
from app.service.console.names import cause_mentions, mentions_of, organizations_of, read_names
from app.service.console.paging import PAGE_ROWS
from app.service.console.problems import WORDS
from app.service.console.run_changes import ACTIONS, RESOURCE_KINDS, hold_rows, item_causes, kind_rows
from app.service.console.run_progress import phase_rows, stage_rows
from app.service.console.run_reads import held_before, losses_behind, unread_sources
from app.service.console.runs import (
    enqueue,
    find_run,
    held_now,
    may_be_applied,
    plan_problem,
    read_run,
    show_conflict,
    shown_status,
)
from app.service.console.settings import Role
from app.service.console.urls import address, go_to, one_of, parse_ordinal, query
from app.service.console.views import VIEWS
from app.sync.ledger.items import ITEM_KINDS, ITEM_STATUSES, noun_of
from app.sync.plan.affected_users import ImpactTotals, affected_users
from app.sync.plan.listing import PlannedChange, list_changes
from app.sync.plan.parts import PlanPart, parts_of
from app.sync.plan.search import ItemFilter, count, count_by_status
from app.sync.plan.user_impact import affected, largest_impact
from app.sync.runs.audit import audited, requested_action
from app.sync.runs.report import impact_sentence, report_lines
from app.sync.runs.run import ENDS, Run, RunConflictError, RunRequest, RunStatus
from app.sync.runs.status import applied_by, superseded_by

_ALL = "all"
"""The status of the filter for all items of a run that did not send them all."""
_UNSENT = tuple(status for status in ITEM_STATUSES if status not in {"planned", "done", "failed"})
_ITEM_FILTERS = ("status", "kind", "action", "organization", "item")
_MAX_FOLLOWED = 20
_ORGANIZATIONS_SHOWN = 10
_ROWS_SHOWN = 10
_FIRST_ITEMS = 20
"""The items that the page shows before one asks for more, so that it stays short."""
_DIFFERENCES = ("missing", "changed", "undeleted")
_ACCESS_TYPE_CHANGES = frozenset({"update_document_access", "update_folder_access"})
_SHOWN_ELSEWHERE = frozenset(
    {"held", "impact", "losses", "problemCounts", "problems", "sources", "unknown", "verify", "whatIf"}
)


@VIEWS.get("run")
def run(console: Console) -> Response:
    parameters = query("id", *_ITEM_FILTERS, "after")
    filters = _item_filters(parameters)
    after = parse_ordinal(parameters["after"])
    is_fragment = request.headers.get("x-fragment") == "1"
    with console.reading() as connection:
        run = read_run(connection, parameters["id"])
        key = (run.run_id, *filters.items(), after)
        cached = console.followed.get(key) if is_fragment else None
        if cached is None or cached[0] != run:
            if len(console.followed) >= _MAX_FOLLOWED:
                console.followed.clear()
            cached = console.followed[key] = run, _run_context(connection, run, filters, after)
        context = cached[1] | _current_context(connection, run, console.parts.clock())
    context["plan_problem"] = plan_problem(console, run, context["applied"])
    if is_fragment:
        return console.bare("run_live.html", ended=not context["is_live"], **context)
    return console.show("run.html", current="runs", ended=False, keep_runs=console.parts.keep_runs, **context)


def _current_context(connection: Connection, run: Run, now: datetime) -> dict[str, Any]:
    """The part of the page that may change while the run's row does not: it depends on other runs and on workers."""
    held = held_now(connection, now) if run.status is RunStatus.HELD else frozenset()
    status = shown_status(run, held, now)
    applied = applied_by(connection, run.plan_id) if may_be_applied(run) and run.plan_id is not None else None
    return {
        "run_status": "applied" if applied is not None and applied.plan_id else status,
        "superseded_by": superseded_by(connection, run) if status == "superseded" else None,
        "applied": applied,
        "waits_for_worker": run.status is RunStatus.QUEUED and not worker_is_running(connection, now),
    }


def _item_filters(parameters: Mapping[str, str]) -> dict[str, str]:
    """The filters of items. Raises ``BadRequest`` for unknown values, and ``NotFound`` for invalid ids."""
    one_of(parameters["status"], (*ITEM_STATUSES, _ALL), "status")
    one_of(parameters["kind"], ITEM_KINDS, "kind")
    one_of(parameters["action"], ACTIONS, "action")
    if not may_be_stored(parameters["organization"], parameters["item"]):
        raise NotFound("No organization or item has this id")
    return {name: parameters[name] for name in _ITEM_FILTERS}


def _run_context(connection: Connection, run: Run, filters: Mapping[str, str], after: int | None) -> dict[str, Any]:
    """The part of the page that depends on the run and its plan."""
    parts = [] if run.plan_id is None else parts_of(connection, run.plan_id)
    counted = {name: run.total(name) for name in ITEM_STATUSES}
    listed = _listed_counts(connection, run, parts) if run.approved_at is not None else counted
    phases = phase_rows(run, parts) if run.status is RunStatus.APPLYING else []
    unsent = _unsent(run, listed)
    if unsent and after is None and not any(filters.values()):
        items = _sent_items(connection, run)
    else:
        items = _items(connection, run, filters, after, parts)
    listed_items = [*items["items"]]
    lost = losses_behind(connection, run) if run.report.get("held") and not run.dry_run else []
    verified = run.report.get("verify", {})
    holds = hold_rows(run.report.get("held")) if run.total("held") else []
    plan = _plan_context(connection, run.plan_id)
    scope = [("organization", "", item_id) for item_id in run.organization_ids[:_ROWS_SHOWN]]
    scope += [("user", "", item_id) for item_id in run.user_ids[:1]]
    mentions = [*mentions_of(items["items"]), *organizations_of(holds, plan["impact"]), *scope]
    entries = None if plan["totals"].changes else changed_entries(connection, run)
    if entries is not None:
        mentions += entries.mentions()
        listed_items += entries.items.values()
    causes = item_causes(connection, run, listed_items)
    of_items = {item.ordinal: item.organization_id for item in listed_items}
    mentions += [("group", of_items[ordinal], each) for ordinal, cause in causes.items() for each in cause.groups]
    mentions += cause_mentions(plan["totals"].of_causes[:_ROWS_SHOWN])
    mentions += [("organization", "", item_id) for item_id in list(plan["totals"].of_organization)[:_ROWS_SHOWN]]
    return {
        "run": run,
        "is_live": run.is_running or run.status is RunStatus.QUEUED,
        "stages": stage_rows(run, listed),
        "unread": unread_sources(run),
        "lost": [(one, lines) for one, lines in lost if one.run_id == run.run_id],
        "lost_before": [(one, lines) for one, lines in lost if one.run_id != run.run_id],
        "held_before": held_before(connection, run) if holds else None,
        "unsent": unsent,
        "pairs_lost": run.report.get("impact", {}).get("lose", 0),
        "sent": sum(phase.sent for phase in phases),
        "to_send": sum(phase.to_send for phase in phases),
        "total": listed["planned"],
        "counts": listed,
        "before_approval": {name: max(0, counted[name] - number) for name, number in listed.items()},
        "phases": phases,
        "kinds": kind_rows(run),
        "resource_kinds": RESOURCE_KINDS,
        "holds": holds,
        "names": read_names(connection, mentions),
        "entries": entries,
        "causes": causes,
        "access_impact": impact_sentence(run.report["impact"]) if "impact" in run.report else "",
        "verified": verified,
        "unknown": run.report.get("unknown"),
        "differences": {finding: verified[finding] for finding in _DIFFERENCES if verified.get(finding)},
        "retyped": [(part.kind, part.items) for part in parts if part.operation in _ACCESS_TYPE_CHANGES],
        "filters": filters,
        "kind_choices": [("", "Every kind"), *((kind, noun_of(kind)) for kind in ITEM_KINDS)],
        "problems": _problems(run),
        "problem_counts": [
            (WORDS[ProblemSort(sort)].name, number) for sort, number in run.report.get("problemCounts", {}).items()
        ],
        "reported": [line for line in report_lines(run.report, without=_SHOWN_ELSEWHERE) if line],
        **items,
        **plan,
    }


def _plan_context(connection: Connection, plan_id: str | None) -> dict[str, Any]:
    if plan_id is None:
        return {"impact": [], "affected": (0, 0), "totals": ImpactTotals(0, {}, {}, [])}
    return {
        "impact": largest_impact(connection, plan_id, _ORGANIZATIONS_SHOWN),
        "affected": affected(connection, plan_id),
        "totals": affected_users(connection, plan_id),
    }


def _listed_counts(connection: Connection, run: Run, parts: Sequence[PlanPart]) -> dict[str, int]:
    """Status → the number of items in the plan of an approved run. ``planned``: all of them. The run also counts the
    items that it settled before the approval. They are in a plan of their own."""
    items = sum(part.items for part in parts)
    counted = {name: run.total(name) for name in ITEM_STATUSES}
    if run.plan_id is None or items == counted["planned"]:
        return counted
    return dict.fromkeys(ITEM_STATUSES, 0) | count_by_status(connection, run.plan_id) | {"planned": items}


def _unsent(run: Run, listed: Mapping[str, int]) -> dict[str, int]:
    """Status → the number of items that a run did not send, or that a preview would not send, if there are others."""
    sent = sum(run.pending().values()) if run.dry_run else listed["done"] + listed["failed"]
    if run.status not in ENDS or not sent:
        return {}
    return {status: listed[status] for status in _UNSENT if listed[status]}


def _sent_items(connection: Connection, run: Run) -> dict[str, Any]:
    """As ``_items``, of the items that the run sent, failed ones first, or that a preview would send, or those that
    the run that applied it sent."""
    items: list[PlannedChange] = []
    next_page = ""
    for status in ("failed", "done", *(("planned", "cancelled") if run.dry_run else ())):
        rows = _FIRST_ITEMS - len(items)
        if run.plan_id is not None and not next_page:
            found = list_changes(connection, run.plan_id, criteria=ItemFilter(status=status), limit=rows + 1)
            items += found[:rows]
            if len(found) > rows:
                after = found[rows - 1].ordinal if rows else None
                next_page = address("run", id=run.run_id, status=status, after=after)
    return {"items": items, "matching": 0, "are_all_shown": False, "is_filtered": False, "next_page": next_page}


def _items(
    connection: Connection, run: Run, filters: Mapping[str, str], after: int | None, parts: Sequence[PlanPart]
) -> dict[str, Any]:
    """A page of the items that match the filters, their number, and the URL of the next page."""
    items: list[PlannedChange] = []
    matching: int | None = 0
    criteria = ItemFilter(
        status=None if filters["status"] in {"", _ALL} else filters["status"],
        kind=filters["kind"] or None,
        action=filters["action"] or None,
        organization_id=filters["organization"] or None,
        item_id=filters["item"] or None,
    )
    if run.plan_id is not None:
        items = list_changes(connection, run.plan_id, criteria=criteria, after=after, limit=PAGE_ROWS + 1)
        if criteria.is_everything:
            matching = sum(part.items for part in parts)
        elif items:
            matching = count(connection, run.plan_id, criteria, limit=COUNT_LIMIT + 1)
            has_limit = criteria.status is not None or criteria.item_id is not None
            matching = None if has_limit and matching > COUNT_LIMIT else matching
    rows = PAGE_ROWS if after is not None or not criteria.is_everything else _FIRST_ITEMS
    next_after = items[rows - 1].ordinal if len(items) > rows else None
    return {
        "items": items[:rows],
        "matching": matching,
        "are_all_shown": after is None and next_after is None,
        "is_filtered": not criteria.is_everything,
        "next_page": "" if next_after is None else address("run", id=run.run_id, **filters, after=next_after),
    }


def _problems(run: Run) -> Sequence[tuple[str, str]]:
    """Place and reason of each record that was left out."""
    problems = run.report.get("problems")
    parts = [str(problem).partition(": ") for problem in problems] if isinstance(problems, list) else []
    return [(place, reason) if reason else ("", place) for place, _, reason in parts]


@VIEWS.post("apply", Role.APPROVER)
def apply(console: Console) -> Response:
    operator = console.operator
    run = find_run(console, request.form.get("run", ""))
    if not run.dry_run or run.status is not RunStatus.DONE or run.plan_id is None:
        return show_conflict(console, run, "This run has no plan to apply.", current="runs")
    if "whatIf" in run.report:
        return show_conflict(console, run, "This plan is of a file, and cannot be applied.", current="runs")
    if problem := plan_problem(console, run, None):
        return show_conflict(console, run, problem, current="runs")
    if run.allow_deletes and not operator.may(Role.ADMIN):
        console.gate.audit_refusal(
            operator.actor, subject_of_refused(AuditAction.APPLY, run.run_id), "its deletes need the role admin"
        )
        raise Forbidden("this plan was created without the limits of deletes: applying it needs the role admin")
    application = RunRequest(
        trigger="console",
        organization_ids=run.organization_ids,
        user_ids=run.user_ids,
        allow_deletes=run.allow_deletes,
        plan_id=run.plan_id,
        asked_by=operator.asked_by,
        asked_reason=f"the plan of {run.run_id}",
    )
    return enqueue(console, application, requested_action(application))


@VIEWS.post("cancel", Role.APPROVER)
def cancel(console: Console) -> Response:
    operator = console.operator
    run = find_run(console, request.form.get("run", ""))
    if run.status is RunStatus.HELD:
        return go_to(address("discard", run=run.run_id))
    try:
        console.parts.runs.cancel(
            run.run_id, by=operator.asked_by, audit_hook=audited(console.gate.audit, operator.actor, AuditAction.CANCEL)
        )
    except RunConflictError as error:
        return show_conflict(console, run, str(error), current="runs")
    return go_to(address("run", id=run.run_id))
