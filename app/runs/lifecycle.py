"""The runs of the synchronization, and what may become of each.

The rules: ``app/runs/README.md``, "Statuses".

The statuses and the moves between them stand in ``MOVES`` and nowhere else. Whoever moves a run says in which status
they found it. The row is claimed, compared and moved in one transaction, before anything that hangs on it (a plan's
items): of several processes that want different things of one run, one has its way, and the others are told what has
become of it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random
from types import MappingProxyType
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Engine, Row, delete, func, insert, select, text, update

from app.clock import Clock, epoch_ms, from_epoch_ms
from app.database.engine import is_sqlite, reading, writing
from app.model.former import forget_former
from app.model.touched import take_touched, touched_since
from app.plan.discards import discard_held
from app.plan.listing import PlannedChange, Sum, list_changes, sum_up
from app.store.sync_tables import CallRow, PlanItemRow, PlanRow, RunKeyRow, RunRow

LATEST = "latest"
"""What stands for the id of the newest run or plan."""

HELD_FOR = timedelta(days=7)
"""How long held deletes wait for someone's word."""

MAX_QUEUED = 100
"""How many runs that were asked for over HTTP may be queued. What is due, goes on or was approved is never refused."""

CHANGES = "changes"
"""What brings about a run that follows what changed between two syncs; a narrowed one plans from what is in force, and
reads no source."""

MOST_TOUCHED = 1_000
"""Of more organizations, or users, a run of everything is made."""

_CHANGES_KEPT = timedelta(days=1)
"""How long runs that followed changes are remembered when all of it was done."""

_ENQUEUE_LOCK = 0x75736865725F71
"""PostgreSQL advisory lock under which runs are put into the queue, so that identical requests meet."""

_MOMENTS = (
    "requested_at",
    "started_at",
    "finished_at",
    "held_until",
    "approved_at",
    "held_at",
    "resumed_at",
    "decided_at",
)

_RUN = RunRow.__table__
_KEY = RunKeyRow.__table__
_PLAN = PlanRow.__table__
_ITEM = PlanItemRow.__table__
_CALL = CallRow.__table__


_COUNT_END = """
INSERT INTO run_tally (status, runs) VALUES (:status, 1)
ON CONFLICT (status) DO UPDATE SET runs = run_tally.runs + 1
"""


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
    asked_by: str | None = None
    """Who asks for it, as far as it is known; None: it comes by itself."""
    asked_reason: str | None = None


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
        return sum(numbers.get(outcome, 0) for actions in self.counts.values() for numbers in actions.values())

    def still_to_send(self) -> Mapping[str, int]:
        """action → how many items nothing kept back and nothing became of: what applying the plan would send now."""
        numbers: dict[str, int] = {}
        for actions in self.counts.values():
            for action, outcomes in actions.items():
                settled = sum(number for outcome, number in outcomes.items() if outcome != "planned")
                numbers[action] = numbers.get(action, 0) + outcomes.get("planned", 0) - settled
        return {action: number for action, number in numbers.items() if number}


