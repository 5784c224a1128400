"""A run, what may be asked of it, and the statuses that it goes through.

The rules: ``app/sync/runs/README.md``, "Statuses".

The statuses and the moves between them stand in ``MOVES`` and nowhere else.
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
"""How long held deletes wait for someone's word."""


class RunStatus(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    READING = "reading"
    VERIFYING = "verifying"
    """The backend is read back."""
    PLANNING = "planning"
    APPLYING = "applying"
    DONE = "done"
    PARTIAL = "partial"
    """Some items failed or were skipped; the others stand."""
    HELD = "held"
    """Deletes wait for approval; everything else was applied."""
    FAILED = "failed"
    CANCELLED = "cancelled"


RUNNING = frozenset({RunStatus.READING, RunStatus.VERIFYING, RunStatus.PLANNING, RunStatus.APPLYING})
FINAL = frozenset({RunStatus.DONE, RunStatus.PARTIAL, RunStatus.FAILED, RunStatus.CANCELLED})
ENDS = FINAL | {RunStatus.HELD}
"""What a run comes to by itself; a held one may go on."""

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
    """Something that was asked of a run cannot be; the text is for whoever asked."""


class RunNotFoundError(RunError):
    """There is no run of that id."""


class RunConflictError(RunError):
    """The run is not in a status in which this can be, or an idempotency key was used for something else."""


class QueueFullError(RunError):
    """``MAX_QUEUED`` runs that were asked for over HTTP are queued already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What someone wants: a run of everything, or narrowed to organizations or users."""

    trigger: str
    """``schedule``, ``verify_schedule``, ``resync``, ``command``, ``continuation`` or ``changes``."""
    organization_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()
    dry_run: bool = False
    verify: bool = False
    allow_deletes: bool = False
    idempotency_key: str | None = None
    plan_id: str | None = None
    """A stored plan to apply instead of making one."""
    alone: bool = False
    """Whether an identical run that waits is no answer to it: whoever asks carries it out in a way of their own."""
    retry: bool = False
    """Tries now what waits for its next try or is parked."""
    kinds: tuple[str, ...] = ()
    """Of which kinds; empty: all. Only with ``retry``."""
    items: tuple[ItemKey, ...] = ()
    """Which items alone; empty: all. Only with ``retry``."""
    asked_by: str | None = None
    """Who asks for it, as far as it is known; None: it comes by itself."""
    asked_reason: str | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Files that replace configured sources in a dry run."""

    files: tuple[str, ...]
    emptied: tuple[str, ...] = ()
    """The names of sources that are read as empty, because one of the files replaces them."""


@dataclass(frozen=True, slots=True)
class Stage:
    """That a run came into a status, and when."""

    status: RunStatus
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run as it stands in the database."""

    run_id: str
    trigger: str
    asked_by: str | None
    """Who asked for it; None: it came by itself, or nobody knows any more."""
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
    """When what was approved was begun."""
    decision: str | None
    """``approved``, ``discarded`` or ``cancelled``, where somebody said so."""
    decided_at: datetime | None
    decided_by: str | None
    decision_reason: str | None
    cancel_requested: bool
    worker: str | None
    interrupted: bool
    """Whether it ended for want of its process, its database or its lock, so that another try goes on from there"""
    continued_by: str | None
    error: str | None
    counts: Mapping[str, Mapping[str, Mapping[str, int]]]
    """kind → action → {planned, done, failed, held, ...}; ``planned`` counts all of them, whatever became of them"""
    calls: int
    stages: tuple[Stage, ...]
    """Into which statuses it came, in order; those before that was written down are missing."""
    report: Mapping[str, Any]  # JSON

    @property
    def is_running(self) -> bool:
        return self.status in RUNNING

    @property
    def plan_is_settled(self) -> bool:
        """Whether it applies what somebody has seen: a stored plan, or held deletes that were approved."""
        return self.approved_at is not None or self.requested_plan_id is not None

    @property
    def decided(self) -> str | None:
        """What somebody said about it, when, who and why, in words; None: nobody has said anything."""
        if self.decision is None or self.decided_at is None:
            return None
        by = f" by {self.decided_by}" if self.decided_by else ""
        why = f" ({self.decision_reason})" if self.decision_reason else ""
        came_late = self.decision == "cancelled" and self.status is not RunStatus.CANCELLED
        what = "asked to be cancelled" if came_late else self.decision
        return f"{what} on {self.decided_at:%Y-%m-%d %H:%M} UTC{by}{why}"

    @property
    def is_final(self) -> bool:
        """Nothing can happen to it any more."""
        return self.status in FINAL

    def total(self, outcome: str) -> int:
        """How many items, over all kinds and actions, have this outcome (``done``, ``failed``, ``held``, ...)."""
        return total(self.counts, outcome)

    def still_to_send(self) -> Mapping[str, int]:
        """action → how many items nothing kept back and nothing became of: what applying the plan would send now."""
        numbers: dict[str, int] = {}
        for actions in self.counts.values():
            for action, outcomes in actions.items():
                settled = sum(number for outcome, number in outcomes.items() if outcome != "planned")
                numbers[action] = numbers.get(action, 0) + outcomes.get("planned", 0) - settled
        return {action: number for action, number in numbers.items() if number}
