"""Summarizes a run for its page: stages, phases, changes by kind, and held deletes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.service.admin.resync import ITEM_STATUSES
from app.service.console.formatting import counted
from app.sync.ledger.ledger import ITEM_KINDS
from app.sync.plan.rules import Phase
from app.sync.plan.summary import PlanPart
from app.sync.runs.run import RUNNING, Run, RunStatus

ACTIONS = ("add", "update", "delete")

_STAGES = (RunStatus.QUEUED, RunStatus.READING, RunStatus.VERIFYING, RunStatus.PLANNING, RunStatus.APPLYING)
_STAGE_NAMES = {
    RunStatus.QUEUED: "Queued",
    RunStatus.READING: "Read directory",
    RunStatus.VERIFYING: "Read backend",
    RunStatus.PLANNING: "Planned",
    RunStatus.APPLYING: "Applied",
}
_OVER = re.compile(r"over sync\.limits\.(\w+) \(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage of a run."""

    name: str
    state: str
    at: datetime | None
    """When it began. None: it has not begun."""
    took: float | None
    """Seconds. None: it has not ended."""
    note: str = ""
    is_now: bool = False


def stage_rows(run: Run, numbers: Mapping[str, int]) -> list[StageRow]:
    """The stages from the queue, or from the approval, to the end. ``numbers``: item status → number."""
    began_at = _stage_times(run)
    ended = run.status not in RUNNING and run.status is not RunStatus.QUEUED
    stages = []
    for status in _STAGES:
        if status not in began_at:
            if status is RunStatus.VERIFYING or ended or run.dry_run:
                continue
            stages.append(StageRow(_STAGE_NAMES[status], "coming", None, None))
            continue
        began, until = began_at[status], _next_time(began_at, status, run.finished_at)
        is_now = status is run.status
        name = "Approved" if status is RunStatus.QUEUED and run.approved_at is not None else _STAGE_NAMES[status]
        took = None if until is None or is_now else (until - began).total_seconds()
        stages.append(
            StageRow(name, run.status.value if is_now else "done", began, took, _note(status, run, numbers), is_now)
        )
    if ended:
        name = run.status.value.capitalize()
        stages.append(StageRow(name, run.status.value, run.finished_at, None, _final_note(run, numbers), is_now=True))
    return stages


def _stage_times(run: Run) -> dict[RunStatus, datetime]:
    """Status → when the run first had it since it was last queued."""
    began_at: dict[RunStatus, datetime] = {}
    for stage in run.stages:
        if stage.status is RunStatus.QUEUED:
            began_at = {}
        began_at.setdefault(stage.status, stage.at)
    if not began_at:
        # Runs of older versions have no stages.
        began_at = {RunStatus.QUEUED: run.requested_at}
        if run.started_at is not None:
            began_at[RunStatus.READING] = run.started_at
        if run.status in _STAGES:
            began_at.setdefault(run.status, run.started_at or run.requested_at)
    return began_at


def _next_time(
    began_at: Mapping[RunStatus, datetime], status: RunStatus, finished_at: datetime | None
) -> datetime | None:
    later = [at for other, at in began_at.items() if other is not status and at >= began_at[status]]
    return min(later, default=finished_at)


def _note(status: RunStatus, run: Run, numbers: Mapping[str, int]) -> str:
    if status is RunStatus.READING and run.revision:
        return f"revision {run.revision:,}"
    if status is RunStatus.PLANNING and run.plan_id is not None:
        return counted(numbers.get("planned", 0), "item")
    if status is RunStatus.APPLYING:
        return f"{numbers.get('done', 0):,} done, {numbers.get('failed', 0):,} failed"
    return ""


