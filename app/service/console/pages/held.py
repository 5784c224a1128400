"""Held deletes: the list of runs that hold some, and the pages on which an operator approves or discards them."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any, NamedTuple

from flask import Response, request
from sqlalchemy import Connection

from app.foundation.audit import AuditAction
from app.foundation.clock import epoch_ms
from app.service.console.console import Console
from app.service.console.names import Mention, mentions_of, organizations_of, read_names
from app.service.console.run_changes import RESOURCE_KINDS, HoldRow, hold_rows, kind_rows
from app.service.console.run_reads import SourceLoss, losses_behind
from app.service.console.runs import find_run, has_expired, held_now, read_run, reason_error, show_conflict
from app.service.console.settings import Role
from app.service.console.urls import address, go_to, query
from app.service.console.views import VIEWS
from app.sync.plan.listing import PlannedChange, list_changes
from app.sync.plan.search import ItemFilter
from app.sync.runs.audit import audited
from app.sync.runs.run import Run, RunConflictError, RunStatus
from app.sync.runs.status import HeldRun, held_runs, superseded_by

NUMBER_TYPED_ABOVE = 100
"""To approve more deletes than that, the operator has to type their number."""

_HOLDS_WITH_EXAMPLES = 8
_EXAMPLES = 5


class HeldDecision(StrEnum):
    """What an operator decides about held deletes. The value is the name of its page."""

    APPROVE = "approve"
    DISCARD = "discard"


@VIEWS.get("held")
def held(console: Console) -> Response:
    query()
    with console.reading() as connection:
        rows = [_held_row(connection, run) for run in held_runs(connection, epoch_ms(console.parts.clock()))]
        names = read_names(connection, chain.from_iterable(_mentions(row.holds, row.examples) for row in rows))
    return console.show("held.html", held=rows, names=names)


class HeldRow(NamedTuple):
    held: HeldRun
    run: Run
    holds: list[HoldRow]
    losses: list[tuple[Run, list[SourceLoss]]]
    """The reads of sources that lost the records of the held deletes."""
    examples: Mapping[HoldRow, Sequence[PlannedChange]]


def _held_row(connection: Connection, held_run: HeldRun) -> HeldRow:
    run, holds = read_run(connection, held_run.run_id), hold_rows(held_run.holds)
    return HeldRow(held_run, run, holds, losses_behind(connection, run), _examples(connection, run, holds))


def _examples(connection: Connection, run: Run, holds: Sequence[HoldRow]) -> dict[HoldRow, list[PlannedChange]]:
    if run.plan_id is None:
        return {}
    return {
        hold: list_changes(
            connection,
            run.plan_id,
            criteria=ItemFilter(status="held", kind=hold.kind, organization_id=hold.organization_id or None),
            limit=_EXAMPLES,
        )
        for hold in holds[:_HOLDS_WITH_EXAMPLES]
    }


def _mentions(holds: Sequence[HoldRow], examples: Mapping[HoldRow, Sequence[PlannedChange]]) -> Iterator[Mention]:
    yield from organizations_of(holds)
    yield from chain.from_iterable(map(mentions_of, examples.values()))


def _requested_decision() -> HeldDecision:
    return HeldDecision(request.path.rpartition("/")[2])


@VIEWS.get("approve", Role.APPROVER)
@VIEWS.get("discard", Role.APPROVER)
def decision_form(console: Console) -> Response:
    parameters = query("run", "reason")
    run = find_run(console, parameters["run"])
    return _page(console, run, _requested_decision(), {"reason": parameters["reason"]}, {})


@VIEWS.post("approve", Role.APPROVER, kept=("run", "reason"))
@VIEWS.post("discard", Role.APPROVER, kept=("run", "reason"))
def decide(console: Console) -> Response:
    operator, runs, decision = console.operator, console.parts.runs, _requested_decision()
    run = find_run(console, request.form.get("run", ""))
    form = {name: request.form.get(name, "").strip() for name in ("reason", "number")}
    errors = _form_errors(form, run.total("held"), decision)
    if run.status is not RunStatus.HELD or errors:
        return _page(console, run, decision, form, errors)
    method, action = {
        HeldDecision.APPROVE: (runs.approve, AuditAction.APPROVE),
        HeldDecision.DISCARD: (runs.discard, AuditAction.DISCARD),
    }[decision]
    try:
        method(
            run.run_id,
            by=operator.asked_by,
            reason=form["reason"],
            audit_hook=audited(console.gate.audit, operator.actor, action, form["reason"]),
        )
    except RunConflictError:
        return _conflict(console, runs.get(run.run_id))
    return go_to(address("run", id=run.run_id))


def _form_errors(form: Mapping[str, str], deletes: int, decision: HeldDecision) -> dict[str, str]:
    """Field → the error in it."""
    errors = {}
    if not form["reason"]:
        errors["reason"] = "Enter a reason for the audit log."
    elif error := reason_error(form["reason"]):
        errors["reason"] = error
    if _needs_number(decision, deletes) and form["number"].replace(",", "") != str(deletes):
        errors["number"] = f"Type {deletes:,} to confirm."
    return errors


def _needs_number(decision: HeldDecision, deletes: int) -> bool:
    return decision is HeldDecision.APPROVE and deletes > NUMBER_TYPED_ABOVE


def _page(
    console: Console, run: Run, decision: HeldDecision, form: Mapping[str, str], errors: Mapping[str, str]
) -> Response:
    """The form with its evidence, or the conflict if the run can no longer be approved or discarded."""
    now, deletes = console.parts.clock(), run.total("held")
    if run.status is not RunStatus.HELD or has_expired(run, now):
        return _conflict(console, run)
    holds = hold_rows(run.report.get("held"))
    with console.reading() as connection:
        is_current = run.run_id in held_now(connection, now)
        newer = None if is_current else superseded_by(connection, run)
        evidence = _read_evidence(connection, run, holds)
    return console.show(
        "decision.html",
        current="held",
        run=run,
        decision=decision.value,
        deletes=deletes,
        holds=holds,
        held=[(row.kind, number) for row in kind_rows(run) if (number := dict(row.outcomes).get("held"))],
        resource_kinds=RESOURCE_KINDS,
        form={"reason": "", "number": "", **form},
        errors=errors,
        number_typed=_needs_number(decision, deletes),
        superseded_by=newer,
        status=400 if errors else 200,
        **evidence,
    )


def _read_evidence(connection: Connection, run: Run, holds: Sequence[HoldRow]) -> dict[str, Any]:
    examples = _examples(connection, run, holds)
    names = read_names(connection, _mentions(holds, examples))
    return {"examples": examples, "lost": losses_behind(connection, run), "names": names}


def _conflict(console: Console, run: Run) -> Response:
    if run.status is RunStatus.HELD:
        text = "The time to approve these deletes is over. The next run holds them again if they are still due."
    elif run.decided:
        text = f"Another operator decided first: {run.decided}."
    else:
        text = f"This run holds no deletes: it is {run.status}."
    return show_conflict(console, run, text, current="held")
