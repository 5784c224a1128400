"""Applies previewed plans and cancels runs; queues the runs of other pages."""

from flask import Response, request
from werkzeug.exceptions import Forbidden

from app.foundation.ids import may_be_stored
from app.service.console.console import Console, address, go_to
from app.service.console.pages.run import find_run
from app.service.console.sessions import Operator
from app.service.console.settings import Role
from app.service.console.views import VIEWS
from app.sync.runs.run import RunConflictError, RunRequest, RunStatus

MAX_REASON = 1000


@VIEWS.post("apply", Role.APPROVER)
def apply(console: Console) -> Response:
    operator = console.operator
    run = find_run(console, request.form.get("run", ""))
    if not run.dry_run or run.status is not RunStatus.DONE or run.plan_id is None:
        return _conflict(console, "This run has no plan to apply.", run.run_id)
    if "whatIf" in run.report:
        return _conflict(console, "This plan is of a file, and cannot be applied.", run.run_id)
    if (problem := console.parts.plan_problem(run.plan_id)) is not None:
        return _conflict(console, problem, run.run_id)
    if run.allow_deletes and not operator.may(Role.ADMIN):
        console.gate.audit_refusal(operator.actor, f"apply {run.run_id}", "its deletes need the role admin")
        raise Forbidden("this plan was created without the limits of deletes: applying it needs the role admin")
    wanted = RunRequest(
        trigger="console",
        organization_ids=run.organization_ids,
        user_ids=run.user_ids,
        allow_deletes=run.allow_deletes,
        plan_id=run.plan_id,
        asked_by=operator.asked_by,
        asked_reason=f"the plan of {run.run_id}",
    )
    return enqueue(console, operator, wanted, "plan applied")


@VIEWS.post("cancel", Role.APPROVER)
def cancel(console: Console) -> Response:
    operator = console.operator
    run = find_run(console, request.form.get("run", ""))
    if run.status is RunStatus.HELD:
        return go_to(address("discard", run=run.run_id))
    try:
        console.parts.runs.cancel(
            run.run_id, by=operator.asked_by, audit_hook=console.gate.audit_hook(operator.actor, "cancelled")
        )
    except RunConflictError as error:
        return _conflict(console, str(error), run.run_id)
    return go_to(address("run", id=run.run_id))


def reason_problem(reason: str) -> str:
    """The error in a reason; empty: none."""
    if len(reason) > MAX_REASON:
        return f"Use at most {MAX_REASON:,} characters."
    return "" if may_be_stored(reason) else "Use text without zero bytes."


def enqueue(console: Console, operator: Operator, wanted: RunRequest, action: str) -> Response:
    """Queues a run, writes an audit row, and redirects to the run's page."""
    audit_hook = console.gate.audit_hook(operator.actor, action, wanted.asked_reason)
    run, _ = console.parts.runs.enqueue(wanted, audit_hook=audit_hook)
    return go_to(address("run", id=run.run_id))


def _conflict(console: Console, text: str, run_id: str) -> Response:
    return console.show("conflict.html", current="runs", status=409, text=text, run_id=run_id)
