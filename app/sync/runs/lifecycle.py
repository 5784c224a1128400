"""The life cycle of runs: asked for, moved, decided about, gone on from and forgotten.

The rules: ``app/sync/runs/README.md``, "Statuses".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from types import MappingProxyType

from sqlalchemy import Column, Connection, Engine, Select, delete, func, or_, select, update
from sqlalchemy.exc import DBAPIError

from app.access.pending import pending_since
from app.access.refresh.revision import delete_unused_payloads
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database import statements
from app.foundation.database.engine import reading, writing
from app.foundation.database.errors import is_outage
from app.sync.ledger.tables import CallRow
from app.sync.plan.discards import discard_held
from app.sync.plan.listing import PlannedChange, Sum, list_changes, sum_up
from app.sync.plan.search import ItemFilter
from app.sync.plan.tables import PlanImpactRow, PlanItemRow, PlanPartRow, PlanRow
from app.sync.runs.queue import CHANGES, CONTINUATION, KEY, enqueue, one_at_a_time, requests_for_changes
from app.sync.runs.rows import RUN, cancel_is_requested, change, claim, move, recent_runs, row_of, run_from
from app.sync.runs.run import RUNNING, Run, RunConflictError, RunNotFoundError, RunRequest, RunStatus

LATEST = "latest"
"""What stands for the id of the newest run or plan."""

MAX_CONTINUATIONS = 5
"""After so many failed runs in a row none continues: perhaps they kill every process that executes them."""

_CHANGES_KEPT = timedelta(days=1)
"""How long runs that followed changes are remembered when all of it was done."""

_PLAN = PlanRow.__table__
_OF_PLANS = (PlanItemRow.__table__, PlanPartRow.__table__, PlanImpactRow.__table__)
_CALL = CallRow.__table__


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
            one_at_a_time(connection)
            run, created = enqueue(connection, request, now=self.clock(), random=self.random)
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
            since = pending_since(connection)
        if since is None or since > due:
            return []
        with writing(self.engine) as connection:
            one_at_a_time(connection)
            requests = requests_for_changes(connection)
            return [enqueue(connection, request, now=self.clock(), random=self.random)[0] for request in requests]

    def get(self, run_id: str) -> Run:
        """Raises ``RunNotFoundError``."""
        with reading(self.engine) as connection:
            return run_from(row_of(connection, run_id))

    def named(self, shown: str) -> str:
        """The id of the one run whose id begins so, or of the ``latest``. Raises ``RunNotFoundError``."""
        return self._named(RUN.c.run_id, shown, "run", select(RUN.c.run_id).order_by(RUN.c.run_id.desc()))

    def named_held(self, shown: str, *, can_be_approved: bool = False) -> str:
        """The same; ``latest`` is the latest held run. ``can_be_approved``: whose time is not over."""
        latest = select(RUN.c.run_id).where(RUN.c.status == RunStatus.HELD).order_by(RUN.c.run_id.desc())
        if can_be_approved:
            latest = latest.where(or_(RUN.c.held_until.is_(None), RUN.c.held_until >= epoch_ms(self.clock())))
        return self._named(RUN.c.run_id, shown, "run", latest, "held run")

    def named_plan(self, shown: str) -> str:
        """The same of a plan; ``latest`` is the latest that was made by ``usher plan`` or a preview."""
        latest = (
            select(RUN.c.plan_id)
            .join(_PLAN, _PLAN.c.plan_id == RUN.c.plan_id)
            .where(RUN.c.dry_run, RUN.c.status == RunStatus.DONE)
            .order_by(_PLAN.c.created_at.desc(), _PLAN.c.plan_id.desc())
        )
        return self._named(_PLAN.c.plan_id, shown, "plan", latest)

    def _named(
        self, ids: Column[str], shown: str, what: str, latest: Select[tuple[str | None]], of_latest: str = ""
    ) -> str:
        with reading(self.engine) as connection:
            if shown == LATEST:
                what = of_latest or what
                found = [str(one) for one in connection.execute(latest.limit(1)).scalars()]
            else:
                query = select(ids).where(func.substr(ids, 1, len(shown)) == shown).order_by(ids.desc()).limit(2)
                found = [str(one) for one in connection.execute(query).scalars()]
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
        with reading(self.engine) as connection:
            return recent_runs(connection, limit, before, statuses=statuses, trigger=trigger)

    def next_queued(self) -> Run | None:
        """The run that has waited longest."""
        with reading(self.engine) as connection:
            row = connection.execute(
                select(RUN).where(RUN.c.status == RunStatus.QUEUED).order_by(RUN.c.requested_at, RUN.c.run_id).limit(1)
            ).first()
        return None if row is None else run_from(row)

    def move(self, run_id: str, expected: RunStatus, to: RunStatus, **values: object) -> Run:
        """Gives the run another status, with further columns; times as ``datetime``, mappings as such.

        Raises ``RunConflictError`` when the run is not in the status that is expected, or that allows no such move.
        """
        with writing(self.engine) as connection:
            run = claim(connection, run_id)
            if run.status is not expected:
                raise RunConflictError(f"the run is {run.status}, not {expected}, and cannot become {to}")
            return move(connection, run, to, self.clock(), **values)

    def end(self, run_id: str, outcome: Callable[[Connection], tuple[RunStatus, Mapping[str, object]]]) -> Run:
        """Ends a run that is under way: as ``outcome`` says, which reads and settles its items in the same transaction.

        Raises ``RunConflictError`` when somebody else has ended it; ``outcome`` is not asked then.
        """
        with writing(self.engine) as connection:
            run = claim(connection, run_id)
            if not run.is_running:
                raise RunConflictError(f"the run is {run.status}: it has ended already")
            to, values = outcome(connection)
            return move(connection, run, to, self.clock(), **values)

    def note(self, run_id: str, expected: RunStatus, **values: object) -> None:
        """Writes down columns of a run without moving it; times as ``datetime``, mappings as such.

        Raises ``RunConflictError`` when the run is not in the status that is expected.
        """
        with writing(self.engine) as connection:
            run = claim(connection, run_id)
            if run.status is not expected:
                raise RunConflictError(f"the run is {run.status}, not {expected}")
            change(connection, run, **values)

    def approve(
        self, run_id: str, *, by: str | None = None, reason: str | None = None, witness: Witness | None = None
    ) -> Run:
        """Lets the held deletes go: the run is queued again for exactly those. ``by`` and ``reason`` are kept with it.

        Raises ``RunConflictError`` unless the run is held and its time is not over.
        """
        now = self.clock()
        with writing(self.engine) as connection:
            run = claim(connection, run_id)
            if run.status is not RunStatus.HELD:
                raise RunConflictError(f"only a held run can be approved; {_run_status(run)}")
            if run.held_until is not None and run.held_until < now:
                raise RunConflictError(
                    f"the held deletes could be approved until {run.held_until:%Y-%m-%d %H:%M} UTC; "
                    "a new run holds them again if they are still due"
                )
            word = _word("approved", now, by, reason)
            _tell(witness, connection, run)
            return move(
                connection, run, RunStatus.QUEUED, now, approved_at=now, finished_at=None, held_until=None, **word
            )

    def discard(
        self, run_id: str, *, by: str | None = None, reason: str | None = None, witness: Witness | None = None
    ) -> Run:
        """Drops the held deletes of a run; later runs leave them alone until what they would delete changes.

        Raises ``RunConflictError`` unless the run is held.
        """
        with writing(self.engine) as connection:
            run = claim(connection, run_id)
            if run.status is not RunStatus.HELD:
                raise RunConflictError(f"only a held run can be discarded; {_run_status(run)}")
            _tell(witness, connection, run)
            now = self.clock()
            return _discard(connection, run, now, _word("discarded", now, by, reason))

    def cancel(
        self, run_id: str, *, by: str | None = None, reason: str | None = None, witness: Witness | None = None
    ) -> Run:
        """Ends a queued run at once; asks a running one to end before its next call; drops the deletes of a held one.

        Raises ``RunConflictError`` when the run has ended.
        """
        with writing(self.engine) as connection:
            run = claim(connection, run_id)
            now = self.clock()
            if not run.is_final:
                _tell(witness, connection, run)
            if run.status is RunStatus.HELD:
                return _discard(connection, run, now, _word("discarded", now, by, reason))
            # An approval is not overwritten: who let the deletes go stays known.
            word = {} if run.decision else _word("cancelled", now, by, reason)
            if run.status is RunStatus.QUEUED:
                return move(connection, run, RunStatus.CANCELLED, now, cancel_requested=True, finished_at=now, **word)
            if run.is_running:
                return change(connection, run, cancel_requested=True, **word)
            raise RunConflictError(f"the run has ended: {_run_status(run)}")

    def is_cancelled(self, run_id: str) -> bool:
        """Whether an operator has asked the run to end; False if the database is away, which the next write handles."""
        try:
            with reading(self.engine) as connection:
                return cancel_is_requested(connection, run_id)
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
        """The items of the run's plan in order, those after the ordinal ``after``. Raises ``RunNotFoundError``."""
        with reading(self.engine) as connection:
            plan_id = row_of(connection, run_id).plan_id
            if plan_id is None:
                return []
            wanted = ItemFilter(status=status, kind=kind)
            return list_changes(connection, plan_id, criteria=wanted, after=after, limit=limit)

    def summary(self, run_id: str) -> list[Sum]:
        """How many items of each sort the run's plan has. Raises ``RunNotFoundError``."""
        with reading(self.engine) as connection:
            plan_id = row_of(connection, run_id).plan_id
            return [] if plan_id is None else sum_up(connection, plan_id)

    def orphaned(self, causes: Mapping[str, str] = MappingProxyType({})) -> list[Run]:
        """Ends the runs that a process left behind when it died or lost its database, and gives them.

        Only for a caller that holds the synchronization's lock: then a run that claims to be running is not. The next
        run plans again from the ledger, so nothing that such a run did or did not do is lost. ``causes``: run id → why
        it ended, where the caller knows.
        """
        with writing(self.engine) as connection:
            left = connection.execute(
                select(RUN).where(RUN.c.status.in_(list(RUNNING))).order_by(RUN.c.run_id).with_for_update()
            ).all()
            ended = []
            for run in map(run_from, left):
                by = f" ({run.worker})" if run.worker else ""
                guess = f"the process that ran it{by}, or its connection to the database, ended in the middle"
                error = f"{causes.get(run.run_id, guess)}; the next run goes on from there"
                values = {"error": error, "finished_at": self.clock(), "interrupted": True}
                ended.append(move(connection, run, RunStatus.FAILED, self.clock(), **values))
            return ended

    def go_on_from(self, run: Run) -> Run | None:
        """Queues the run that continues an interrupted one, once, and returns it.

        None for a dry run, a stored plan and a run that an operator cancelled, and after ``MAX_CONTINUATIONS`` failed
        runs in a row. Runs that stopped with their process do not count: every deployment does that.
        """
        if run.dry_run or run.cancel_requested or run.requested_plan_id is not None:
            return None
        with reading(self.engine) as connection:
            before = 0
            link: str | None = run.run_id
            while link is not None and before <= MAX_CONTINUATIONS:
                row = connection.execute(select(RUN.c.run_id, RUN.c.status).where(RUN.c.continued_by == link)).first()
                link = None if row is None else row.run_id
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
        """Forgets runs that ended longer ago than that, with their plans and journals; how many.

        Stored plans of that age go with them. Runs that still wait for approval stay.
        """
        before = epoch_ms(self.clock() - older_than)
        # There may be one every other second of those that follow changes; what went well with them nobody asks for.
        brief = epoch_ms(self.clock() - min(older_than, _CHANGES_KEPT))
        with writing(self.engine) as connection:
            # The conditions stand in the DELETE itself: of a run that somebody moves meanwhile they are asked again.
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
            kept = select(RUN.c.plan_id).where(RUN.c.plan_id.is_not(None))
            asked = select(RUN.c.requested_plan_id).where(RUN.c.requested_plan_id.is_not(None))
            in_flight = select(_CALL.c.plan_id).where(_CALL.c.settled_at.is_(None))
            connection.execute(
                delete(_PLAN)
                .where(_PLAN.c.created_at < brief)
                .where(_PLAN.c.plan_id.not_in(kept), _PLAN.c.plan_id.not_in(asked), _PLAN.c.plan_id.not_in(in_flight))
            )
            for table in _OF_PLANS:
                connection.execute(delete(table).where(table.c.plan_id.not_in(select(_PLAN.c.plan_id))))
            delete_unused_payloads(connection)
            return pruned


