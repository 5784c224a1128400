"""The course of a run as people read it: its stages, its phases, what it does by kind, and why deletes are held."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.service.admin.resync import ITEM_STATUSES
from app.sync.ledger.items import ITEM_KINDS
from app.sync.plan.parts import PlanPart
from app.sync.plan.rules import Phase
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
class CourseStage:
    """One stage of a run: its name and state, when it began, how long it took in seconds, and one number in words."""

    name: str
    state: str
    at: datetime | None
    took: float | None
    says: str = ""
    is_now: bool = False


def stages_of(run: Run, counted: Mapping[str, int]) -> list[CourseStage]:
    """From the queue to the end; of a run that was approved, from the approval on. ``counted``: status → items."""
    came = _last_pass(run)
    ended = run.status not in RUNNING and run.status is not RunStatus.QUEUED
    stages = []
    for status in _STAGES:
        if status not in came:
            if status is RunStatus.VERIFYING or ended or run.dry_run:
                continue
            stages.append(CourseStage(_STAGE_NAMES[status], "coming", None, None))
            continue
        began, until = came[status], _next_moment(came, status, run.finished_at)
        is_now = status is run.status
        name = "Approved" if status is RunStatus.QUEUED and run.approved_at is not None else _STAGE_NAMES[status]
        took = None if until is None or is_now else (until - began).total_seconds()
        stages.append(
            CourseStage(name, run.status.value if is_now else "done", began, took, _says(status, run, counted), is_now)
        )
    if ended:
        name = run.status.value.capitalize()
        stages.append(CourseStage(name, run.status.value, run.finished_at, None, _end_says(run, counted), is_now=True))
    return stages


def _last_pass(run: Run) -> dict[RunStatus, datetime]:
    """Status → when the run came into it for the first time since it was queued last."""
    came: dict[RunStatus, datetime] = {}
    for stage in run.stages:
        if stage.status is RunStatus.QUEUED:
            came = {}
        came.setdefault(stage.status, stage.at)
    if not came:
        # From before the moments were written down.
        came = {RunStatus.QUEUED: run.requested_at}
        if run.started_at is not None:
            came[RunStatus.READING] = run.started_at
        if run.status in _STAGES:
            came.setdefault(run.status, run.started_at or run.requested_at)
    return came


def _next_moment(
    came: Mapping[RunStatus, datetime], status: RunStatus, finished_at: datetime | None
) -> datetime | None:
    later = [at for other, at in came.items() if other is not status and at >= came[status]]
    return min(later, default=finished_at)


def _says(status: RunStatus, run: Run, counted: Mapping[str, int]) -> str:
    if status is RunStatus.READING and run.revision:
        return f"revision {run.revision:,}"
    if status is RunStatus.PLANNING and run.plan_id is not None:
        return _items(counted.get("planned", 0))
    if status is RunStatus.APPLYING:
        return f"{counted.get('done', 0):,} done, {counted.get('failed', 0):,} failed"
    return ""


def _end_says(run: Run, counted: Mapping[str, int]) -> str:
    if run.status is RunStatus.HELD:
        held = counted.get("held", 0)
        return f"{held:,} {'delete waits' if held == 1 else 'deletes wait'}"
    return ""


def _items(number: int) -> str:
    return f"{number:,} {'item' if number == 1 else 'items'}"


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One phase of the plan: how many of its items the run has sent, and how many it sends in total."""

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

    A run counts its items by kind and action, and its phases run in order. So the items sent of a kind and action are
    attributed to its earlier phases, and the items kept back to its later ones.
    """
    items: dict[tuple[str, str], int] = {}
    for part in parts:
        items[part.kind, part.action] = items.get((part.kind, part.action), 0) + part.items
    settled = {key: _sent_and_kept(run, *key, number) for key, number in items.items()}
    rows: dict[int, tuple[int, int]] = {}
    for part in parts:
        sent, kept = settled[part.kind, part.action]
        items[part.kind, part.action] -= part.items
        to_send = max(0, part.items - max(0, kept - items[part.kind, part.action]))
        now = min(to_send, sent)
        settled[part.kind, part.action] = sent - now, kept - (part.items - to_send)
        before = rows.get(part.phase, (0, 0))
        rows[part.phase] = before[0] + now, before[1] + to_send
    return [PhaseRow(_phase_name(phase), *numbers) for phase, numbers in sorted(rows.items()) if numbers[1]]


def _sent_and_kept(run: Run, kind: str, action: str, items: int) -> tuple[int, int]:
    """How many items of the plan were sent, and how many are kept back (held, waiting, parked, skipped, …)."""
    outcomes = run.counts.get(kind, {}).get(action, {})
    planned = outcomes.get("planned", 0)
    sent = outcomes.get("done", 0) + outcomes.get("failed", 0)
    kept = sum(outcomes.values()) - planned - sent
    # An approved run also counts the items settled before its approval; those are not in its plan.
    before = planned - items
    return (max(0, sent + kept - before), 0) if before > 0 else (sent, kept)


def _phase_name(phase: int) -> str:
    try:
        return Phase(phase).name.lower().replace("_", " ").capitalize()
    except ValueError:
        return f"Phase {phase}"


@dataclass(frozen=True, slots=True)
class KindRow:
    """What a run does with one kind."""

    kind: str
    planned: Sequence[tuple[str, int]]
    """Action and number, for each action."""
    operations: Sequence[tuple[str, int]]
    outcomes: Sequence[tuple[str, int]]


def kind_rows(run: Run, parts: Sequence[PlanPart]) -> list[KindRow]:
    """kind × action, by which operations, and what became of it."""
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
            KindRow(
                kind,
                [(action, actions.get(action, {}).get("planned", 0)) for action in ACTIONS],
                list(operations.items()),
                [(status, number) for status, number in outcomes.items() if number],
            )
        )
    return rows


OPENED_KINDS = ("organization", "folder", "document")
"""What people open: whoever could lose it without anything of their own being taken away."""


@dataclass(frozen=True, slots=True)
class HoldRow:
    """Why the deletes of one kind in one organization are held, in numbers."""

    kind: str
    organization_id: str
    deletes: int
    below: int
    of: int
    over: str
    """Which limit, in few words."""
    reason: str


def hold_rows(holds: object) -> list[HoldRow]:
    """Of a run's report, or of a held run."""
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
