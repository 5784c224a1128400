"""Starts and cancels runs: sync, preview, apply a previewed plan, retry."""

from flask import Response, request
from werkzeug.exceptions import Forbidden

from app.access.browse.lookup import may_be_stored
from app.service.console.console import Console, address, go_to, query
from app.service.console.pages.runs import find_run
from app.service.console.sessions import Operator
from app.service.console.settings import Role
from app.service.console.views import VIEWS
from app.sync.runs.run import RunConflictError, RunRequest, RunStatus

MAX_REASON = 1000
_MAX_IDS = 1000
_MAX_ID_BYTES = 512
_FIELDS = ("organizations", "users", "verify", "deletes", "preview", "reason")


@VIEWS.get("sync", Role.APPROVER)
def sync(console: Console) -> Response:
    return _form(console, query("preview", "verify", "organizations", "users", "reason"), {})


@VIEWS.post("sync", Role.APPROVER)
def start(console: Console) -> Response:
    operator = console.operator
    form = {name: request.form.get(name, "") for name in _FIELDS}
    wrong: dict[str, str] = {}
    organizations = _ids(form["organizations"], "organizations", wrong)
    users = _ids(form["users"], "users", wrong)
    if form["deletes"] and not operator.may(Role.ADMIN):
        console.gate.refused(operator.actor, "sync", "deletes beyond the limits need the role admin")
        raise Forbidden("lifting the limits of deletes needs the role admin")
    if problem := reason_problem(form["reason"]):
        wrong["reason"] = problem
    if form["deletes"] and not form["preview"] and not form["reason"].strip():
        wrong["reason"] = "Enter a reason for lifting the limits, for the audit log."
    if wrong:
        return _form(console, form, wrong, status=400)
    wanted = RunRequest(
        trigger="console",
        organization_ids=organizations,
        user_ids=users,
        dry_run=bool(form["preview"]),
        verify=bool(form["verify"]),
        allow_deletes=bool(form["deletes"]),
        asked_by=operator.asked_by,
        asked_reason=form["reason"].strip() or None,
    )
    return enqueue(console, operator, wanted, "preview asked for" if form["preview"] else "sync asked for")


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
        console.gate.refused(operator.actor, f"apply {run.run_id}", "its deletes need the role admin")
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


def _form(console: Console, form: dict[str, str], wrong: dict[str, str], *, status: int = 200) -> Response:
    values = {name: form.get(name, "") for name in _FIELDS}
    return console.show("sync.html", current="runs", form=values, wrong=wrong, status=status)


def reason_problem(reason: str) -> str:
    """The error in a reason; empty: none."""
    if len(reason) > MAX_REASON:
        return f"Use at most {MAX_REASON:,} characters."
    return "" if may_be_stored(reason) else "Use text without zero bytes."


def _ids(text: str, field: str, wrong: dict[str, str]) -> tuple[str, ...]:
    """Parses a field with one id per line."""
    ids = tuple(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
    if len(ids) > _MAX_IDS:
        wrong[field] = f"Enter at most {_MAX_IDS:,} ids, or leave the field empty for everything."
    elif any("\0" in item or len(item.encode("utf-8", "replace")) > _MAX_ID_BYTES for item in ids):
        wrong[field] = f"Enter one id per line, each of at most {_MAX_ID_BYTES} bytes."
    return ids


def enqueue(console: Console, operator: Operator, wanted: RunRequest, action: str) -> Response:
    """Queues a run, writes an audit row, and redirects to the run's page."""
    audit_hook = console.gate.audit_hook(operator.actor, action, wanted.asked_reason)
    run, _ = console.parts.runs.enqueue(wanted, audit_hook=audit_hook)
    return go_to(address("run", id=run.run_id))


def _conflict(console: Console, text: str, run_id: str) -> Response:
    return console.show("conflict.html", current="runs", status=409, text=text, run_id=run_id)