def _final_note(run: Run, numbers: Mapping[str, int]) -> str:
    if run.status is RunStatus.HELD:
        held = numbers.get("held", 0)
        return f"{held:,} {'delete waits' if held == 1 else 'deletes wait'}"
    return ""


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One phase of the plan: the number of items sent, and the total that the run sends."""

    name: str
    sent: int
    to_send: int

    @property
    def state(self) -> str:
        """The state that the page shows."""
        if self.sent >= self.to_send:
            return "done"
        return "applying" if self.sent else "coming"


def phase_rows(run: Run, parts: Sequence[PlanPart]) -> list[PhaseRow]:
    """The phases of the run's plan, without those that send nothing.

    A run counts its items by kind and action, and executes its phases in order. So the sent items of a kind and action
    are attributed to the earlier phases, and the ones that are not sent to the later ones.
    """
    items: dict[tuple[str, str], int] = {}
    for part in parts:
        items[part.kind, part.action] = items.get((part.kind, part.action), 0) + part.items
    settled = {key: _sent_and_unsent(run, *key, number) for key, number in items.items()}
    rows: dict[int, tuple[int, int]] = {}
    for part in parts:
        sent, unsent = settled[part.kind, part.action]
        items[part.kind, part.action] -= part.items
        to_send = max(0, part.items - max(0, unsent - items[part.kind, part.action]))
        sent_here = min(to_send, sent)
        settled[part.kind, part.action] = sent - sent_here, unsent - (part.items - to_send)
        before = rows.get(part.phase, (0, 0))
        rows[part.phase] = before[0] + sent_here, before[1] + to_send
    return [PhaseRow(_phase_name(phase), *numbers) for phase, numbers in sorted(rows.items()) if numbers[1]]


def _sent_and_unsent(run: Run, kind: str, action: str, items: int) -> tuple[int, int]:
    """The numbers of sent items and of items that are not sent (held, waiting, parked, skipped, …)."""
    outcomes = run.counts.get(kind, {}).get(action, {})
    planned = outcomes.get("planned", 0)
    sent = outcomes.get("done", 0) + outcomes.get("failed", 0)
    unsent = sum(outcomes.values()) - planned - sent
    # An approved run also counts items settled before the approval, which its plan does not contain.
    before = planned - items
    return (max(0, sent + unsent - before), 0) if before > 0 else (sent, unsent)


def _phase_name(phase: int) -> str:
    try:
        return Phase(phase).name.lower().replace("_", " ").capitalize()
    except ValueError:
        return f"Phase {phase}"


def kind_rows(run: Run, parts: Sequence[PlanPart]) -> list[dict[str, Any]]:
    """The changes of a run by kind: the planned number of each action, and the numbers of operations and outcomes."""
    rows = []
    for kind in ITEM_KINDS:
        actions = run.counts.get(kind)
        if not actions:
            continue
        outcomes = {
            status: sum(numbers.get(status, 0) for numbers in actions.values())
            for status in ITEM_STATUSES
            if status != "planned"
        }
        operations: dict[str, int] = {}
        for part in parts:
            if part.kind == kind:
                operations[part.operation] = operations.get(part.operation, 0) + part.items
        rows.append(
            {
                "kind": kind,
                "planned": [(action, actions.get(action, {}).get("planned", 0)) for action in ACTIONS],
                "operations": list(operations.items()),
                "outcomes": [(status, number) for status, number in outcomes.items() if number],
            }
        )
    return rows


OPENED_KINDS = ("organization", "folder", "document")
"""Resources: if one is deleted, users lose access without a change to their own records."""


@dataclass(frozen=True, slots=True)
class HoldRow:
    """The held deletes of one kind in one organization, and the limit that they exceed."""

    kind: str
    organization_id: str
    deletes: int
    below: int
    """Items that are deleted with them."""
    of: int
    """Items of the kind in the ledger."""
    over: str
    """The limit, in a few words."""
    reason: str


def hold_rows(holds: object) -> list[HoldRow]:
    """The rows for the ``held`` of a run's report."""
    if not isinstance(holds, Sequence):
        return []
    return [
        HoldRow(
            kind=str(hold.get("kind", "")),
            organization_id=str(hold.get("organizationId", "")),
            deletes=int(hold.get("deletes") or 0),
            below=int(hold.get("below") or 0),
            of=int(hold.get("ledger") or 0),
            over=_over(str(hold.get("reason", ""))),
            reason=str(hold.get("reason", "")),
        )
        for hold in holds
        if isinstance(hold, Mapping)
    ]


def _over(reason: str) -> str:
    if found := _OVER.search(reason):
        return f"{found[1]}, {found[2]}"
    if "take along" in reason:
        return "takes held items along"
    return "always asks" if "always asks" in reason else "over the limits"
