"""The engine, which takes one run of the synchronization from its request to its end.

The rules: ``app/sync/runs/README.md``, "Ends".

1. *reading*: the directory is read into the access model. That counts even when the backend cannot be reached.
2. *planning*: calls that were in flight when an earlier run died become unconfirmed in the ledger; the backend is read
   back where that is asked for or was never done; the plan is made, or the stored one is taken if it is still true.
3. *applying*: the plan is sent, unless the run is a dry one.
4. the end: done, partial, held, failed or cancelled.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from threading import Event

import structlog
from sqlalchemy import Engine

from app.access.candidate import CandidateLostError, candidate_of, database_state, shadow_tables
from app.access.revisions import current_revision
from app.client.capabilities import Capabilities
from app.client.client import BackendClient
from app.client.errors import ClientError
from app.client.settings import BackendSettings
from app.directory.guarded import ReadingStoppedError
from app.directory.settings import DirectorySettings
from app.directory.source import Source, Verdict
from app.foundation.clock import Clock, Sleep, epoch_ms
from app.foundation.database import statements
from app.foundation.database.engine import is_sqlite, reading, writing
from app.foundation.database.errors import database_problem, is_outage
from app.sync.apply.applier import Applier, ApplyTarget
from app.sync.apply.gate import BROKEN, CANCELLED, Ending, Gate, stopped
from app.sync.apply.port import ClientPort
from app.sync.apply.progress import Progress
from app.sync.apply.sender import Sender
from app.sync.apply.verify import Verify, VerifyStoppedError
from app.sync.ledger.counts import add_counts, read_run_counts, run_counts
from app.sync.ledger.failures import count_retried, forget_settled
from app.sync.ledger.journal import recover
from app.sync.ledger.ledger import Ledger, note_findings, open_ledger
from app.sync.ledger.tables import LEDGER_TABLES
from app.sync.ledger.unsupported import restore_unsupported, unsupported_operations
from app.sync.plan.planner import PlanningError, is_still_due, make_plan
from app.sync.plan.selection import Selection
from app.sync.plan.stored import Plan, load_plan, stale_sentence
from app.sync.plan.unknown import unknown_ids
from app.sync.plan.unsupported import mark_unsupported, plan_unsupported_again
from app.sync.runs.context import Course, directory_report, outcome_of, without_held
from app.sync.runs.lifecycle import Runs
from app.sync.runs.lock import SyncLock
from app.sync.runs.queue import CHANGES
from app.sync.runs.refresh import losses_sentences, refresh, source_sentence
from app.sync.runs.rows import allowed_deletes
from app.sync.runs.run import Run, RunConflictError, RunStatus, WhatIf
from app.sync.runs.settings import SyncSettings
from app.sync.runs.source_checks import retained_sentence
from app.sync.runs.workers import process_name

_VOID = "the directory has changed while the plan was made; make it again"
_LEVELS = {
    RunStatus.FAILED: logging.ERROR,
    RunStatus.PARTIAL: logging.WARNING,
    RunStatus.HELD: logging.WARNING,
    RunStatus.CANCELLED: logging.WARNING,
}
"""How loudly the end of a run is told."""


class _EndedError(Exception):
    """The run ends here; ``ending`` says how."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.message)
        self.ending = ending


