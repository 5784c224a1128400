"""Whose access a preview changes: the changes by organization, and the users and resources of one change."""

from collections.abc import Sequence
from typing import NamedTuple

from flask import Response
from werkzeug.exceptions import NotFound

from app.foundation.ids import may_be_stored
from app.service.console.console import Console
from app.service.console.names import IDS_SHOWN, access_mentions, cause_mentions, read_names
from app.service.console.paging import PAGE_ROWS
from app.service.console.runs import find_run, plan_problem
from app.service.console.urls import address, one_of, parse_ordinal, query
from app.service.console.views import VIEWS
from app.sync.plan.affected_users import affected_users
from app.sync.plan.stored_access import EFFECTS, access_ids, count_access, list_access
from app.sync.runs.report import impact_sentence
from app.sync.runs.run import Run
from app.sync.runs.status import applied_by

_ORGANIZATIONS_SHOWN = 20
_CAUSES_SHOWN = 100


@VIEWS.get("access_impact")
def access_impact(console: Console) -> Response:
    parameters = query("run", "organization", "effect", "cause", "after")
    one_of(parameters["effect"], EFFECTS, "effect")
    if not may_be_stored(parameters["organization"]):
        raise NotFound("No organization has this id")
    run, plan_id = _previewed(console, parameters["run"])
    filters = {name: parameters[name] for name in ("organization", "effect")}
    first = parse_ordinal(parameters["cause"])
    with console.reading() as connection:
        totals = affected_users(connection, plan_id)
        if not totals.changes and "impact" not in run.report:
            raise NotFound("The preview that this run applied has no access impact")
        caused = next((one for one in totals.of_causes if first is not None and first in one.ordinals[:1]), None)
        if first is not None and caused is None:
            raise NotFound("This preview has no cause with that number")
        rows = list_access(
            connection,
            plan_id,
            after=parse_ordinal(parameters["after"]) or 0,
            limit=PAGE_ROWS + 1,
            organization_id=filters["organization"],
            effect=filters["effect"],
            ordinals=() if caused is None else caused.ordinals,
            first_ids=IDS_SHOWN,
            largest_first=True,
        )
        matching = count_access(connection, plan_id, **filters)
        mentions = [("organization", "", item_id) for item_id in list(totals.of_organization)[:_ORGANIZATIONS_SHOWN]]
        mentions += cause_mentions(totals.of_causes[:_CAUSES_SHOWN])
        names = read_names(connection, [*access_mentions(rows[:PAGE_ROWS]), *mentions])
    return console.show(
        "access_impact.html",
        current="runs",
        run=run,
        plan_problem=_plan_problem(console, run, plan_id),
        sentence=impact_sentence(run.report.get("impact", {})),
        rows=rows[:PAGE_ROWS],
        totals=totals,
        caused=caused,
        causes_shown=_CAUSES_SHOWN,
        names=names,
        filters=filters,
        is_filtered=caused is None and any(filters.values()),
        matching=matching,
        is_first=not parameters["after"],
        is_compared="notCompared" not in run.report.get("impact", {}),
        next_after=rows[PAGE_ROWS - 1].ordinal if len(rows) > PAGE_ROWS else None,
    )


class Ids(NamedTuple):
    ids: Sequence[str]
    next_page: str
    """Its URL. Empty: this is the last page."""


@VIEWS.get("access_change")
def access_change(console: Console) -> Response:
    parameters = query("run", "ordinal", "users", "resources")
    run, plan_id = _previewed(console, parameters["run"])
    ordinal = parse_ordinal(parameters["ordinal"]) or 0
    with console.reading() as connection:
        rows = list_access(connection, plan_id, after=ordinal - 1, limit=1, first_ids=IDS_SHOWN)
        if not rows or rows[0].ordinal != ordinal:
            raise NotFound("This preview has no change of access with that number")
        row = rows[0]
        lists: dict[str, Ids] = {}
        for name in ("users", "resources"):
            after = parse_ordinal(parameters[name])
            position = -1 if after is None else after
            column = f"{name.removesuffix('s')}_ids"
            ids = access_ids(connection, plan_id, ordinal, column, after=position, limit=PAGE_ROWS + 1)
            page = ids[:PAGE_ROWS]
            further = {**parameters, name: page[-1][0]} if len(ids) > PAGE_ROWS else None
            lists[name] = Ids([item_id for _, item_id in page], address("access_change", **further) if further else "")
        mentions = [("user", "", each) for each in lists["users"].ids]
        mentions += [(row.kind, row.organization_id, each) for each in lists["resources"].ids]
        names = read_names(connection, [*mentions, *access_mentions([row])])
    return console.show(
        "access_change.html",
        current="runs",
        run=run,
        plan_problem=_plan_problem(console, run, plan_id),
        row=row,
        names=names,
        users=lists["users"],
        resources=lists["resources"],
    )


def _previewed(console: Console, run_id: str) -> tuple[Run, str]:
    """The preview, or the run that applied it, and its plan. Raises ``NotFound`` for a run without an access impact."""
    run = find_run(console, run_id)
    if run.plan_id is None or ("impact" not in run.report and run.requested_plan_id is None):
        raise NotFound("This run has no access impact; previews have one")
    return run, run.plan_id


def _plan_problem(console: Console, run: Run, plan_id: str) -> str:
    with console.reading() as connection:
        applied = applied_by(connection, plan_id)
    return plan_problem(console, run, applied)
