"""The progress of a run: its stages, the phases of the plan that it applies, and the error that ended it."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import NamedTuple

from app.contract.errors import Status
from app.foundation.text import counted
from app.service.console.run_reads import unread_sources
from app.sync.plan.parts import PlanPart
from app.sync.plan.rules import Phase
from app.sync.runs.run import RUNNING, Run, RunStatus, Stage

_STAGES = {
    RunStatus.QUEUED: "Queued",
    RunStatus.READING: "Read directory",
    RunStatus.VERIFYING: "Read backend",
    RunStatus.PLANNING: "Plan",
    RunStatus.APPLYING: "Apply",
}
_IN_PROGRESS = {
    RunStatus.READING: "Reading directory",
    RunStatus.VERIFYING: "Reading backend",
    RunStatus.PLANNING: "Planning",
    RunStatus.APPLYING: "Applying",
}


@dataclass(frozen=True, slots=True)
class StageRow:
    name: str
    state: str
    at: datetime | None
    """When it began. None: it has not begun."""
    took: float | None
    """Seconds. None: it has not ended."""
    note: str = ""
    is_now: bool = False


def stage_rows(run: Run, numbers: Mapping[str, int]) -> list[StageRow]:
    """The stages from the queue, or from the approval. ``numbers``: item status → number of items of its plan."""
    times = _stage_times(run)
    last = next((status for status in reversed(times) if status in _STAGES), None)
    ended = run.status not in RUNNING and run.status is not RunStatus.QUEUED
    stages = []
    for status, name in _STAGES.items():
        if status not in times:
            is_skipped = status is RunStatus.VERIFYING or (run.dry_run and status is RunStatus.APPLYING)
            if not ended and not is_skipped:
                stages.append(StageRow(name, "coming", None, None))
            continue
        began, until = times[status]
        is_now = status is run.status
        shown = "Approved" if status is RunStatus.QUEUED and run.approved_at is not None else name
        shown = _IN_PROGRESS.get(status, shown) if is_now else shown
        took = None if until is None or is_now else (until - began).total_seconds()
        state = run.status.value if is_now else _outcome(status, run, numbers, is_last=status is last)
        stages.append(StageRow(shown, state, began, took, _note(status, run, numbers), is_now))
    return stages


def _outcome(status: RunStatus, run: Run, numbers: Mapping[str, int], *, is_last: bool) -> str:
    """The state of a stage that has ended."""
    if is_last and run.status is RunStatus.FAILED:
        return "failed"
    if status is RunStatus.APPLYING and numbers.get("failed"):
        return "partial" if numbers.get("done") else "failed"
    return "warning" if status is RunStatus.READING and unread_sources(run).short else "done"


def _stage_times(run: Run) -> dict[RunStatus, tuple[datetime, datetime | None]]:
    """Status → when the run got and left it since it was last queued."""
    times: dict[RunStatus, tuple[datetime, datetime | None]] = {}
    stages = run.stages or _stages_without_times(run)
    for stage, following in zip_longest(stages, stages[1:]):
        if stage.status is RunStatus.QUEUED:
            times = {}
        elif stage.status is RunStatus.VERIFYING:
            # A run is briefly in planning before it reads the backend, and plans after it.
            times.pop(RunStatus.PLANNING, None)
        times[stage.status] = stage.at, run.finished_at if following is None else following.at
    return times


def _stages_without_times(run: Run) -> tuple[Stage, ...]:
    """The stages of a run of an older version, which stored none."""
    stages = {RunStatus.QUEUED: run.requested_at}
    if run.started_at is not None:
        stages[RunStatus.READING] = run.started_at
    if run.status in _STAGES:
        stages.setdefault(run.status, run.started_at or run.requested_at)
    return tuple(Stage(status, at) for status, at in stages.items())


def _note(status: RunStatus, run: Run, numbers: Mapping[str, int]) -> str:
    if status is RunStatus.READING:
        return unread_sources(run).short
    if status is RunStatus.PLANNING and run.plan_id is not None:
        return counted(numbers.get("planned", 0), "item")
    if status is RunStatus.APPLYING:
        sent = [f"{numbers[name]:,} {name}" for name in ("done", "failed") if numbers.get(name)]
        return ", ".join(sent) or "nothing sent"
    return ""


_REFUSED_CALL = re.compile(r"(?P<problem>.+): (?P<call>[a-z_]+: [A-Z_]+): (?P<answer>.+)", re.DOTALL)
_UNKNOWN_CAUSES = ("an error of the program", "ended unexpectedly")


class ErrorParts(NamedTuple):
    """The error of a run in parts, each without a full stop."""

    problem: str
    answer: str
    """What the backend answered. Empty: the problem contains everything."""
    call: str
    """The operation and the code of the answer."""
    is_explained: bool
    """Whether it names the cause. Otherwise the doctor may find it."""

    @property
    def refuses_credentials(self) -> bool:
        return self.call.endswith((f": {Status.UNAUTHENTICATED}", f": {Status.PERMISSION_DENIED}"))


def error_parts(error: str) -> ErrorParts:
    """The parts of ``Run.error``."""
    is_explained = not any(cause in error for cause in _UNKNOWN_CAUSES)
    refused = _REFUSED_CALL.fullmatch(error)
    if refused is None:
        return ErrorParts(error, "", "", is_explained)
    return ErrorParts(refused["problem"], refused["answer"].rstrip("."), refused["call"], is_explained)


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One phase of the plan: the number of items sent, and the total that the run sends."""

    name: str
    sent: int
    to_send: int

    @property
    def state(self) -> str:
        if self.sent >= self.to_send:
            return "done"
        return "applying" if self.sent else "coming"


def phase_rows(run: Run, parts: Sequence[PlanPart]) -> list[PhaseRow]:
    """The phases of the run's plan, without those that send nothing.

    A run counts its items by kind and action, and executes its phases in order. So the sent items of a kind and action
    are attributed to the earlier phases, and the ones that are not sent to the later ones.
    """
    later = Counter[tuple[str, str]]()
    for part in parts:
        later[part.kind, part.action] += part.items
    settled = {key: _sent_and_unsent(run, *key, number) for key, number in later.items()}
    sent_in, to_send_in = Counter[int](), Counter[int]()
    for part in parts:
        key = part.kind, part.action
        sent, unsent = settled[key]
        later[key] -= part.items
        to_send = max(0, part.items - max(0, unsent - later[key]))
        sent_here = min(to_send, sent)
        settled[key] = sent - sent_here, unsent - (part.items - to_send)
        sent_in[part.phase] += sent_here
        to_send_in[part.phase] += to_send
    phases = sorted(to_send_in.items())
    return [PhaseRow(_phase_name(phase), sent_in[phase], to_send) for phase, to_send in phases if to_send]


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
        return Phase(phase).name.lower().replace("_", " ").replace("users", "members").capitalize()
    except ValueError:
        return f"Phase {phase}"