Witness = Callable[[Connection, Run], None]
"""Writes down, in the transaction of a move, what somebody did and to which run."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs in one database."""

    engine: Engine
    clock: Clock
    random: Random

    def enqueue(self, request: RunRequest, *, witness: Witness | None = None) -> tuple[Run, bool]:
        """The run that answers the request, and whether it was created for it.

        The same idempotency key gives the same run; an identical run that is still queued is given instead of a second
        one. Raises ``RunConflictError`` when the key was used for a different request, and ``QueueFullError``.
        """
        with writing(self.engine) as connection:
            _one_at_a_time(connection)
            run, created = self._enqueue(connection, request)
            _tell(witness, connection, run)
            return run, created

    def enqueue_changes(self, delay: timedelta) -> list[Run]:
        """Queues runs about what changed between two syncs, once the first of it is ``delay`` old; those runs.

        One is narrowed to the organizations and one to the users. What changed is taken away in the same transaction:
        it is noted, or a run about it is queued, whatever dies.
        """
        due = epoch_ms(self.clock() - delay)
        with reading(self.engine) as connection:
            # Most looks find nothing, and keep nobody waiting.
            since = touched_since(connection)
        if since is None or since > due:
            return []
        with writing(self.engine) as connection:
            _one_at_a_time(connection)
            touched = take_touched(connection)
            if len(touched.organization_ids) > MOST_TOUCHED or len(touched.user_ids) > MOST_TOUCHED:
                return [self._enqueue(connection, RunRequest(trigger=CHANGES))[0]]
            requests = []
            if touched.organization_ids:
                requests.append(RunRequest(trigger=CHANGES, organization_ids=touched.organization_ids))
            if touched.user_ids:
                requests.append(RunRequest(trigger=CHANGES, user_ids=touched.user_ids))
            return [self._enqueue(connection, request)[0] for request in requests]

    def _enqueue(self, connection: Connection, request: RunRequest) -> tuple[Run, bool]:
        content = _content(request)
        row = self._of_key(connection, request.idempotency_key)
        if row is not None:
            if any(getattr(row, name) != value for name, value in content.items()):
                raise RunConflictError("the idempotency key was used for a different request")
            return _run(row), False
        row = None if request.alone else _identical(connection, content)
        created = row is None
        if row is None:
            _refuse_too_many(connection, request)
            run_id = self._new_id()
            connection.execute(
                insert(_RUN).values(
                    run_id=run_id,
                    trigger=request.trigger,
                    status=RunStatus.QUEUED.value,
                    requested_at=epoch_ms(self.clock()),
                    cancel_requested=False,
                    counts="{}",
                    calls=0,
                    report="{}",
                    asked_by=request.asked_by,
                    asked_reason=request.asked_reason,
                    **content,
                )
            )
            row = _get(connection, run_id)
        if request.idempotency_key is not None:
            connection.execute(insert(_KEY).values(idempotency_key=request.idempotency_key, run_id=row.run_id))
        return _run(row), created

    def get(self, run_id: str) -> Run:
        """Raises ``RunNotFoundError``."""
        with reading(self.engine) as connection:
            return _run(_get(connection, run_id))

    def named(self, shown: str) -> str:
        """The id of the one run whose id begins so, or of the ``latest``. Raises ``RunNotFoundError``."""
        return self._named(_RUN.c.run_id, _RUN.c.run_id, shown, "run")

    def named_plan(self, shown: str) -> str:
        """The same of a plan. Raises ``RunNotFoundError``."""
        return self._named(_PLAN.c.plan_id, _PLAN.c.created_at, shown, "plan")

    def _named(self, ids: Column[str], newest: ColumnElement[object], shown: str, what: str) -> str:
        with reading(self.engine) as connection:
            if shown == LATEST:
                found = connection.execute(select(ids).order_by(newest.desc(), ids.desc()).limit(1)).scalars().all()
            else:
                query = select(ids).where(func.substr(ids, 1, len(shown)) == shown).order_by(ids.desc()).limit(2)
                found = connection.execute(query).scalars().all()
                exact = connection.execute(select(ids).where(ids == shown)).scalar()
                found = [exact] if exact is not None else found
        if len(found) > 1:
            raise RunNotFoundError(f"more than one {what} begins with {shown}, as {found[0]} and {found[1]}")
        if not found or not shown:
            raise RunNotFoundError(f"there is no {what} yet" if shown == LATEST else f"there is no {what} {shown}")
        return str(found[0])

    def recent(
        self,
        limit: int = 50,
        before: str | None = None,
        *,
        statuses: Sequence[str] = (),
        trigger: str | None = None,
    ) -> list[Run]:
        """The latest runs, newest first; ``before``: a run id, only those requested earlier than it. ``statuses``,
        ``trigger``: of these alone."""
        query = select(_RUN).order_by(_RUN.c.run_id.desc()).limit(limit)
        if before is not None:
            query = query.where(_RUN.c.run_id < before)
        if statuses:
            query = query.where(_RUN.c.status.in_(statuses))
        if trigger is not None:
            query = query.where(_RUN.c.trigger == trigger)
        with reading(self.engine) as connection:
            return [_run(row) for row in connection.execute(query)]

    def next_queued(self) -> Run | None:
        """The run that has waited longest."""
        with reading(self.engine) as connection:
            row = connection.execute(
                select(_RUN)
                .where(_RUN.c.status == RunStatus.QUEUED)
                .order_by(_RUN.c.requested_at, _RUN.c.run_id)
                .limit(1)
            ).first()
        return None if row is None else _run(row)

    def move(self, run_id: str, expected: RunStatus, to: RunStatus, **values: object) -> Run:
        """Gives the run another status, with further columns; times as ``datetime``, mappings as such.

        Raises ``RunConflictError`` when the run is not in the status that is expected, or that allows no such move.
        """
        with writing(self.engine) as connection:
            run = _claim(connection, run_id)
            if run.status is not expected:
                raise RunConflictError(f"the run is {run.status}, not {expected}, and cannot become {to}")
            return _move(connection, run, to, **values)

    def end(self, run_id: str, outcome: Callable[[Connection], tuple[RunStatus, Mapping[str, object]]]) -> Run:
        """Ends a run that is under way: as ``outcome`` says, which reads and settles its items in the same transaction.

        Raises ``RunConflictError`` when somebody else has ended it; ``outcome`` is not asked then.
        """
        with writing(self.engine) as connection:
            run = _claim(connection, run_id)
            if not run.is_running:
                raise RunConflictError(f"the run is {run.status}: it has ended already")
            to, values = outcome(connection)
            return _move(connection, run, to, **values)

    def note(self, run_id: str, expected: RunStatus, **values: object) -> None:
        """Writes down columns of a run without moving it; times as ``datetime``, mappings as such.

        Raises ``RunConflictError`` when the run is not in the status that is expected.
        """
        with writing(self.engine) as connection:
            run = _claim(connection, run_id)
            if run.status is not expected:
                raise RunConflictError(f"the run is {run.status}, not {expected}")
            _set(connection, run, **values)

    def approve(
        self, run_id: str, *, by: str | None = None, reason: str | None = None, witness: Witness | None = None
    ) -> Run:
        """Lets the held deletes go: the run is queued again for exactly those. ``by`` and ``reason`` are kept with it.

        Raises ``RunConflictError`` unless the run is held and its time is not over.
        """
        now = self.clock()
        with writing(self.engine) as connection:
            run = _claim(connection, run_id)
            if run.status is not RunStatus.HELD:
                raise RunConflictError(f"only a held run can be approved; {_run_status(run)}")
            if run.held_until is not None and run.held_until < now:
                raise RunConflictError(
                    f"the held deletes could be approved until {run.held_until:%Y-%m-%d %H:%M} UTC; "
                    "a new run holds them again if they are still due"
                )
            word = _word("approved", now, by, reason)
            _tell(witness, connection, run)
            return _move(connection, run, RunStatus.QUEUED, approved_at=now, finished_at=None, held_until=None, **word)

    def discard(
        self, run_id: str, *, by: str | None = None, reason: str | None = None, witness: Witness | None = None
    ) -> Run:
        """Drops the held deletes of a run; later runs leave them alone until what they would delete changes.

        Raises ``RunConflictError`` unless the run is held.
        """
        with writing(self.engine) as connection:
            run = _claim(connection, run_id)
            if run.status is not RunStatus.HELD:
                raise RunConflictError(f"only a held run can be discarded; {_run_status(run)}")
            _tell(witness, connection, run)
            return _discard(connection, run, _word("discarded", self.clock(), by, reason))

    def cancel(
        self, run_id: str, *, by: str | None = None, reason: str | None = None, witness: Witness | None = None
    ) -> Run:
        """Ends a queued run at once; asks a running one to end before its next call; drops the deletes of a held one.

        Raises ``RunConflictError`` when the run has ended.
        """
        with writing(self.engine) as connection:
            run = _claim(connection, run_id)
            now = self.clock()
            if not run.is_final:
                _tell(witness, connection, run)
            if run.status is RunStatus.HELD:
                return _discard(connection, run, _word("discarded", now, by, reason))
            # An approval is not overwritten: who let the deletes go stays known.
            word = {} if run.decision else _word("cancelled", now, by, reason)
            if run.status is RunStatus.QUEUED:
                return _move(connection, run, RunStatus.CANCELLED, cancel_requested=True, finished_at=now, **word)
            if run.is_running:
                return _set(connection, run, cancel_requested=True, **word)
            raise RunConflictError(f"the run has ended: {_run_status(run)}")

    def changes(
        self,
        run_id: str,
        status: str | None = None,
        kind: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> list[PlannedChange]:
        """The items of the run's plan in order, those after the ordinal ``after``. Raises ``RunNotFoundError``."""
        with reading(self.engine) as connection:
            plan_id = _get(connection, run_id).plan_id
            if plan_id is None:
                return []
            return list_changes(connection, plan_id, status=status, kind=kind, after=after, limit=limit)

    def summary(self, run_id: str) -> list[Sum]:
        """How many items of each sort the run's plan has. Raises ``RunNotFoundError``."""
        with reading(self.engine) as connection:
            plan_id = _get(connection, run_id).plan_id
            return [] if plan_id is None else sum_up(connection, plan_id)

    def orphaned(self, causes: Mapping[str, str] = MappingProxyType({})) -> list[Run]:
        """Ends the runs that a process left behind when it died or lost its database, and gives them.

        Only for a caller that holds the synchronization's lock: then a run that claims to be running is not. The next
        run plans again from the ledger, so nothing that such a run did or did not do is lost. ``causes``: run id → why
        it ended, where the caller knows.
        """
        with writing(self.engine) as connection:
            left = connection.execute(
                select(_RUN).where(_RUN.c.status.in_(list(RUNNING))).order_by(_RUN.c.run_id).with_for_update()
            ).all()
            ended = []
            for run in map(_run, left):
                by = f" ({run.worker})" if run.worker else ""
                guess = f"the process that ran it{by}, or its connection to the database, ended in the middle"
                error = f"{causes.get(run.run_id, guess)}; the next run goes on from there"
                values = {"error": error, "finished_at": self.clock(), "interrupted": True}
                ended.append(_move(connection, run, RunStatus.FAILED, **values))
            return ended

    def go_on_from(self, run: Run, *, trigger: str, limit: int) -> Run | None:
        """Queues another run like one that was interrupted, once, and gives it.

        None where there is nothing to go on from (a dry run, a stored plan that is no longer true, a cancelled one),
        and where ``limit`` of them went before: one that brings down whoever executes it would go on for ever.
        """
        if run.dry_run or run.cancel_requested or run.requested_plan_id is not None:
            return None
        with reading(self.engine) as connection:
            before = 0
            link: str | None = run.run_id
            while link is not None and before <= limit:
                link = connection.scalar(select(_RUN.c.run_id).where(_RUN.c.continued_by == link))
                before += link is not None
        if before >= limit:
            return None
        request = RunRequest(
            trigger=trigger,
            organization_ids=run.organization_ids,
            user_ids=run.user_ids,
            verify=run.verify,
            allow_deletes=run.allow_deletes,
            retry=run.retry,
            kinds=run.kinds,
            idempotency_key=f"{trigger} {run.run_id}",
        )
        follower, _created = self.enqueue(request)
        with writing(self.engine) as connection:
            connection.execute(update(_RUN).where(_RUN.c.run_id == run.run_id).values(continued_by=follower.run_id))
        return follower

    def prune(self, older_than: timedelta) -> int:
        """Forgets runs that ended longer ago than that, with their plans and journals; how many.

        Stored plans of that age go with them. Runs that still wait for approval stay.
        """
        before = epoch_ms(self.clock() - older_than)
        # There may be one every other second of those that follow changes; what went well with them nobody asks for.
        brief = epoch_ms(self.clock() - min(older_than, _CHANGES_KEPT))
        with writing(self.engine) as connection:
            # The conditions stand in the DELETE itself: of a run that somebody moves meanwhile they are asked again.
            pruned = connection.execute(
                delete(_RUN)
                .where(
                    (_RUN.c.finished_at < before)
                    | ((_RUN.c.finished_at < brief) & (_RUN.c.trigger == CHANGES) & (_RUN.c.status == RunStatus.DONE))
                )
                .where((_RUN.c.status != RunStatus.HELD) | (_RUN.c.held_until < epoch_ms(self.clock())))
            ).rowcount
            connection.execute(delete(_KEY).where(_KEY.c.run_id.not_in(select(_RUN.c.run_id))))
            connection.execute(delete(_CALL).where(_CALL.c.settled_at < before))
            kept = select(_RUN.c.plan_id).where(_RUN.c.plan_id.is_not(None))
            asked = select(_RUN.c.requested_plan_id).where(_RUN.c.requested_plan_id.is_not(None))
            in_flight = select(_CALL.c.plan_id).where(_CALL.c.settled_at.is_(None))
            connection.execute(
                delete(_PLAN)
                .where(_PLAN.c.created_at < brief)
                .where(_PLAN.c.plan_id.not_in(kept), _PLAN.c.plan_id.not_in(asked), _PLAN.c.plan_id.not_in(in_flight))
            )
            connection.execute(delete(_ITEM).where(_ITEM.c.plan_id.not_in(select(_PLAN.c.plan_id))))
            forget_former(connection)
            return pruned

    def _of_key(self, connection: Connection, key: str | None) -> Row[tuple[object, ...]] | None:
        if key is None:
            return None
        return connection.execute(
            select(_RUN).join(_KEY, _KEY.c.run_id == _RUN.c.run_id).where(_KEY.c.idempotency_key == key)
        ).first()

    def _new_id(self) -> str:
        """Sorts by time; the rest cannot be guessed by counting."""
        return f"{self.clock():%Y%m%dT%H%M%S}{self.clock().microsecond // 1000:03d}-{self.random.getrandbits(48):012x}"


def ended_runs(connection: Connection) -> dict[str, int]:
    """Status → how many runs ever ended so; one that was held and went on ended twice."""
    return {row.status: row.runs for row in connection.execute(text("SELECT status, runs FROM run_tally"))}


def _tell(witness: Witness | None, connection: Connection, run: Run) -> None:
    if witness is not None:
        witness(connection, run)


def _one_at_a_time(connection: Connection) -> None:
    if not is_sqlite(connection):
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _ENQUEUE_LOCK})


