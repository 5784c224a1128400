"""Which runs of the synchronization are there, and what may become of each?

The statuses and the moves between them stand in ``MOVES`` and nowhere else. Every change of a status is one conditional
UPDATE, so that of two processes that try the same move one alone succeeds.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from random import Random
from types import MappingProxyType

from sqlalchemy import Connection, Engine, Row, delete, insert, select, text, update

from app.database.engine import is_sqlite, reading, writing
from app.store.sync_tables import CallRow, PlanItemRow, PlanRow, RunKeyRow, RunRow

Clock = Callable[[], datetime]

HELD_FOR = timedelta(days=7)
"""How long held deletes wait for someone's word."""

_ENQUEUE_LOCK = 0x75736865725F71
"""PostgreSQL advisory lock under which runs are put into the queue, so that identical requests meet."""

_RUN = RunRow.__table__  # type: ignore[attr-defined]  # SQLModel does not declare it
_KEY = RunKeyRow.__table__  # type: ignore[attr-defined]  # as above
_PLAN = PlanRow.__table__  # type: ignore[attr-defined]  # as above
_ITEM = PlanItemRow.__table__  # type: ignore[attr-defined]  # as above
_CALL = CallRow.__table__  # type: ignore[attr-defined]  # as above


class RunStatus(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    READING = "reading"
    PLANNING = "planning"
    APPLYING = "applying"
    DONE = "done"
    PARTIAL = "partial"
    """Some items failed or were skipped; the others stand."""
    HELD = "held"
    """Deletes wait for approval; everything else was applied."""
    FAILED = "failed"
    CANCELLED = "cancelled"


RUNNING = frozenset({RunStatus.READING, RunStatus.PLANNING, RunStatus.APPLYING})
FINAL = frozenset({RunStatus.DONE, RunStatus.PARTIAL, RunStatus.FAILED, RunStatus.CANCELLED})
_ENDS = FINAL | {RunStatus.HELD}

MOVES: Mapping[RunStatus, frozenset[RunStatus]] = MappingProxyType(
    {
        RunStatus.QUEUED: frozenset({RunStatus.READING, RunStatus.CANCELLED, RunStatus.FAILED}),
        RunStatus.READING: frozenset({RunStatus.PLANNING, RunStatus.FAILED, RunStatus.CANCELLED}),
        RunStatus.PLANNING: frozenset({RunStatus.APPLYING}) | _ENDS,
        RunStatus.APPLYING: _ENDS,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What someone wants: a run of everything, or narrowed to organizations or users."""

    trigger: str
    """``schedule``, ``verify_schedule``, ``resync``, ``command`` or ``continuation``."""
    organization_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()
    dry_run: bool = False
    verify: bool = False
    allow_deletes: bool = False
    idempotency_key: str | None = None
    plan_id: str | None = None
    """A stored plan to apply instead of making one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run as it stands in the database."""

    run_id: str
    trigger: str
    status: RunStatus
    dry_run: bool
    verify: bool
    allow_deletes: bool
    organization_ids: tuple[str, ...]
    user_ids: tuple[str, ...]
    ledger_id: int | None
    requested_plan_id: str | None
    plan_id: str | None
    revision: int | None
    requested_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    held_until: datetime | None
    approved_at: datetime | None
    cancel_requested: bool
    worker: str | None
    error: str | None
    counts: Mapping[str, Mapping[str, Mapping[str, int]]]
    """kind → action → {planned, done, failed, held, ...}; ``planned`` counts all of them, whatever became of them"""
    calls: int
    report: Mapping[str, object]

    @property
    def is_running(self) -> bool:
        return self.status in RUNNING

    @property
    def plan_is_settled(self) -> bool:
        """Whether it applies what somebody has seen: a stored plan, or held deletes that were approved."""
        return self.approved_at is not None or self.requested_plan_id is not None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One item of a run's plan."""

    ordinal: int
    phase: int
    action: str
    kind: str
    organization_id: str
    container_id: str
    item_id: str
    operation: str
    reason: str
    status: str
    message: str


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs in one database."""

    engine: Engine
    clock: Clock
    random: Random

    def enqueue(self, request: RunRequest) -> tuple[Run, bool]:
        """The run that answers the request, and whether it was created for it.

        The same idempotency key gives the same run; an identical run that is still queued is given instead of a second
        one. Raises ``RunConflictError`` when the key was used for a different request.
        """
        content = _content(request)
        with writing(self.engine) as connection:
            _one_at_a_time(connection)
            row = self._of_key(connection, request.idempotency_key)
            if row is not None:
                if any(getattr(row, name) != value for name, value in content.items()):
                    raise RunConflictError("the idempotency key was used for a different request")
                return _run(row), False
            row = connection.execute(
                select(_RUN)
                .where(_RUN.c.status == RunStatus.QUEUED, _RUN.c.approved_at.is_(None))
                .where(
                    *[
                        _RUN.c[name].is_(None) if value is None else _RUN.c[name] == value
                        for name, value in content.items()
                    ]
                )
                .order_by(_RUN.c.requested_at)
                .limit(1)
            ).first()
            created = row is None
            if row is None:
                run_id = self._new_id()
                connection.execute(
                    insert(_RUN).values(
                        run_id=run_id,
                        trigger=request.trigger,
                        status=RunStatus.QUEUED.value,
                        requested_at=_ms(self.clock()),
                        cancel_requested=False,
                        counts="{}",
                        calls=0,
                        report="{}",
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

    def recent(self, limit: int = 50, before: str | None = None) -> list[Run]:
        """The latest runs, newest first; ``before``: a run id, only those requested earlier than it."""
        query = select(_RUN).order_by(_RUN.c.run_id.desc()).limit(limit)
        if before is not None:
            query = query.where(_RUN.c.run_id < before)
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

    def last_ended(self, *, dry_run: bool = False) -> Run | None:
        """The run that ended last, for health and metrics."""
        with reading(self.engine) as connection:
            row = connection.execute(
                select(_RUN)
                .where(_RUN.c.finished_at.is_not(None), _RUN.c.dry_run == dry_run)
                .order_by(_RUN.c.finished_at.desc())
                .limit(1)
            ).first()
        return None if row is None else _run(row)

    def move(self, run_id: str, to: RunStatus, **values: object) -> Run:
        """Gives the run another status, with further columns; times as ``datetime``, mappings as such.

        Raises ``RunConflictError`` when the run's status does not allow the move.
        """
        with writing(self.engine) as connection:
            self._move(connection, run_id, to, **values)
            return _run(_get(connection, run_id))

    def note(self, run_id: str, **values: object) -> None:
        """Writes down columns of a run without moving it; times as ``datetime``, mappings as such."""
        with writing(self.engine) as connection:
            stored = {name: _stored(value) for name, value in values.items()}
            connection.execute(update(_RUN).where(_RUN.c.run_id == run_id).values(**stored))

    def approve(self, run_id: str) -> Run:
        """Lets the held deletes go: the run is queued again for exactly those.

        Raises ``RunConflictError`` unless the run is held and its time is not over.
        """
        now = self.clock()
        with writing(self.engine) as connection:
            row = _get(connection, run_id)
            if row.status != RunStatus.HELD:
                raise RunConflictError(f"only a held run can be approved; this one is {row.status}")
            if row.held_until is not None and row.held_until < _ms(now):
                raise RunConflictError(
                    f"the held deletes could be approved until {_moment(row.held_until):%Y-%m-%d %H:%M} UTC; "
                    "a new run holds them again if they are still due"
                )
            self._move(connection, run_id, RunStatus.QUEUED, approved_at=now, finished_at=None, held_until=None)
            return _run(_get(connection, run_id))

    def discard(self, run_id: str) -> Run:
        """Drops the held deletes of a run. Raises ``RunConflictError`` unless it is held."""
        with writing(self.engine) as connection:
            row = _get(connection, run_id)
            if row.status != RunStatus.HELD:
                raise RunConflictError(f"only a held run can be discarded; this one is {row.status}")
            connection.execute(
                update(_ITEM)
                .where(_ITEM.c.plan_id == row.plan_id, _ITEM.c.status == "held")
                .values(status="cancelled", message="the held deletes were discarded")
            )
            self._move(connection, run_id, RunStatus.CANCELLED, error="the held deletes were discarded")
            return _run(_get(connection, run_id))

    def cancel(self, run_id: str) -> Run:
        """Ends a queued run at once; asks a running one to end before its next call.

        Raises ``RunConflictError`` when the run has ended.
        """
        with writing(self.engine) as connection:
            row = _get(connection, run_id)
            if row.status == RunStatus.QUEUED:
                self._move(connection, run_id, RunStatus.CANCELLED, cancel_requested=True, finished_at=self.clock())
            elif row.status in RUNNING:
                connection.execute(update(_RUN).where(_RUN.c.run_id == run_id).values(cancel_requested=True))
            elif row.status == RunStatus.HELD:
                raise RunConflictError("the run is held: discard drops its deletes")
            else:
                raise RunConflictError(f"the run has ended; it is {row.status}")
            return _run(_get(connection, run_id))

    def changes(
        self,
        run_id: str,
        status: str | None = None,
        kind: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> list[Change]:
        """The items of the run's plan in order, those after the ordinal ``after``. Raises ``RunNotFoundError``."""
        with reading(self.engine) as connection:
            run = _get(connection, run_id)
            query = select(*[_ITEM.c[name] for name in Change.__dataclass_fields__]).where(
                _ITEM.c.plan_id == run.plan_id
            )
            if status is not None:
                query = query.where(_ITEM.c.status == status)
            if kind is not None:
                query = query.where(_ITEM.c.kind == kind)
            if after is not None:
                query = query.where(_ITEM.c.ordinal > after)
            query = query.order_by(_ITEM.c.ordinal).limit(limit)
            return [Change(**row._asdict()) for row in connection.execute(query)]

    def orphaned(self, causes: Mapping[str, str] = MappingProxyType({})) -> list[Run]:
        """Ends the runs that a process left behind when it died or lost its database, and gives them.

        Only for a caller that holds the synchronization's lock: then a run that claims to be running is not. The next
        run plans again from the ledger, so nothing that such a run did or did not do is lost. ``causes``: run id → why
        it ended, where the caller knows.
        """
        with writing(self.engine) as connection:
            rows = connection.execute(
                select(_RUN.c.run_id, _RUN.c.worker).where(_RUN.c.status.in_(list(RUNNING)))
            ).all()
            for row in rows:
                by = f" ({row.worker})" if row.worker else ""
                guess = f"the process that ran it{by}, or its connection to the database, ended in the middle"
                self._move(
                    connection,
                    row.run_id,
                    RunStatus.FAILED,
                    error=f"{causes.get(row.run_id, guess)}; the next run goes on from there",
                    finished_at=self.clock(),
                )
            return [_run(_get(connection, row.run_id)) for row in rows]

    def prune(self, older_than: timedelta) -> int:
        """Forgets runs that ended longer ago than that, with their plans and journals; how many.

        Stored plans of that age go with them. Runs that still wait for approval stay.
        """
        before = _ms(self.clock() - older_than)
        with writing(self.engine) as connection:
            old = (
                select(_RUN.c.run_id)
                .where(_RUN.c.finished_at < before)
                .where((_RUN.c.status != RunStatus.HELD) | (_RUN.c.held_until < _ms(self.clock())))
            )
            connection.execute(delete(_KEY).where(_KEY.c.run_id.in_(old)))
            pruned = connection.execute(delete(_RUN).where(_RUN.c.run_id.in_(old))).rowcount
            connection.execute(delete(_CALL).where(_CALL.c.settled_at < before))
            kept = select(_RUN.c.plan_id).where(_RUN.c.plan_id.is_not(None))
            asked = select(_RUN.c.requested_plan_id).where(_RUN.c.requested_plan_id.is_not(None))
            in_flight = select(_CALL.c.plan_id).where(_CALL.c.settled_at.is_(None))
            connection.execute(
                delete(_PLAN)
                .where(_PLAN.c.created_at < before)
                .where(_PLAN.c.plan_id.not_in(kept), _PLAN.c.plan_id.not_in(asked), _PLAN.c.plan_id.not_in(in_flight))
            )
            connection.execute(delete(_ITEM).where(_ITEM.c.plan_id.not_in(select(_PLAN.c.plan_id))))
            return pruned

    def _of_key(self, connection: Connection, key: str | None) -> Row[tuple[object, ...]] | None:
        if key is None:
            return None
        return connection.execute(
            select(_RUN).join(_KEY, _KEY.c.run_id == _RUN.c.run_id).where(_KEY.c.idempotency_key == key)
        ).first()

    def _move(self, connection: Connection, run_id: str, to: RunStatus, **values: object) -> None:
        sources = [status.value for status, targets in MOVES.items() if to in targets]
        moved = connection.execute(
            update(_RUN)
            .where(_RUN.c.run_id == run_id, _RUN.c.status.in_(sources))
            .values(status=to.value, **{name: _stored(value) for name, value in values.items()})
        ).rowcount
        if not moved:
            row = _get(connection, run_id)
            raise RunConflictError(f"the run is {row.status} and cannot become {to.value}")

    def _new_id(self) -> str:
        """Sorts by time; the rest cannot be guessed by counting."""
        return f"{self.clock():%Y%m%dT%H%M%S}{self.clock().microsecond // 1000:03d}-{self.random.getrandbits(48):012x}"


def _one_at_a_time(connection: Connection) -> None:
    if not is_sqlite(connection):
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _ENQUEUE_LOCK})


def _content(request: RunRequest) -> dict[str, object]:
    """What makes two requests the same, as columns; the order and number of ids do not matter."""
    return {
        "organization_ids": _id_list(request.organization_ids),
        "user_ids": _id_list(request.user_ids),
        "dry_run": request.dry_run,
        "verify": request.verify,
        "allow_deletes": request.allow_deletes,
        "requested_plan_id": request.plan_id,
    }


def _id_list(ids: Sequence[str]) -> str:
    return json.dumps(sorted(set(ids)), ensure_ascii=False)


def _get(connection: Connection, run_id: str) -> Row[tuple[object, ...]]:
    row = connection.execute(select(_RUN).where(_RUN.c.run_id == run_id)).first()
    if row is None:
        raise RunNotFoundError(f"there is no run {run_id}")
    return row


def _run(row: Row[tuple[object, ...]]) -> Run:
    values = row._asdict()
    values["status"] = RunStatus(values["status"])
    for name in ("organization_ids", "user_ids"):
        values[name] = tuple(json.loads(values[name]))
    for name in ("counts", "report"):
        values[name] = json.loads(values[name])
    for name in ("requested_at", "started_at", "finished_at", "held_until", "approved_at"):
        values[name] = None if values[name] is None else _moment(values[name])
    return Run(**values)


def _stored(value: object) -> object:
    if isinstance(value, datetime):
        return _ms(value)
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return value


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
