"""The buttons of a run's page: they apply a previewed plan, and cancel the run."""

from flask import Response, request
from werkzeug.exceptions import Forbidden

from app.service.console.console import Console
from app.service.console.runs import enqueue, find_run, show_conflict
from app.service.console.settings import Role
from app.service.console.urls import address, go_to
from app.service.console.views import VIEWS
from app.sync.runs.audit import RunAction, requested_action
from app.sync.runs.run import RunConflictError, RunRequest, RunStatus


@VIEWS.post("apply", Role.APPROVER)
def apply(console: Console) -> Response:
    operator = console.operator
    run = find_run(console, request.form.get("run", ""))
    if not run.dry_run or run.status is not RunStatus.DONE or run.plan_id is None:
        return show_conflict(console, run, "This run has no plan to apply.", current="runs")
    if "whatIf" in run.report:
        return show_conflict(console, run, "This plan is of a file, and cannot be applied.", current="runs")
    if (problem := console.parts.plan_problem(run.plan_id)) is not None:
        return show_conflict(console, run, problem, current="runs")
    if run.allow_deletes and not operator.may(Role.ADMIN):
        console.gate.audit_refusal(operator.actor, f"apply {run.run_id}", "its deletes need the role admin")
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
            run.run_id, by=operator.asked_by, audit_hook=console.gate.audit_hook(operator.actor, RunAction.CANCEL)
        )
    except RunConflictError as error:
        return show_conflict(console, run, str(error), current="runs")
    return go_to(address("run", id=run.run_id))