def _refuse_too_many(connection: Connection, request: RunRequest) -> None:
    if request.trigger != "resync":
        return
    queued = connection.scalar(
        select(func.count())
        .select_from(_RUN)
        .where(_RUN.c.status == RunStatus.QUEUED, _RUN.c.trigger == request.trigger, _RUN.c.approved_at.is_(None))
    )
    if queued is not None and queued >= MAX_QUEUED:
        raise QueueFullError(
            f"{queued} runs are queued already: wait until a worker has taken some, or ask for one run of everything"
            " instead of many narrow ones"
        )


def _content(request: RunRequest) -> dict[str, object]:
    """What makes two requests the same, as columns; the order and number of ids do not matter."""
    return {
        "organization_ids": _id_list(request.organization_ids),
        "user_ids": _id_list(request.user_ids),
        "dry_run": request.dry_run,
        "verify": request.verify,
        "allow_deletes": request.allow_deletes,
        "retry": request.retry,
        "kinds": _id_list(request.kinds),
        "requested_plan_id": request.plan_id,
    }


def _identical(connection: Connection, content: Mapping[str, object]) -> Row[tuple[object, ...]] | None:
    """The run that is queued for the same."""
    return connection.execute(
        select(_RUN)
        .where(_RUN.c.status == RunStatus.QUEUED, _RUN.c.approved_at.is_(None))
        .where(*[_RUN.c[name].is_(None) if value is None else _RUN.c[name] == value for name, value in content.items()])
        .order_by(_RUN.c.requested_at)
        .limit(1)
    ).first()


