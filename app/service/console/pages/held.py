"""Held deletes: what waits for a decision, and the two pages on which it is made."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial

from flask import Response, request

from app.access.browse.sizes import counts_of
from app.access.records import Membership
from app.foundation.clock import epoch_ms, from_epoch_ms
from app.service.console.console import Console, address, go_to, query
from app.service.console.pages.run_actions import reason_problem
from app.service.console.pages.run_summary import OPENED_KINDS, hold_rows
from app.service.console.pages.runs import find_run, held_now
from app.service.console.settings import Role
from app.service.console.views import Views
from app.sync.plan.impact import largest_impact
from app.sync.plan.listing import list_changes
from app.sync.plan.search import ItemFilter
from app.sync.runs.run import Run, RunConflictError, RunStatus
from app.sync.runs.status import held_runs, superseded_by

NUMBER_TYPED_ABOVE = 100
"""More deletes than that are approved only by whoever types their number."""

_ITEMS_SHOWN = 10
_ORGANIZATIONS_SHOWN = 5


VIEWS = Views()


@VIEWS.get("held")
def held(console: Console) -> Response:
    query()
    now = console.parts.clock()
    with console.reading() as connection:
        found = held_runs(connection, epoch_ms(now))
    rows = [
        {
            "run_id": run.run_id,
            "at": from_epoch_ms(run.requested_at),
            "until": None if run.held_until is None else from_epoch_ms(run.held_until),
            "deletes": run.deletes,
            "holds": hold_rows(run.holds),
        }
        for run in found
    ]
    return console.show("held.html", current="held", held=rows)


def _ask(console: Console, word: str) -> Response:
    given = query("run", "reason")
    run = find_run(console, given["run"])
    if run.status is not RunStatus.HELD:
        return _somebody_else(console, run)
    return _page(console, run, word, {"reason": given["reason"]}, {})


def _decide(console: Console, word: str) -> Response:
    operator = console.operator
    run = find_run(console, request.form.get("run", ""))
    if run.status is not RunStatus.HELD:
        return _somebody_else(console, run)
    form = {name: request.form.get(name, "").strip() for name in ("reason", "number")}
    wrong = _wrong(form, run.total("held"), word)
    if wrong:
        return _page(console, run, word, form, wrong, status=400)
    done = "approved" if word == "approve" else "discarded"
    move = console.parts.runs.approve if word == "approve" else console.parts.runs.discard
    try:
        move(
            run.run_id,
            by=operator.asked_by,
            reason=form["reason"],
            witness=console.gate.witness(operator.actor, done, form["reason"]),
        )
    except RunConflictError:
        return _somebody_else(console, console.parts.runs.get(run.run_id))
    return go_to(address("run", id=run.run_id))


for _word in ("approve", "discard"):
    VIEWS.get(_word, Role.APPROVER)(partial(_ask, word=_word))
    VIEWS.post(_word, Role.APPROVER)(partial(_decide, word=_word))


def _wrong(form: Mapping[str, str], deletes: int, word: str) -> dict[str, str]:
    wrong = {}
    if not form["reason"]:
        wrong["reason"] = "Give a reason; it goes into the audit log."
    elif problem := reason_problem(form["reason"]):
        wrong["reason"] = problem
    if word == "approve" and deletes > NUMBER_TYPED_ABOVE and form["number"].replace(",", "") != str(deletes):
        wrong["number"] = f"Type {deletes:,} to confirm."
    return wrong


def _page(
    console: Console, run: Run, word: str, form: Mapping[str, str], wrong: Mapping[str, str], *, status: int = 200
) -> Response:
    now = console.parts.clock()
    holds = hold_rows(run.report.get("held"))
    with console.reading() as connection:
        members = counts_of(connection, {hold.organization_id for hold in holds})
        is_current = run.run_id in held_now(connection, now)
        newer = None if is_current else superseded_by(connection, run)
        items, losing = [], []
        if run.plan_id is not None:
            items = list_changes(connection, run.plan_id, criteria=ItemFilter(status="held"), limit=_ITEMS_SHOWN)
            losing = [one for one in largest_impact(connection, run.plan_id, _ORGANIZATIONS_SHOWN) if one.lose]
    if _is_over(run, now):
        return _somebody_else(console, run)
    return console.show(
        "decide.html",
        current="held",
        run=run,
        word=word,
        deletes=run.total("held"),
        holds=holds,
        opened=[
            (hold, members.get(hold.organization_id, {}).get(Membership.kind, 0))
            for hold in holds
            if hold.kind in OPENED_KINDS and hold.organization_id
        ],
        items=items,
        losing=losing,
        form={"reason": "", "number": "", **form},
        wrong=wrong,
        number_typed=word == "approve" and run.total("held") > NUMBER_TYPED_ABOVE,
        superseded_by=newer,
        status=status,
    )


def _is_over(run: Run, now: datetime) -> bool:
    return run.held_until is not None and run.held_until < now


def _somebody_else(console: Console, run: Run) -> Response:
    """What has become of a run that somebody wanted to decide about."""
    if run.status is RunStatus.HELD:
        says = "The time to approve these deletes is over. The next run holds them again if they are still due."
    elif run.decided:
        says = f"Somebody else decided first: {run.decided}."
    else:
        says = f"This run holds no deletes: it is {run.status}."
    return console.show("moved_on.html", current="held", status=409, says=says, run_id=run.run_id)
