"""The tables of runs and workers. Times are epoch milliseconds."""

from sqlalchemy import BigInteger, Index, false
from sqlmodel import Field

from app.foundation.database.tables import StoreTable, index_of_rows


class RunRow(StoreTable, table=True):
    """One run of the synchronization."""

    __table_args__ = (
        Index(None, "status", "requested_at"),
        Index(None, "requested_at"),
        index_of_rows("ix_run_asked_by", "asked_by", "run_id", where="asked_by IS NOT NULL"),
    )

    run_id: str = Field(primary_key=True)
    trigger: str
    """schedule, verify_schedule, resync (HTTP), console, command, changes or continuation."""
    asked_by: str | None = None
    """Who requested it. None if it was scheduled, or unknown."""
    asked_reason: str | None = None
    status: str
    """A value of ``app.sync.runs.run.RunStatus``."""
    dry_run: bool = False
    verify: bool = False
    allow_deletes: bool = False
    retry: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    """Whether failed items are retried now."""
    kinds: str = Field(default="[]", sa_column_kwargs={"server_default": "[]"})
    """The kinds that ``retry`` is limited to, as a JSON list. Empty means all."""
    organization_ids: str = "[]"
    """The selection, with ``user_ids``, as JSON lists. Empty means all."""
    user_ids: str = "[]"
    ledger_id: int | None = None
    requested_plan_id: str | None = None
    """The stored plan to apply. ``plan_id`` is the plan that was made or applied."""
    plan_id: str | None = None
    revision: int | None = Field(default=None, sa_type=BigInteger)
    requested_at: int = Field(sa_type=BigInteger)
    started_at: int | None = Field(default=None, sa_type=BigInteger)
    finished_at: int | None = Field(default=None, sa_type=BigInteger)
    held_until: int | None = Field(default=None, sa_type=BigInteger)
    """Until when held deletes can be approved."""
    approved_at: int | None = Field(default=None, sa_type=BigInteger)
    """When the held deletes were approved, which queues the run again."""
    held_at: int | None = Field(default=None, sa_type=BigInteger)
    """When it ended with held deletes."""
    resumed_at: int | None = Field(default=None, sa_type=BigInteger)
    """When it started again after the approval."""
    decision: str | None = None
    """approved, discarded (both of held deletes) or cancelled."""
    decided_at: int | None = Field(default=None, sa_type=BigInteger)
    decided_by: str | None = None
    """The user of the command line, or the name of an admin token. None if unknown."""
    decision_reason: str | None = None
    cancel_requested: bool = False
    worker: str | None = None
    """The process that performs it (``app.sync.runs.run.process_name``)."""
    interrupted: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    """Whether its environment ended it, so that another run continues it."""
    continued_by: str | None = None
    """The run that continues it."""
    error: str | None = None
    counts: str = "{}"
    """JSON: kind → action → status of the items → number, updated with every settled call."""
    calls: int = 0
    stages: str = Field(default="[]", sa_column_kwargs={"server_default": "[]"})
    """Its statuses, as a JSON list of [status, time]."""
    items: str = Field(default="[]", sa_column_kwargs={"server_default": "[]"})
    """The items that ``retry`` is limited to, as a JSON list of [kind, organization, container, id]. Empty: all."""
    report: str = "{}"
    """Findings for the operator, as JSON."""


class RunTallyRow(StoreTable, table=True):
    """The number of runs that ever ended in a status. Runs themselves are pruned."""

    status: str = Field(primary_key=True)
    runs: int = Field(sa_type=BigInteger)


class RunKeyRow(StoreTable, table=True):
    """An idempotency key and its run. Several keys may have the same run."""

    idempotency_key: str = Field(primary_key=True)
    run_id: str = Field(index=True)


class RunFileRow(StoreTable, table=True):
    """The file of a preview that has not ended: a directory that replaces sources."""

    run_id: str = Field(primary_key=True)
    name: str
    """The name of the file, with an ending that the file source reads."""
    source: str
    """The source that it replaces. Empty: all."""
    content: bytes


class WorkerRow(StoreTable, table=True):
    """A worker that has not been stopped properly, or still runs."""

    worker_id: str = Field(primary_key=True)
    """Random, because workers in containers may have the same name."""
    name: str
    """Host and process id."""
    started_at: int = Field(sa_type=BigInteger)
    seen_at: int = Field(sa_type=BigInteger)
    """Its last heartbeat."""
    leads: bool = False
    """Whether it held the lock then."""
