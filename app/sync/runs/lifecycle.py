"""The life cycle of runs: enqueue, move, approve, cancel, continue and prune.

The rules: ``app/sync/runs/README.md``, "Statuses".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import TypeVar

from sqlalchemy import Column, Connection, Engine, Select, delete, func, or_, select, update
from sqlalchemy.exc import DBAPIError

from app.access.pending import pending_since
from app.access.refresh.model_changes import delete_unused_payloads
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database import statements
from app.foundation.database.engine import reading, writing
from app.foundation.database.errors import is_outage
from app.sync.ledger.items import ItemStatus
from app.sync.ledger.tables import CallRow
from app.sync.plan.discards import discard_held
from app.sync.plan.listing import PlannedChange, Sum, list_changes, sum_up
from app.sync.plan.search import ItemFilter
from app.sync.plan.stored_access import AccessCount, StoredAccessChange, access_counts, list_access
from app.sync.plan.tables import PlanAccessRow, PlanImpactRow, PlanItemRow, PlanPartRow, PlanRow
from app.sync.runs.files import delete_files_of_ended_runs
from app.sync.runs.history import recent_runs
from app.sync.runs.queue import CHANGES, CONTINUATION, KEY, enqueue, lock_queue, requests_for_changes
from app.sync.runs.run import (
    RUN,
    RUNNING,
    Run,
    RunConflictError,
    RunNotFoundError,
    RunRequest,
    RunStatus,
    change,
    lock_run,
    move,
    row_of,
    run_from,
)

LATEST = "latest"
"""An alias of the id of the newest run or plan."""

MAX_CONTINUATIONS = 5
"""The number of failed runs in a row after which none continues, because they may crash every process."""

_CHANGES_KEPT = timedelta(days=1)
"""How long successful runs of changes are kept."""

_PLAN = PlanRow.__table__
_OF_PLANS = (PlanItemRow.__table__, PlanPartRow.__table__, PlanImpactRow.__table__, PlanAccessRow.__table__)
_CALL = CallRow.__table__


_Row = TypeVar("_Row")

AuditHook = Callable[[Connection, Run], None]
"""Writes the audit row of an action on a run, in the transaction of the action."""


def no_audit(connection: Connection, run: Run) -> None:
    """Writes no row."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs in one database."""

    engine: Engine
    clock: Clock
    random: Random

    def enqueue(self, request: RunRequest, *, audit_hook: AuditHook = no_audit) -> tuple[Run, bool]:
        """Creates a run, or finds the one with the same key or an identical queued one. Returns whether it was created.

        Raises ``RunConflictError`` if the key was used for a different request, and ``QueueFullError``.
        """
        with writing(self.engine) as connection:
            lock_queue(connection)
            run, created = enqueue(connection, request, now=self.clock(), random=self.random)
            audit_hook(connection, run)
            return run, created

    def enqueue_changes(self, delay: timedelta) -> list[Run]:
        """Queues runs of the changes between two syncs, once the first change is ``delay`` old. Returns the runs.

        The changes are removed in the same transaction, so that a crash loses none.
        """
        due = epoch_ms(self.clock() - delay)
        with reading(self.engine) as connection:
            # Most calls find nothing, and need no write transaction.
            since = pending_since(connection)
        if since is None or since > due:
            return []
        with writing(self.engine) as connection:
            lock_queue(connection)
            requests = requests_for_changes(connection)
            return [enqueue(connection, request, now=self.clock(), random=self.random)[0] for request in requests]

    def get(self, run_id: str) -> Run:
        """Raises ``RunNotFoundError``."""
        with reading(self.engine) as connection:
            return run_from(row_of(connection, run_id))

    def find_id(self, prefix: str) -> str:
        """The id of the run whose id begins with ``prefix``, or of the ``latest``. Raises ``RunNotFoundError``."""
        return self._find_id(RUN.c.run_id, prefix, "run", select(RUN.c.run_id).order_by(RUN.c.run_id.desc()))

    def find_held_id(self, prefix: str, *, can_be_approved: bool = False) -> str:
        """The id of the run whose id begins with ``prefix``, or of the ``latest`` held run.

        ``can_be_approved``: of the latest one that can still be approved. Raises ``RunNotFoundError``.
        """
        latest = select(RUN.c.run_id).where(RUN.c.status == RunStatus.HELD).order_by(RUN.c.run_id.desc())
        if can_be_approved:
            latest = latest.where(or_(RUN.c.held_until.is_(None), RUN.c.held_until >= epoch_ms(self.clock())))
        return self._find_id(RUN.c.run_id, prefix, "run", latest, "held run")

    def find_plan_id(self, prefix: str) -> str:
        """The id of the plan whose id begins with ``prefix``, or of the ``latest`` plan of a dry run.

        Raises ``RunNotFoundError``.
        """
        latest = (
            select(RUN.c.plan_id)
            .join(_PLAN, _PLAN.c.plan_id == RUN.c.plan_id)
            .where(RUN.c.dry_run, RUN.c.status == RunStatus.DONE)
            .order_by(_PLAN.c.created_at.desc(), _PLAN.c.plan_id.desc())
        )
        return self._find_id(_PLAN.c.plan_id, prefix, "plan", latest)

    def _find_id(
        self, ids: Column[str], prefix: str, noun: str, latest: Select[tuple[str | None]], of_latest: str = ""
    ) -> str:
        """``noun``: the name of what is searched, in messages. ``of_latest``: in those about the ``latest``."""
        with reading(self.engine) as connection:
            if prefix == LATEST:
                noun = of_latest or noun
                matches = [str(row_id) for row_id in connection.execute(latest.limit(1)).scalars()]
            else:
                query = select(ids).where(func.substr(ids, 1, len(prefix)) == prefix).order_by(ids.desc()).limit(2)
                matches = [str(row_id) for row_id in connection.execute(query).scalars()]
                exact = connection.execute(select(ids).where(ids == prefix)).scalar()
                matches = [exact] if exact is not None else matches
        if len(matches) > 1:
            raise RunNotFoundError(f"more than one {noun} begins with {prefix}, as {matches[0]} and {matches[1]}")
        if not matches or not prefix:
            raise RunNotFoundError(f"there is no {noun} yet" if prefix == LATEST else f"there is no {noun} {prefix}")
        return str(matches[0])

    def recent(self, limit: int = 50) -> list[Run]:
        """The latest runs, newest first."""
        with reading(self.engine) as connection:
            return recent_runs(connection, limit)

    def next_queued(self) -> Run | None:
        """The oldest queued run."""
        with reading(self.engine) as connection:
            row = connection.execute(
                select(RUN).where(RUN.c.status == RunStatus.QUEUED).order_by(RUN.c.requested_at, RUN.c.run_id).limit(1)
            ).first()
        return None if row is None else run_from(row)

    def move(self, run_id: str, expected: RunStatus, to: RunStatus, **values: object) -> Run:
        """Moves a run, and sets further columns.

        Raises ``RunConflictError`` if the run does not have the expected status, or if the move is not allowed.
        """
        with writing(self.engine) as connection:
            run = lock_run(connection, run_id)
            if run.status is not expected:
                raise RunConflictError(f"the run is {run.status}, not {expected}, and cannot become {to}")
            return move(connection, run, to, self.clock(), **values)

    def end(self, run_id: str, outcome: Callable[[Connection], tuple[RunStatus, Mapping[str, object]]]) -> Run:
        """Ends a running run with the status and columns of ``outcome``, which is called in the same transaction.

        Raises ``RunConflictError`` if another process has ended it.
        """
        with writing(self.engine) as connection:
            run = lock_run(connection, run_id)
            if not run.is_running:
                raise RunConflictError(f"the run is {run.status}: it has ended already")
            to, values = outcome(connection)
            return move(connection, run, to, self.clock(), **values)

    def update(self, run_id: str, expected: RunStatus, **values: object) -> None:
        """Sets columns of a run. Raises ``RunConflictError`` if it does not have the expected status."""
        with writing(self.engine) as connection:
            run = lock_run(connection, run_id)
            if run.status is not expected:
                raise RunConflictError(f"the run is {run.status}, not {expected}")
            change(connection, run, **values)

    def approve(
        self, run_id: str, *, by: str | None = None, reason: str | None = None, audit_hook: AuditHook = no_audit
    ) -> Run:
        """Queues a held run again for its held deletes. Raises ``RunConflictError`` if it cannot be approved."""
        now = self.clock()
        with writing(self.engine) as connection:
            run = _lock_held(connection, run_id, "approved")
            if run.held_until is not None and run.held_until < now:
                raise RunConflictError(
                    f"the held deletes could be approved until {run.held_until:%Y-%m-%d %H:%M} UTC; "
                    "a new run holds them again if they are still due"
                )
            decision = _decision("approved", now, by, reason)
            audit_hook(connection, run)
            return move(
                connection, run, RunStatus.QUEUED, now, approved_at=now, finished_at=None, held_until=None, **decision
            )

    def discard(
        self, run_id: str, *, by: str | None = None, reason: str | None = None, audit_hook: AuditHook = no_audit
    ) -> Run:
        """Discards the held deletes of a run. Raises ``RunConflictError`` if it is not held."""
        with writing(self.engine) as connection:
            run = _lock_held(connection, run_id, "discarded")
            audit_hook(connection, run)
            return _discard(connection, run, self.clock(), by, reason)

    def cancel(
        self, run_id: str, *, by: str | None = None, reason: str | None = None, audit_hook: AuditHook = no_audit
    ) -> Run:
        """Ends a queued run, requests the end of a running one, or discards the deletes of a held one.

        Raises ``RunConflictError`` if the run has ended.
        """
        with writing(self.engine) as connection:
            run = lock_run(connection, run_id)
            now = self.clock()
            if not run.is_final:
                audit_hook(connection, run)
            if run.status is RunStatus.HELD:
                return _discard(connection, run, now, by, reason)
            # An approval is not overwritten.
            decision = {} if run.decision else _decision("cancelled", now, by, reason)
            if run.status is RunStatus.QUEUED:
                return move(
                    connection, run, RunStatus.CANCELLED, now, cancel_requested=True, finished_at=now, **decision
                )
            if run.is_running:
                return change(connection, run, cancel_requested=True, **decision)
            raise RunConflictError(f"the run has ended: {_run_status(run)}")

    def is_cancelled(self, run_id: str) -> bool:
        """Whether the run is to be cancelled. False if the database is unavailable, which the next write handles."""
        try:
            with reading(self.engine) as connection:
                query = "SELECT cancel_requested FROM run WHERE run_id = :run_id"
                return bool(statements.run(connection, query, {"run_id": run_id}).scalar())
        except DBAPIError as error:
            if not is_outage(error):
                raise
            return False

    def changes(
        self,
        run_id: str,
        status: str | None = None,
        kind: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> list[PlannedChange]:
        """The next items of the run's plan after the ordinal ``after``. Raises ``RunNotFoundError``."""
        criteria = ItemFilter(status=status, kind=kind)
        return self._of_plan(run_id, partial(list_changes, criteria=criteria, after=after, limit=limit))

    def summary(self, run_id: str) -> list[Sum]:
        """The sums of the run's plan. Raises ``RunNotFoundError``."""
        return self._of_plan(run_id, sum_up)

    def access_counts(self, run_id: str) -> list[AccessCount]:
        """The access impact of a dry run by organization and kind. Raises ``RunNotFoundError``."""
        return self._of_plan(run_id, access_counts)

    def access_changes(self, run_id: str, after: int = 0, limit: int = 100) -> list[StoredAccessChange]:
        """The next rows of the access impact after the ordinal ``after``. Raises ``RunNotFoundError``."""
        return self._of_plan(run_id, partial(list_access, after=after, limit=limit))

    def _of_plan(self, run_id: str, read: Callable[[Connection, str], list[_Row]]) -> list[_Row]:
        with reading(self.engine) as connection:
            plan_id = row_of(connection, run_id).plan_id
            return [] if plan_id is None else read(connection, plan_id)

    def end_orphans(self, causes: Mapping[str, str] | None = None) -> list[Run]:
        """Ends the runs of processes that died or lost their database, and returns them.

        The caller holds the lock, so no run is really running. ``causes``: run id → why it ended, if it is known.
        """
        with writing(self.engine) as connection:
            orphans = connection.execute(
                select(RUN).where(RUN.c.status.in_(list(RUNNING))).order_by(RUN.c.run_id).with_for_update()
            ).all()
            ended = []
            for run in map(run_from, orphans):
                by = f" ({run.worker})" if run.worker else ""
                guess = f"the process that ran it{by}, or its connection to the database, ended unexpectedly"
                error = f"{(causes or {}).get(run.run_id, guess)}; the next run continues from there"
                now = self.clock()
                ended.append(
                    move(connection, run, RunStatus.FAILED, now, error=error, finished_at=now, interrupted=True)
                )
            return ended

    def continue_run(self, run: Run) -> Run | None:
        """Queues the run that continues an interrupted one, once, and returns it.

        Returns None for dry runs, stored plans and cancelled runs, and after ``MAX_CONTINUATIONS`` failed runs in a
        row. Runs that were stopped with their process, as in every deployment, do not count."""
        if run.dry_run or run.cancel_requested or run.requested_plan_id is not None:
            return None
        with reading(self.engine) as connection:
            before = 0
            continuation: str | None = run.run_id
            while continuation is not None and before <= MAX_CONTINUATIONS:
                row = connection.execute(
                    select(RUN.c.run_id, RUN.c.status).where(RUN.c.continued_by == continuation)
                ).first()
                continuation = None if row is None else row.run_id
                before += row is not None and row.status == RunStatus.FAILED
        if before >= MAX_CONTINUATIONS and run.status is RunStatus.FAILED:
            return None
        request = RunRequest(
            trigger=CONTINUATION,
            organization_ids=run.organization_ids,
            user_ids=run.user_ids,
            verify=run.verify,
            allow_deletes=run.allow_deletes,
            retry=run.retry,
            kinds=run.kinds,
            items=run.items,
            idempotency_key=f"{CONTINUATION} {run.run_id}",
        )
        follower, _created = self.enqueue(request)
        with writing(self.engine) as connection:
            connection.execute(update(RUN).where(RUN.c.run_id == run.run_id).values(continued_by=follower.run_id))
        return follower

    def prune(self, older_than: timedelta) -> int:
        """Deletes older runs with their plans and calls, except those that can be approved. Returns their number."""
        before = epoch_ms(self.clock() - older_than)
        # Runs of changes may be frequent, so successful ones are deleted earlier.
        brief = epoch_ms(self.clock() - min(older_than, _CHANGES_KEPT))
        with writing(self.engine) as connection:
            # The DELETE has the conditions, so that they are checked again for a run that is moved meanwhile.
            pruned = connection.execute(
                delete(RUN)
                .where(
                    (RUN.c.finished_at < before)
                    | ((RUN.c.finished_at < brief) & (RUN.c.trigger == CHANGES) & (RUN.c.status == RunStatus.DONE))
                )
                .where((RUN.c.status != RunStatus.HELD) | (RUN.c.held_until < epoch_ms(self.clock())))
            ).rowcount
            connection.execute(delete(KEY).where(KEY.c.run_id.not_in(select(RUN.c.run_id))))
            connection.execute(delete(_CALL).where(_CALL.c.settled_at < before))
            made = select(RUN.c.plan_id).where(RUN.c.plan_id.is_not(None))
            requested = select(RUN.c.requested_plan_id).where(RUN.c.requested_plan_id.is_not(None))
            in_flight = select(_CALL.c.plan_id).where(_CALL.c.settled_at.is_(None))
            connection.execute(
                delete(_PLAN)
                .where(_PLAN.c.created_at < brief)
                .where(
                    _PLAN.c.plan_id.not_in(made), _PLAN.c.plan_id.not_in(requested), _PLAN.c.plan_id.not_in(in_flight)
                )
            )
            for table in _OF_PLANS:
                connection.execute(delete(table).where(table.c.plan_id.not_in(select(_PLAN.c.plan_id))))
            delete_unused_payloads(connection)
            delete_files_of_ended_runs(connection)
            return pruned


def ended_runs(connection: Connection) -> dict[str, int]:
    """Status → the number of runs that ever ended with it. A held run that continued ended twice."""
    return {row.status: row.runs for row in statements.run(connection, "SELECT status, runs FROM run_tally")}


def _decision(decision: str, at: datetime, by: str | None, reason: str | None) -> dict[str, object]:
    return {"decision": decision, "decided_at": at, "decided_by": by, "decision_reason": reason or None}


def _run_status(run: Run) -> str:
    """The status of a run and the decision about it, for error messages."""
    return f"this one is {run.status}" + (f", {decided}" if (decided := run.decided) else "")


def _lock_held(connection: Connection, run_id: str, decision: str) -> Run:
    run = lock_run(connection, run_id)
    if run.status is not RunStatus.HELD:
        raise RunConflictError(f"only a held run can be {decision}; {_run_status(run)}")
    return run


def _discard(connection: Connection, run: Run, at: datetime, by: str | None, reason: str | None) -> Run:
    discarded = ItemStatus.DISCARDED.value
    counts = {
        kind: {
            action: {(discarded if status == ItemStatus.HELD else status): number for status, number in numbers.items()}
            for action, numbers in actions.items()
        }
        for kind, actions in run.counts.items()
    }
    decision = _decision("discarded", at, by, reason)
    ended = move(connection, run, RunStatus.CANCELLED, at, counts=counts, **decision)
    if run.plan_id is not None and run.ledger_id is not None:
        message = f"left alone: {ended.decided}"
        discard_held(connection, ledger_id=run.ledger_id, run_id=run.run_id, plan_id=run.plan_id, message=message)
    return ended