def _id_list(ids: Sequence[str]) -> str:
    return json.dumps(sorted(set(ids)), ensure_ascii=False)


def _get(connection: Connection, run_id: str, *, claimed: bool = False) -> Row[tuple[object, ...]]:
    query = select(_RUN).where(_RUN.c.run_id == run_id)
    row = connection.execute(query.with_for_update() if claimed else query).first()
    if row is None:
        raise RunNotFoundError(f"there is no run {run_id}")
    return row


def _claim(connection: Connection, run_id: str) -> Run:
    """The run as it stands now, which nobody else moves before this (writing) transaction ends."""
    return _run(_get(connection, run_id, claimed=True))


def _move(connection: Connection, run: Run, to: RunStatus, **values: object) -> Run:
    """Moves a claimed run on from the status in which it was found."""
    if to not in MOVES[run.status]:
        raise RunConflictError(f"the run is {run.status} and cannot become {to}")
    moved = _set(connection, run, status=to.value, **values)
    if to in ENDS:
        connection.execute(text(_COUNT_END), {"status": to.value})
    return moved


def _set(connection: Connection, run: Run, **values: object) -> Run:
    changed = connection.execute(
        update(_RUN)
        .where(_RUN.c.run_id == run.run_id, _RUN.c.status == run.status)
        .values(**{name: _stored(value) for name, value in values.items()})
    ).rowcount
    row = _get(connection, run.run_id)
    if not changed:
        raise RunConflictError(f"the run was {run.status} and is {row.status} now")
    return _run(row)