@dataclass(kw_only=True)
class SyncEngine:
    """Runs one run at a time; the parts it works with are given to it."""

    engine: Engine
    client: BackendClient
    sources: Sequence[Source]
    sync_settings: SyncSettings
    backend_settings: BackendSettings
    directory_settings: DirectorySettings
    clock: Clock
    sleep: Sleep
    random: Random
    what_if: WhatIf | None = None
    """For a dry run: the sources are not those that are configured."""

    def execute(self, run_id: str, *, lock: SyncLock, progress: Progress, stop: Event) -> Run:
        """Takes a queued run to its end and gives it as it then stands.

        The caller holds ``lock`` (``app.sync.runs.lock``). ``stop`` set from a signal handler ends the run before its
        next call. Whatever goes wrong with the directory or the backend ends in the run's ``status`` and ``error``,
        not in an exception. Raises ``RunConflictError`` when the run is not queued, and database errors when the
        database stays away: the run then counts as orphaned.
        """
        runs = Runs(self.engine, self.clock, self.random)
        worker = process_name(os.getpid())
        # A run whose held deletes were approved began long ago.
        began = "started_at" if runs.get(run_id).approved_at is None else "resumed_at"
        run = runs.move(run_id, RunStatus.QUEUED, RunStatus.READING, worker=worker, error=None, **{began: self.clock()})
        course = Course(
            run=run,
            gate=Gate(
                held=lock.held, stop=stop, why_lost=lock.why_lost, is_cancelled=lambda: runs.is_cancelled(run_id)
            ),
            progress=progress,
            capabilities=Capabilities(self.backend_settings.operations),
            engine=self.engine,
            report={},
        )
        log = structlog.stdlib.get_logger(__name__).bind(run_id=run_id)
        log.info("run_started", trigger=run.trigger, dry_run=run.dry_run)
        try:
            # Between two tries of one call there may be minutes, in which the lock can be lost.
            with self.client.guarded(course.gate.is_open):
                if run.dry_run:
                    self._go_on_candidate(runs, course)
                else:
                    self._go(runs, course)
        except _EndedError as ended:
            return self._end(runs, course, ended.ending)
        except RunConflictError as error:
            # Somebody else has ended it: that stands.
            return self._end(runs, course, Ending(cancelled=False, message=str(error)))
        except ClientError as error:
            failed = Ending(cancelled=False, message=f"the backend: {error}")
            return self._end(runs, course, _reason(course.gate, failed))
        except ReadingStoppedError as error:
            return self._end(runs, course, _reason(course.gate, stopped(stop, str(error))))
        except PlanningError as error:
            return self._end(runs, course, Ending(cancelled=False, message=str(error)))
        except Exception as error:
            if is_outage(error):
                problem = database_problem(error)
                log.warning("run_lost_its_database", problem=problem)
                failed = Ending(cancelled=False, message=problem, interrupted=not is_sqlite(self.engine))
            else:
                log.exception("run_broke")
                message = f"an error of the program, {type(error).__name__}; the log has the details"
                failed = Ending(cancelled=False, message=message)
            return self._end(runs, course, _reason(course.gate, failed))
        return self._end(runs, course, course.gate.ending)

    def _go_on_candidate(self, runs: Runs, course: Course) -> None:
        """The same for a dry run: nobody is answered from what it reads, and nothing becomes ours because of it."""
        with candidate_of(self.engine) as candidate:
            course.engine = candidate
            try:
                self._go(runs, course)
            except CandidateLostError as error:
                raise PlanningError(_VOID) from error
            finally:
                course.engine = self.engine
        with reading(self.engine) as connection:
            if course.rests_on is not None and database_state(connection) != course.rests_on:
                raise PlanningError(_VOID)

    def _go(self, runs: Runs, course: Course) -> None:
        revision = self._read(course)
        ledger = open_ledger(
            self.engine, self.backend_settings.base_url, self.backend_settings.api_key.get_secret_value(), self.clock
        )
        run = runs.move(
            course.run.run_id,
            RunStatus.READING,
            RunStatus.PLANNING,
            ledger_id=ledger.ledger_id,
            revision=revision,
            report=course.report,
        )
        _go_on(course, run)
        interrupted = recover(self.engine, ledger.ledger_id, now_ms=epoch_ms(self.clock()))
        if interrupted:
            course.report["interruptedCalls"] = interrupted
        self._look_for_unsupported(course, ledger)
        self._verify(runs, course, ledger)
        self._look_for_unknown(course, ledger)
        course.progress.phase("planning", None)
        plan = self._plan(course, ledger)
        course.plan_id = plan.plan_id
        if plan.holds:
            course.report["held"] = [hold.to_wire() for hold in plan.holds]
        if not run.dry_run and not run.plan_is_settled and not (run.organization_ids or run.user_ids):
            with writing(self.engine) as connection:
                forget_settled(connection, ledger.ledger_id, plan.plan_id)
        counts = run_counts(plan.counts)
        if run.dry_run:
            with writing(self.engine) as connection:
                unsupported = mark_unsupported(connection, plan.plan_id, course.capabilities)
                if unsupported:
                    counts = read_run_counts(connection, plan.plan_id)
                    course.report["unsupported"] = unsupported
        counts = add_counts(course.before, counts)
        runs.note(run.run_id, RunStatus.PLANNING, plan_id=plan.plan_id, counts=counts, report=course.report)
        if run.dry_run or not plan.has_changes:
            return
        _go_on(course, runs.move(run.run_id, RunStatus.PLANNING, RunStatus.APPLYING))
        self._apply(course, ledger)

    def _read(self, course: Course) -> int:
        run = course.run
        if run.trigger == CHANGES and (run.organization_ids or run.user_ids):
            # What changed is in force already: that is why this run was made.
            with reading(self.engine) as connection:
                return current_revision(connection)
        course.progress.phase("reading", None)
        selection = Selection.of(course.run.organization_ids, course.run.user_ids)
        report = refresh(
            course.engine,
            self.sources,
            clock=self.clock,
            guard=self.directory_settings.guard,
            accept_empty=self.what_if.emptied if self.what_if is not None else (),
            # Whoever asks what would come of another file wants to see it.
            accept_shrink=[source.name for source in self.sources] if self.what_if is not None else (),
            # A run of some organizations or users needs to know of those alone.
            asked=None if selection.is_everything else selection,
            progress=course.progress,
            on_candidate=course.run.dry_run,
            is_planned_from=course.run.dry_run,
        )
        course.rests_on = report.rests_on
        course.report |= directory_report(report)
        if self.what_if is not None:
            course.report["whatIf"] = list(self.what_if.files)
        for source in report.sources:
            if source.verdict is not Verdict.COMPLETE:
                course.progress.note(source_sentence(source.name, source.verdict.value, source.reason))
        for sentence in losses_sentences(report.sources):
            course.progress.note(sentence)
        for name in report.retained_sources:
            course.progress.note(retained_sentence(name))
        with reading(self.engine) as connection:
            # A candidate's own revision means nothing to anybody.
            return current_revision(connection) if course.run.dry_run else report.revision

    def _verify(self, runs: Runs, course: Course, ledger: Ledger) -> None:
        """Reads the backend back where that is due. A stored plan and approved deletes are taken as they are, but a
        stored plan may be the first that is applied at all: what it was made from had been read back, too."""
        run = course.run
        if run.approved_at is not None or (run.plan_is_settled and not ledger.needs_verify):
            return
        if not run.verify and not ledger.needs_verify:
            return
        course.progress.phase("verifying", None)
        runs.move(run.run_id, RunStatus.PLANNING, RunStatus.VERIFYING)
        if run.dry_run:
            shadow_tables(course.engine, LEDGER_TABLES)
        verify = Verify(
            course.engine,
            self.client,
            ledger_id=ledger.ledger_id,
            capabilities=course.capabilities,
            gate=course.gate,
            threads=self.backend_settings.max_in_flight,
            progress=course.progress,
            clock=self.clock,
        )
        try:
            report = verify.run(Selection.of(run.organization_ids, run.user_ids))
        except VerifyStoppedError:
            _go_on(course, run)
            raise
        course.report["verify"] = report.to_wire()
        # A dry run has mended its candidate's ledger, and not ours.
        with writing(course.engine) as connection:
            note_findings(connection, ledger.ledger_id, report.numbers(), self.clock())
        _go_on(course, runs.move(run.run_id, RunStatus.VERIFYING, RunStatus.PLANNING))

    def _look_for_unsupported(self, course: Course, ledger: Ledger) -> None:
        """Does the backend still lack what it lacked before?

        One question in a run is enough while it does; a verifying run asks for all. What it has after all makes
        unconfirmed what was not told for want of it.
        """
        with reading(self.engine) as connection:
            unsupported = unsupported_operations(connection, ledger.ledger_id)
            organization_id = statements.run(
                connection,
                """
                SELECT item_id FROM ledger_item
                WHERE ledger_id = :ledger_id AND kind = 'organization' AND certain ORDER BY item_id LIMIT 1
                """,
                {"ledger_id": ledger.ledger_id},
            ).scalar()
        if (
            not unsupported
            or organization_id is None
            or course.capabilities.mode == "core"
            or course.run.plan_is_settled
        ):
            return
        backend = ClientPort(self.client)
        self.random.shuffle(unsupported)
        for operation, without_roles in unsupported:
            try:
                there = backend.has_operation(operation, str(organization_id), with_roles=without_roles)
            except ClientError:
                return
            if there:
                with writing(self.engine) as connection:
                    restore_unsupported(connection, ledger.ledger_id, operation, without_roles=without_roles)
            elif not course.run.verify:
                return

    def _look_for_unknown(self, course: Course, ledger: Ledger) -> None:
        """Has the run been asked for ids that nobody knows? It goes on with the others, and its report says so."""
        run = course.run
        if run.plan_is_settled:
            return
        with reading(course.engine) as connection:
            unknown = unknown_ids(connection, ledger.ledger_id, Selection.of(run.organization_ids, run.user_ids))
        if unknown is not None:
            course.report["unknown"] = unknown.to_wire()
            log = structlog.stdlib.get_logger(__name__)
            log.info("run_names_unknown_ids", run_id=run.run_id, unknown=course.report["unknown"])

    def _plan(self, course: Course, ledger: Ledger) -> Plan:
        run = course.run
        if run.approved_at is None and run.requested_plan_id is not None:
            return self._stored_plan(run.requested_plan_id, ledger)
        if run.approved_at is not None:
            course.before = without_held(run.counts)
        plan = make_plan(
            course.engine,
            ledger_id=ledger.ledger_id,
            now=self.clock(),
            limits=self.sync_settings.limits,
            grace=timedelta(seconds=self.directory_settings.grace),
            selection=Selection.of(run.organization_ids, run.user_ids),
            allow_deletes=run.allow_deletes,
            approving=run.plan_id if run.approved_at is not None else None,
            random=self.random,
            preview=run.dry_run,
            retry=run.kinds if run.retry else None,
            retried=run.items,
        )
        if run.retry:
            self._tell_retried(course, plan)
        return plan

    def _tell_retried(self, course: Course, plan: Plan) -> None:
        """Reports how many items that failed before are tried now."""
        with writing(course.engine) as connection:
            waiting, parked = count_retried(
                connection,
                ledger_id=plan.ledger_id,
                plan_id=plan.plan_id,
                now_ms=epoch_ms(self.clock()),
                kinds=course.run.kinds,
                items=course.run.items,
            )
        course.report["retried"] = {"waiting": waiting, "parked": parked}
        course.progress.note(
            f"{waiting} {'item that waits' if waiting == 1 else 'items that wait'} for the next try and"
            f" {parked} parked {'item' if parked == 1 else 'items'} will be tried now"
        )

    def _stored_plan(self, plan_id: str, ledger: Ledger) -> Plan:
        with writing(self.engine) as connection:
            plan_unsupported_again(connection, plan_id)
            plan = load_plan(connection, plan_id)
            if plan is None or plan.ledger_id != ledger.ledger_id:
                raise PlanningError(f"there is no plan {plan_id} of this backend")
            allow_deletes = allowed_deletes(connection, plan_id)
        grace = timedelta(seconds=self.directory_settings.grace)
        if not is_still_due(
            self.engine, plan, limits=self.sync_settings.limits, grace=grace, allow_deletes=allow_deletes
        ):
            # Whoever asked is told. Nothing failed, and nobody else needs to know.
            raise _EndedError(Ending(cancelled=True, message=stale_sentence(plan_id)))
        return plan

    def _apply(self, course: Course, ledger: Ledger) -> None:
        if course.plan_id is None:
            return
        sender = Sender(
            ClientPort(self.client), course.capabilities, course.gate, batch_size=self.backend_settings.batch_size
        )
        Applier(
            self.engine,
            ApplyTarget(run_id=course.run.run_id, plan_id=course.plan_id, ledger_id=ledger.ledger_id),
            sender=sender,
            gate=course.gate,
            max_in_flight=self.backend_settings.max_in_flight,
            batch_size=self.backend_settings.batch_size,
            progress=course.progress,
            clock=self.clock,
            sleep=self.sleep,
            random=self.random,
            before=course.before,
            calls=course.run.calls,
        ).apply()

    def _end(self, runs: Runs, course: Course, ending: Ending | None) -> Run:
        """Gives the run the status that its plan's items, or the reason why it ended early, call for."""
        course.report |= course.capabilities.report()
        log = structlog.stdlib.get_logger(__name__)
        try:
            run = runs.end(course.run.run_id, lambda connection: outcome_of(connection, course, ending, self.clock()))
        except RunConflictError:
            run = runs.get(course.run.run_id)
            if not run.is_final:
                raise
            log.warning("run_taken_over", run_id=run.run_id, status=run.status.value, error=run.error)
            return run
        took = run.finished_at - run.started_at if run.finished_at and run.started_at else None
        log.log(
            _LEVELS.get(run.status, logging.INFO),
            "run_ended",
            run_id=run.run_id,
            status=run.status.value,
            counts=run.counts,
            seconds=None if took is None else round(took.total_seconds(), 1),
            calls=run.calls,
            error=run.error,
        )
        return run


def _go_on(course: Course, run: Run) -> None:
    """Raises ``_EndedError`` when the run is to end."""
    if run.cancel_requested:
        course.gate.end(CANCELLED)
    if not course.gate.is_open() and course.gate.ending is not None:
        raise _EndedError(course.gate.ending)


def _reason(gate: Gate, raised: Ending) -> Ending:
    """Why the run ends: what the gate was closed for, unless that was what has been raised."""
    return raised if gate.ending is None or gate.ending is BROKEN else gate.ending
