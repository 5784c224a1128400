"""Runs: their requests, statuses and allowed moves, reports, and rows.

The rules: ``app/sync/runs/README.md``, "Statuses".

A row is locked, compared with the status that the caller expects, and changed in one transaction. If several processes
move one run, one succeeds, and the others get a ``RunConflictError``.
"""

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypedDict

from sqlalchemy import Connection, Row, select, update

from app.foundation.clock import epoch_ms, from_epoch_ms
from app.foundation.database import statements
from app.sync.ledger.items import ItemKey, ItemStatus
from app.sync.plan.counts import total
from app.sync.plan.selection import Selection
from app.sync.runs.tables import RunRow

HELD_FOR = timedelta(days=7)
"""How long held deletes can be approved."""


class RunStatus(StrEnum):
    """The status of a run."""

    QUEUED = "queued"
    READING = "reading"
    VERIFYING = "verifying"
    """The backend is read back."""
    PLANNING = "planning"
    APPLYING = "applying"
    DONE = "done"
    PARTIAL = "partial"
    """Some items failed or were skipped."""
    HELD = "held"
    """Deletes wait for approval; everything else was applied."""
    FAILED = "failed"
    CANCELLED = "cancelled"


RUNNING = frozenset({RunStatus.READING, RunStatus.VERIFYING, RunStatus.PLANNING, RunStatus.APPLYING})
FINAL = frozenset({RunStatus.DONE, RunStatus.PARTIAL, RunStatus.FAILED, RunStatus.CANCELLED})
ENDS = FINAL | {RunStatus.HELD}
"""Statuses with which executing a run ends. A held one may continue."""

MOVES: Mapping[RunStatus, frozenset[RunStatus]] = {
    RunStatus.QUEUED: frozenset({RunStatus.READING, RunStatus.CANCELLED, RunStatus.FAILED}),
    RunStatus.READING: frozenset({RunStatus.PLANNING, RunStatus.FAILED, RunStatus.CANCELLED}),
    RunStatus.PLANNING: frozenset({RunStatus.VERIFYING, RunStatus.APPLYING}) | ENDS,
    RunStatus.VERIFYING: frozenset({RunStatus.PLANNING, RunStatus.FAILED, RunStatus.CANCELLED}),
    RunStatus.APPLYING: ENDS,
    RunStatus.HELD: frozenset({RunStatus.QUEUED, RunStatus.CANCELLED}),
    RunStatus.DONE: frozenset(),
    RunStatus.PARTIAL: frozenset(),
    RunStatus.FAILED: frozenset(),
    RunStatus.CANCELLED: frozenset(),
}


def process_name(pid: int) -> str:
    """The name of a process of this host, as in ``Run.worker``: for operators and ``usher health``."""
    return f"{socket.gethostname()}:{pid}"


def program_error(error: Exception) -> str:
    """The ``error`` of a run that ended with an unexpected exception. Its message may contain secrets."""
    return f"an error of the program, {type(error).__name__}; the log has the details"


class RunError(Exception):
    """A request about a run cannot be met. The message is for the caller."""


class RunNotFoundError(RunError):
    """No run has this id."""


class RunConflictError(RunError):
    """The status of the run does not allow it, or an idempotency key was used for another request."""


class QueueFullError(RunError):
    """``MAX_QUEUED`` runs from HTTP requests are queued already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A request for a full run, or for a run of some organizations or users."""

    trigger: str
    organization_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()
    dry_run: bool = False
    verify: bool = False
    allow_deletes: bool = False
    idempotency_key: str | None = None
    plan_id: str | None = None
    """A stored plan to apply instead of making one."""
    alone: bool = False
    """Create a new run even if an identical one is queued."""
    retry: bool = False
    """Retry failed items now."""
    kinds: tuple[str, ...] = ()
    """The kinds that ``retry`` is limited to. Empty means all."""
    items: tuple[ItemKey, ...] = ()
    """The items that ``retry`` is limited to. Empty means all."""
    asked_by: str | None = None
    asked_reason: str | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Files that replace configured sources in a dry run."""

    files: tuple[str, ...]
    emptied: tuple[str, ...] = ()
    """The names of sources that are read as empty, because one of the files replaces them."""
    replaced: tuple[str, ...] = ()
    """The names of the sources that are read from the files. The run fails if one of them cannot be read."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A status of a run, and when it began."""

    status: RunStatus
    at: datetime