def ended_runs(connection: Connection) -> dict[str, int]:
    """Status → how many runs ever ended so; one that was held and went on ended twice."""
    return {row.status: row.runs for row in statements.run(connection, "SELECT status, runs FROM run_tally")}


def _tell(witness: Witness | None, connection: Connection, run: Run) -> None:
    if witness is not None:
        witness(connection, run)


def _word(decision: str, at: datetime, by: str | None, reason: str | None) -> dict[str, object]:
    return {"decision": decision, "decided_at": at, "decided_by": by, "decision_reason": reason or None}


def _run_status(run: Run) -> str:
    """What has become of a run, for whoever comes too late."""
    return f"this one is {run.status}" + (f", {decided}" if (decided := run.decided) else "")


def _discard(connection: Connection, run: Run, at: datetime, word: Mapping[str, object]) -> Run:
    counts = {
        kind: {
            action: {("discarded" if outcome == "held" else outcome): number for outcome, number in numbers.items()}
            for action, numbers in actions.items()
        }
        for kind, actions in run.counts.items()
    }
    discarded = move(connection, run, RunStatus.CANCELLED, at, counts=counts, **word)
    if run.plan_id is not None and run.ledger_id is not None:
        message = f"left alone: {discarded.decided}"
        discard_held(connection, ledger_id=run.ledger_id, run_id=run.run_id, plan_id=run.plan_id, message=message)
    return discarded
