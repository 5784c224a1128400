"""Runs, their requests, and their statuses with the allowed moves.

The rules: ``app/sync/runs/README.md``, "Statuses".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from app.sync.ledger.counts import total
from app.sync.ledger.items import ItemKey

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

MOVES: Mapping[RunStatus, frozenset[RunStatus]] = MappingProxyType(
    {
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
)


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
    """With ``retry``: of these kinds; empty means all."""
    items: tuple[ItemKey, ...] = ()
    """With ``retry``: these items; empty means all."""
    asked_by: str | None = None
    asked_reason: str | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Files that replace configured sources in a dry run."""

    files: tuple[str, ...]
    emptied: tuple[str, ...] = ()
    """The names of sources that are read as empty, because one of the files replaces them."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A status of a run, and when it began."""

    status: RunStatus
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run; see ``app.sync.runs.tables.RunRow``."""

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
    report: Mapping[str, Any]  # JSON

    @property
    def is_running(self) -> bool:
        return self.status in RUNNING

    @property
    def plan_is_fixed(self) -> bool:
        """Whether it applies a plan that an operator has seen: a stored plan, or approved deletes."""
        return self.approved_at is not None or self.requested_plan_id is not None

    @property
    def decided(self) -> str | None:
        """The decision about it, with when, by whom and why; None if there is none."""
        if self.decision is None or self.decided_at is None:
            return None
        by = f" by {self.decided_by}" if self.decided_by else ""
        why = f" ({self.decision_reason})" if self.decision_reason else ""
        came_late = self.decision == "cancelled" and self.status is not RunStatus.CANCELLED
        what = "asked to be cancelled" if came_late else self.decision
        return f"{what} on {self.decided_at:%Y-%m-%d %H:%M} UTC{by}{why}"

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
                settled = sum(number for outcome, number in outcomes.items() if outcome != "planned")
                numbers[action] = numbers.get(action, 0) + outcomes.get("planned", 0) - settled
        return {action: number for action, number in numbers.items() if number}