class SourceFinding(TypedDict):
    """A source that was not read completely."""

    name: str
    verdict: str
    reason: str
    malformed: int


class UnknownIds(TypedDict):
    """The first ids of a selection that exist in neither the directory nor the ledger, and the number of all."""

    organizationIds: list[str]
    userIds: list[str]
    count: int


class RunReport(TypedDict, total=False):
    """The findings of a run for the operator, as JSON. A report of a later version may have further topics."""

    sources: list[SourceFinding]
    losses: list[str]
    """A sentence for each source that lost records."""
    retainedSources: list[str]
    problemCounts: dict[str, int]
    """The sort of problems of the directory → their number."""
    problems: list[str]
    """The first of them."""
    whatIf: list[str]
    """The files that replaced sources."""
    unknown: UnknownIds
    contentsNotRead: str
    interruptedCalls: int
    planOfChangesDiffers: bool
    retried: dict[str, int]
    held: list[dict[str, object]]
    """``Hold.to_wire()`` of each hold."""
    impact: dict[str, Any]
    """``ImpactOfDryRun.summary()``"""
    verify: dict[str, Any]
    """``VerifyReport.to_wire()``"""
    unsupportedOperations: list[str]
    rolesAndAccessTypesUnsupported: bool
    unsupported: dict[str, int]
    """The operation that the backend does not support → the number of items."""
    leftBehind: dict[str, int]
    """The kind of items that cannot be deleted → their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. See ``app.sync.runs.tables.RunRow``."""

    run_id: str
    trigger: str
    asked_by: str | None
    asked_reason: str | None
    status: RunStatus
    dry_run: bool
    verify: bool
    allow_deletes: bool
    organization_ids: tuple[str, ...]
    user_ids: tuple[str, ...]
    retry: bool
    kinds: tuple[str, ...]
    items: tuple[ItemKey, ...]
    ledger_id: int | None
    requested_plan_id: str | None
    plan_id: str | None
    revision: int | None
    requested_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    held_until: datetime | None
    approved_at: datetime | None
    held_at: datetime | None
    resumed_at: datetime | None
    decision: str | None
    decided_at: datetime | None
    decided_by: str | None
    decision_reason: str | None
    cancel_requested: bool
    worker: str | None
    interrupted: bool
    continued_by: str | None
    error: str | None
    counts: Mapping[str, Mapping[str, Mapping[str, int]]]
    """kind → action → {planned, done, failed, held, ...}. ``planned`` is the number of all items."""
    calls: int
    stages: tuple[Stage, ...]
    report: RunReport

    @property
    def selection(self) -> Selection:
        return Selection.of(self.organization_ids, self.user_ids)

    @property
    def is_running(self) -> bool:
        return self.status in RUNNING

    @property
    def plan_is_fixed(self) -> bool:
        """Whether it applies a plan that an operator has seen: a stored plan, or approved deletes."""
        return self.approved_at is not None or self.requested_plan_id is not None

    @property
    def decided(self) -> str | None:
        """The decision about it, with when, by whom and why. None if there is none."""
        if self.decision is None or self.decided_at is None:
            return None
        by = f" by {self.decided_by}" if self.decided_by else ""
        why = f" ({self.decision_reason})" if self.decision_reason else ""
        came_late = self.decision == "cancelled" and self.status is not RunStatus.CANCELLED
        decision = "asked to be cancelled" if came_late else self.decision
        return f"{decision} on {self.decided_at:%Y-%m-%d %H:%M} UTC{by}{why}"

    @property
    def last_decision(self) -> "Run | None":
        """Itself, if there was a decision about it."""
        return None if self.decision is None else self

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    def total(self, status: str) -> int:
        """The number of items with this status."""
        return total(self.counts, status)

    def pending(self) -> Mapping[str, int]:
        """Action → the number of items that applying the plan would send now."""
        numbers: dict[str, int] = {}
        for actions in self.counts.values():
            for action, outcomes in actions.items():
                settled = sum(number for outcome, number in outcomes.items() if outcome != ItemStatus.PLANNED)
                numbers[action] = numbers.get(action, 0) + outcomes.get(ItemStatus.PLANNED, 0) - settled
        return {action: number for action, number in numbers.items() if number}


