"""Held deletes: the list, and the pages that approve or discard them."""

from collections.abc import Mapping
from functools import partial
from itertools import chain

from flask import Response, request

from app.foundation.clock import epoch_ms
from app.service.console.console import Console, address, go_to, query
from app.service.console.names import mentions_of, organizations_of, read_names
from app.service.console.pages.run import find_run, held_now, losses_behind, read_run
from app.service.console.pages.run_actions import reason_problem
from app.service.console.pages.run_summary import RESOURCE_KINDS, hold_rows
from app.service.console.settings import Role
from app.service.console.views import VIEWS
from app.sync.plan.listing import list_changes
from app.sync.plan.search import ItemFilter
from app.sync.plan.summary import largest_impact
from app.sync.runs.run import Run, RunConflictError, RunStatus
from app.sync.runs.status import held_runs, superseded_by

NUMBER_TYPED_ABOVE = 100
"""To approve more deletes than that, the operator has to type their number."""

_HOLDS_WITH_EXAMPLES = 8
_EXAMPLES = 5
_ORGANIZATIONS_SHOWN = 5


@VIEWS.get("held")
def held(console: Console) -> Response:
    query()
    now = console.parts.clock()
    with console.reading() as connection:
        held = [
            (one, run, hold_rows(one.holds), losses_behind(connection, run))
            for one in held_runs(connection, epoch_ms(now))
            for run in [read_run(connection, one.run_id)]
        ]
        names = read_names(connection, organizations_of(*(holds for _, _, holds, _ in held)))
    return console.show("held.html", held=held, names=names)


def _form(console: Console, decision: str) -> Response:
    parameters = query("run", "reason")
    run = find_run(console, parameters["run"])
    if run.status is not RunStatus.HELD:
        return _conflict(console, run)
    return _page(console, run, decision, {"reason": parameters["reason"]}, {})


def _decide(console: Console, decision: str) -> Response:
    operator = console.operator
    run = find_run(console, request.form.get("run", ""))
    if run.status is not RunStatus.HELD:
        return _conflict(console, run)
    form = {name: request.form.get(name, "").strip() for name in ("reason", "number")}
    wrong = _wrong_fields(form, run.total("held"), decision)
    if wrong:
        return _page(console, run, decision, form, wrong, status=400)
    runs = console.parts.runs
    decide, action = (runs.approve, "approved") if decision == "approve" else (runs.discard, "discarded")
    try:
        decide(
            run.run_id,
            by=operator.asked_by,
            reason=form["reason"],
            audit_hook=console.gate.audit_hook(operator.actor, action, form["reason"]),
        )
    except RunConflictError:
        return _conflict(console, console.parts.runs.get(run.run_id))
    return go_to(address("run", id=run.run_id))


def _wrong_fields(form: Mapping[str, str], deletes: int, decision: str) -> dict[str, str]:
    """Field → the error in it."""
    wrong = {}
    if not form["reason"]:
        wrong["reason"] = "Enter a reason for the audit log."
    elif problem := reason_problem(form["reason"]):
        wrong["reason"] = problem
    if decision == "approve" and deletes > NUMBER_TYPED_ABOVE and form["number"].replace(",", "") != str(deletes):
        wrong["number"] = f"Type {deletes:,} to confirm."
    return wrong


def _page(
    console: Console, run: Run, decision: str, form: Mapping[str, str], wrong: Mapping[str, str], *, status: int = 200
) -> Response:
    now = console.parts.clock()
    holds = hold_rows(run.report.get("held"))
    with console.reading() as connection:
        is_current = run.run_id in held_now(connection, now)
        newer = None if is_current else superseded_by(connection, run)
        examples, losing = {}, []
        if run.plan_id is not None:
            for hold in holds[:_HOLDS_WITH_EXAMPLES]:
                of_hold = ItemFilter(status="held", kind=hold.kind, organization_id=hold.organization_id or None)
                examples[hold] = list_changes(connection, run.plan_id, criteria=of_hold, limit=_EXAMPLES)
            losing = [row for row in largest_impact(connection, run.plan_id, _ORGANIZATIONS_SHOWN) if row.lose]
        mentions = chain.from_iterable(map(mentions_of, examples.values()))
        names = read_names(connection, [*mentions, *organizations_of(holds, losing)])
        lost = losses_behind(connection, run)
    if run.held_until is not None and run.held_until < now:
        return _conflict(console, run)
    return console.show(
        "decision.html",
        current="held",
        run=run,
        decision=decision,
        deletes=run.total("held"),
        holds=holds,
        destroyed=[hold for hold in holds if hold.kind in RESOURCE_KINDS],
        examples=examples,
        lost=lost,
        losing=losing,
        names=names,
        form={"reason": "", "number": "", **form},
        wrong=wrong,
        number_typed=decision == "approve" and run.total("held") > NUMBER_TYPED_ABOVE,
        superseded_by=newer,
        status=status,
    )


def _conflict(console: Console, run: Run) -> Response:
    """The page for a run that can no longer be approved or discarded."""
    if run.status is RunStatus.HELD:
        text = "The time to approve these deletes is over. The next run holds them again if they are still due."
    elif run.decided:
        text = f"Another operator decided first: {run.decided}."
    else:
        text = f"This run holds no deletes: it is {run.status}."
    return console.show("conflict.html", current="held", status=409, text=text, run_id=run.run_id)


for _decision in ("approve", "discard"):
    VIEWS.get(_decision, Role.APPROVER)(partial(_form, decision=_decision))
    VIEWS.post(_decision, Role.APPROVER)(partial(_decide, decision=_decision))
