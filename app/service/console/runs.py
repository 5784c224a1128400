"""Helpers for pages about runs: find a run, show its status, queue a run, and answer a conflict."""

import re
from collections.abc import Collection, Sequence
from datetime import datetime

from flask import Response
from sqlalchemy import Connection

from app.foundation.audit import MAX_REASON, AuditAction
from app.foundation.clock import epoch_ms
from app.foundation.ids import may_be_stored
from app.service.console.console import Console
from app.service.console.urls import address, go_to
from app.sync.runs.audit import audited
from app.sync.runs.run import Run, RunNotFoundError, RunRequest, RunStatus, row_of, run_from
from app.sync.runs.status import held_runs, spent_plans

RUN_ID = re.compile(r"[!-~]{1,200}")


def find_run(console: Console, run_id: str) -> Run:
    """The run with this id. Raises ``RunNotFoundError``, also for an invalid id."""
    with console.reading() as connection:
        return read_run(connection, run_id)


def read_run(connection: Connection, run_id: str) -> Run:
    """As ``find_run``, in a transaction."""
    if not RUN_ID.fullmatch(run_id):
        raise RunNotFoundError("there is no such run")
    return run_from(row_of(connection, run_id))


OUTDATED = "The directory or the backend has changed since, so this plan cannot be applied."


def with_status(connection: Connection, runs: Sequence[Run], now: datetime) -> list[tuple[Run, str]]:
    """Each run with its status on pages."""
    held = held_now(connection, now)
    spent = spent_plans(connection, [run.plan_id for run in runs if may_be_applied(run) and run.plan_id is not None])
    return [(run, (run.dry_run and spent.get(run.plan_id or "")) or shown_status(run, held, now)) for run in runs]


def plan_problem(console: Console, run: Run, applied: Run | None) -> str:
    """Why the plan of a preview cannot be applied any more. Empty: it can be, or ``applied`` is the run that did."""
    if applied is not None or not may_be_applied(run) or run.plan_id is None:
        return ""
    return "" if console.parts.plan_problem(run.plan_id) is None else OUTDATED


def shown_status(run: Run, held: Collection[str], now: datetime) -> str:
    """The status of a run that is no preview: ``superseded`` or ``expired`` for a held run that is not among ``held``,
    ``discarded`` for one whose deletes were discarded."""
    if run.decision == "discarded":
        return run.decision
    if run.status is not RunStatus.HELD or run.run_id in held:
        return run.status.value
    return "expired" if has_expired(run, now) else "superseded"


def may_be_applied(run: Run) -> bool:
    """Whether it is a preview that another run may apply."""
    return run.dry_run and run.status is RunStatus.DONE and run.plan_id is not None and "whatIf" not in run.report


def has_expired(run: Run, now: datetime) -> bool:
    """Whether the time to approve its held deletes is over."""
    return run.held_until is not None and run.held_until < now


def held_now(connection: Connection, now: datetime) -> frozenset[str]:
    """The ids of the runs whose deletes wait for approval now."""
    return frozenset(run.run_id for run in held_runs(connection, epoch_ms(now)))


def reason_error(reason: str) -> str:
    """The error in a reason for the audit log. It is empty if there is none."""
    if len(reason) > MAX_REASON:
        return f"Use at most {MAX_REASON:,} characters."
    return "" if may_be_stored(reason) else "Use text without zero bytes."


def enqueue(console: Console, request: RunRequest, action: AuditAction) -> Response:
    """Queues a run, writes an audit row about the action, and redirects to the run's page."""
    audit_hook = audited(console.gate.audit, console.operator.actor, action, request.asked_reason)
    run, _ = console.parts.runs.enqueue(request, audit_hook=audit_hook)
    return go_to(address("run", id=run.run_id))


def show_conflict(console: Console, run: Run, text: str, *, current: str) -> Response:
    """The page for an action that the state of the run does not allow. ``current``: its name in the menu."""
    return console.show("conflict.html", current=current, status=409, text=text, run_id=run.run_id)
