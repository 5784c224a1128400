"""The tables of runs and workers. Times are epoch milliseconds."""

from sqlalchemy import BigInteger, Index, false
from sqlmodel import Field

from app.foundation.database.tables import StoreTable


class RunRow(StoreTable, table=True):
    """One run of the synchronization, from its request to its end."""

    __tablename__ = "run"
    __table_args__ = (Index(None, "status", "requested_at"), Index(None, "requested_at"))

    run_id: str = Field(primary_key=True)
    trigger: str
    """schedule, verify_schedule, resync (HTTP), console, command."""
    asked_by: str | None = None
    """Who asked for it, as far as it is known; None: it came by itself, or before that was written down."""
    asked_reason: str | None = None
    """Why, in their words."""
    status: str
    """queued, reading, planning, applying, done, partial, held, failed, cancelled."""
    dry_run: bool = False
    verify: bool = False
    allow_deletes: bool = False
    retry: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    """Whether what waits after a failure, or is parked, is tried now."""
    kinds: str = Field(default="[]", sa_column_kwargs={"server_default": "[]"})
    """Of which kinds, as a JSON list; empty: all."""
    organization_ids: str = "[]"
    user_ids: str = "[]"
    ledger_id: int | None = None
    requested_plan_id: str | None = None
    """The stored plan that was asked for; ``plan_id`` is the one that was made or taken."""
    plan_id: str | None = None
    revision: int | None = Field(default=None, sa_type=BigInteger)
    requested_at: int = Field(sa_type=BigInteger)
    started_at: int | None = Field(default=None, sa_type=BigInteger)
    finished_at: int | None = Field(default=None, sa_type=BigInteger)
    held_until: int | None = Field(default=None, sa_type=BigInteger)
    """Until when held deletes can be approved."""
    approved_at: int | None = Field(default=None, sa_type=BigInteger)
    """When someone let the held deletes go; the run is then queued again for exactly those."""
    held_at: int | None = Field(default=None, sa_type=BigInteger)
    """When it ended for the first time, with deletes that wait for somebody's word."""
    resumed_at: int | None = Field(default=None, sa_type=BigInteger)
    """When what was approved was begun; ``started_at`` stays as it was."""
    decision: str | None = None
    """What somebody said about it: approved, discarded (both of held deletes), cancelled."""
    decided_at: int | None = Field(default=None, sa_type=BigInteger)
    decided_by: str | None = None
    """Who said so, as far as it is known: the user of the command line, or which admin token."""
    decision_reason: str | None = None
    cancel_requested: bool = False
    worker: str | None = None
    interrupted: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    """Whether what ended it had nothing to do with it: another try goes on from there."""
    continued_by: str | None = None
    """The run that went on from there."""
    error: str | None = None
    counts: str = "{}"
    """JSON: kind → action → {planned, done, failed, held, …}, kept up to date with every settled call."""
    calls: int = 0
    """Write calls that were sent."""
    stages: str = Field(default="[]", sa_column_kwargs={"server_default": "[]"})
    """When it came into which status, as a JSON list of [status, moment]; empty: before that was written down."""
    items: str = Field(default="[]", sa_column_kwargs={"server_default": "[]"})
    """With ``retry``: which items alone, as a JSON list of [kind, organization, container, id]; empty: all."""
    report: str = "{}"
    """JSON: what an operator should know: sources, problems, what could not be told to the backend, what is foreign."""


class RunTallyRow(StoreTable, table=True):
    """How many runs ever ended in a status; runs themselves are forgotten after a while."""

    __tablename__ = "run_tally"

    status: str = Field(primary_key=True)
    runs: int = Field(sa_type=BigInteger)


class RunKeyRow(StoreTable, table=True):
    """Which run an idempotency key stands for: several keys may have been answered with the same queued run."""

    __tablename__ = "run_key"

    idempotency_key: str = Field(primary_key=True)
    run_id: str = Field(index=True)


class WorkerRow(StoreTable, table=True):
    """A worker that has not said goodbye. Times are epoch milliseconds."""

    __tablename__ = "worker"

    worker_id: str = Field(primary_key=True)
    """Random: in a container every worker may have the same name."""
    name: str
    """Machine and process id, for people."""
    started_at: int = Field(sa_type=BigInteger)
    seen_at: int = Field(sa_type=BigInteger)
    """Its last sign of life."""
    leads: bool = False
    """Whether it held the right to synchronize then."""