def _word(decision: str, at: datetime, by: str | None, reason: str | None) -> dict[str, object]:
    return {"decision": decision, "decided_at": at, "decided_by": by, "decision_reason": reason or None}


def _run_status(run: Run) -> str:
    """What has become of a run, for whoever comes too late."""
    return f"this one is {run.status}" + (f", {decided}" if (decided := run.decided) else "")


def _discard(connection: Connection, run: Run, word: Mapping[str, object]) -> Run:
    counts = {
        kind: {
            action: {("discarded" if outcome == "held" else outcome): number for outcome, number in numbers.items()}
            for action, numbers in actions.items()
        }
        for kind, actions in run.counts.items()
    }
    discarded = _move(connection, run, RunStatus.CANCELLED, counts=counts, **word)
    if run.plan_id is not None and run.ledger_id is not None:
        message = f"left alone: {discarded.decided}"
        discard_held(connection, ledger_id=run.ledger_id, run_id=run.run_id, plan_id=run.plan_id, message=message)
    return discarded


def _run(row: Row[tuple[object, ...]]) -> Run:
    values = row._asdict()
    values["status"] = RunStatus(values["status"])
    for name in ("organization_ids", "user_ids", "kinds"):
        values[name] = tuple(json.loads(values[name]))
    for name in ("counts", "report"):
        values[name] = json.loads(values[name])
    for name in _MOMENTS:
        values[name] = None if values[name] is None else from_epoch_ms(values[name])
    return Run(**values)


def _stored(value: object) -> object:
    if isinstance(value, datetime):
        return epoch_ms(value)
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return value