RUN = RunRow.__table__

_MOMENTS = (
    *("requested_at", "started_at", "finished_at", "held_until"),
    *("approved_at", "held_at", "resumed_at", "decided_at"),
)

_COUNT_END = """
INSERT INTO run_tally (status, runs) VALUES (:status, 1)
ON CONFLICT (status) DO UPDATE SET runs = run_tally.runs + 1
"""


def row_of(connection: Connection, run_id: str, *, locked: bool = False) -> Row[tuple[object, ...]]:
    """The row of a run; ``locked`` until the transaction ends. Raises ``RunNotFoundError``."""
    query = select(RUN).where(RUN.c.run_id == run_id)
    row = connection.execute(query.with_for_update() if locked else query).first()
    if row is None:
        raise RunNotFoundError(f"there is no run {run_id}")
    return row


def allowed_deletes(connection: Connection, plan_id: str) -> bool:
    """Whether the limits were lifted for the run that made the plan."""
    made_by = select(RUN.c.allow_deletes).where(RUN.c.plan_id == plan_id, RUN.c.requested_plan_id.is_(None))
    return bool(connection.execute(made_by.order_by(RUN.c.requested_at).limit(1)).scalar())


def lock_run(connection: Connection, run_id: str) -> Run:
    """Reads a run and locks it until the transaction ends."""
    return run_from(row_of(connection, run_id, locked=True))


def move(connection: Connection, run: Run, to: RunStatus, at: datetime, **values: object) -> Run:
    """Moves a locked run to another status. Raises ``RunConflictError`` if that move is not allowed."""
    if to not in MOVES[run.status]:
        raise RunConflictError(f"the run is {run.status} and cannot become {to}")
    stages = json.dumps([[stage.status, epoch_ms(stage.at)] for stage in (*run.stages, Stage(to, at))])
    moved = change(connection, run, status=to.value, stages=stages, **values)
    if to in ENDS:
        statements.run(connection, _COUNT_END, {"status": to.value})
        if run.dry_run:
            statements.run(connection, "DELETE FROM run_file WHERE run_id = :run_id", {"run_id": run.run_id})
    return moved


def change(connection: Connection, run: Run, **values: object) -> Run:
    """Sets columns of a locked run. Raises ``RunConflictError`` if its status has changed."""
    new = {name: _stored(value) for name, value in values.items()}
    same = update(RUN).where(RUN.c.run_id == run.run_id, RUN.c.status == run.status.value)
    row = connection.execute(same.values(new).returning(RUN)).first()
    if row is None:
        raise RunConflictError(f"the run was {run.status} and is {row_of(connection, run.run_id).status} now")
    return run_from(row)


def run_from(row: Row[tuple[object, ...]]) -> Run:
    values = row._asdict()
    values["status"] = RunStatus(values["status"])
    for name in ("organization_ids", "user_ids", "kinds"):
        values[name] = tuple(json.loads(values[name]))
    for name in ("counts", "report"):
        values[name] = json.loads(values[name])
    values["stages"] = tuple(Stage(RunStatus(status), from_epoch_ms(at)) for status, at in json.loads(values["stages"]))
    values["items"] = tuple(ItemKey(*key) for key in json.loads(values["items"]))
    for name in _MOMENTS:
        values[name] = None if values[name] is None else from_epoch_ms(values[name])
    return Run(**values)


def _stored(value: object) -> object:
    if isinstance(value, datetime):
        return epoch_ms(value)
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return value
