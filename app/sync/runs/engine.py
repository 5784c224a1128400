"""The engine, which executes one run of the synchronization.

The rules: ``app/sync/runs/README.md``, "Ends".

1. *reading*: reads the directory into the access model, which takes effect even if the backend cannot be reached.
2. *planning*: marks the items of interrupted calls as unconfirmed, reads the backend back if requested or never done,
   and makes the plan, or loads the stored one if it is still due.
3. *applying*: sends the plan, except in a dry run.
4. the end: done, partial, held, failed or cancelled.
"""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random
from threading import Event

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.access.candidate import CandidateLostError, database_state, open_candidate, shadow_tables
from app.access.decision.decide import DecisionPolicy
from app.access.revisions import current_revision
from app.client.client import BackendClient
from app.client.errors import ClientError
from app.client.settings import BackendSettings
from app.directory.bounded import ReadingStoppedError
from app.directory.settings import DirectorySettings
from app.directory.source import Source, Verdict
from app.foundation.clock import Clock, Sleep, epoch_ms
from app.foundation.database.engine import is_sqlite, reading, writing
from app.foundation.database.errors import database_problem, is_outage
from app.sync.apply.applier import Applier
from app.sync.apply.calls import CallSender
from app.sync.apply.capabilities import Capabilities, mark_unsupported, plan_unsupported_again, probe_missing
from app.sync.apply.gate import BROKEN, Ending, Gate, stopped
from app.sync.apply.progress import Progress
from app.sync.apply.requests import BackendWrites
from app.sync.apply.sender import BatchSender
from app.sync.apply.verify import Verify, VerifyStoppedError
from app.sync.ledger.failures import count_retried, forget_settled
from app.sync.ledger.journal import recover
from app.sync.ledger.ledger import Ledger, note_findings, open_ledger
from app.sync.ledger.tables import VERIFIED_TABLES
from app.sync.plan.access_impact import ImpactOfDryRun
from app.sync.plan.counts import Counts, add_counts, read_run_counts, run_counts
from app.sync.plan.planner import PlanningError, PlanRequest, is_complete_plan_different, is_up_to_date, make_plan
from app.sync.plan.selection import Retry
from app.sync.plan.stored import Plan, load_plan, stale_sentence
from app.sync.runs.context import (
    REGULAR_ENDS,
    Base,
    EndedError,
    RunContext,
    base_after,
    capability_report,
    check_gate,
    directory_report,
    final_status,
    hold_contents,
    plans_since,
    reading_sentences,
    unknown_ids,
    without_held,
)
from app.sync.runs.directory_reads import ReadOptions, read_directory
from app.sync.runs.lifecycle import Runs
from app.sync.runs.lock import SyncLock
from app.sync.runs.queue import CHANGES
from app.sync.runs.run import Run, RunConflictError, RunStatus, WhatIf, allowed_deletes, process_name, program_error
from app.sync.runs.settings import SyncSettings

_log = structlog.stdlib.get_logger(__name__)

_CHANGED = "the directory has changed while the plan was made; make it again"
_LEVELS = {
    RunStatus.FAILED: logging.ERROR,
    RunStatus.PARTIAL: logging.WARNING,
    RunStatus.HELD: logging.WARNING,
    RunStatus.CANCELLED: logging.WARNING,
}
"""The log levels of the ends of runs."""


@dataclass(kw_only=True)
class SyncEngine:
    """Executes runs, one at a time."""

    engine: Engine
    client: BackendClient
    sources: Sequence[Source]
    sync_settings: SyncSettings
    backend_settings: BackendSettings
    directory_settings: DirectorySettings
    policy: DecisionPolicy
    """The settings of decisions, for the access impact of dry runs."""
    clock: Clock
    sleep: Sleep
    random: Random
    what_if: WhatIf | None = None
    """The files that replace configured sources in a dry run."""
    _base: Base = field(default_factory=Base, init=False)

    @property
    def _grace(self) -> timedelta:
        return timedelta(seconds=self.directory_settings.grace)

    def execute(self, run_id: str, *, lock: SyncLock, progress: Progress, stop: Event) -> Run:
        """Executes a queued run and returns it with its end. The caller holds ``lock``.

        ``stop`` ends the run before its next call. Failures of the directory and the backend become the run's status
        and error. Raises ``RunConflictError`` if the run is not queued, and database errors if the database stays
        unavailable: the run is then orphaned."""
        runs = Runs(self.engine, self.clock, self.random)
        worker = process_name(os.getpid())
        began = "started_at" if runs.get(run_id).approved_at is None else "resumed_at"
        run = runs.move(run_id, RunStatus.QUEUED, RunStatus.READING, worker=worker, error=None, **{began: self.clock()})
        context = self._context(runs, run, lock, progress, stop)
        self._base = Base()
        _log.info("run_started", run_id=run_id, trigger=run.trigger, dry_run=run.dry_run)
        ending = self._ending(runs, context, stop)
        # Before the end: until then no other process can synchronize.
        base = Base()
        if ending is None:
            # Without a base, the next run plans everything.
            with suppress(SQLAlchemyError):
                base = base_after(self.engine, context.base, context.run, context.plan_id, context.ledger_id)
        run = self._end(runs, context, ending)
        self._base = base if run.status in REGULAR_ENDS else Base()
        return run

    def _context(self, runs: Runs, run: Run, lock: SyncLock, progress: Progress, stop: Event) -> RunContext:
        gate = Gate(
            holds_lock=lock.held, stop=stop, why_lost=lock.why_lost, is_cancelled=lambda: runs.is_cancelled(run.run_id)
        )
        return RunContext(
            run=run,
            gate=gate,
            # The lock can be lost in the minutes between two tries of a call.
            client=self.client.guarded(gate.is_open),
            progress=progress,
            capabilities=Capabilities(self.backend_settings.operations),
            engine=self.engine,
            base=self._base,
        )

    def _ending(self, runs: Runs, context: RunContext, stop: Event) -> Ending | None:
        """Executes the run. Returns why it ended early, or None if it did not."""
        log = _log.bind(run_id=context.run.run_id)
        try:
            if context.run.dry_run:
                self._execute_on_candidate(runs, context)
            else:
                self._execute(runs, context)
        except EndedError as error:
            return error.ending
        except (RunConflictError, PlanningError) as error:
            return Ending(str(error))
        except ReadingStoppedError as error:
            raised = stopped(stop, str(error))
        except ClientError as error:
            raised = Ending(f"the backend: {error}")
        except Exception as error:
            if is_outage(error):
                problem = database_problem(error)
                log.warning("run_lost_its_database", problem=problem)
                raised = Ending(problem, interrupted=not is_sqlite(self.engine))
            else:
                log.exception("run_broke")
                raised = Ending(program_error(error))
        else:
            return context.gate.ending
        # The gate has the reason, unless it was closed because of this exception.
        return raised if context.gate.ending in {None, BROKEN} else context.gate.ending

    def _execute_on_candidate(self, runs: Runs, context: RunContext) -> None:
        """Executes a dry run on a candidate, which changes neither the access model nor the ledger."""
        with open_candidate(self.engine) as candidate:
            context.engine = candidate
            try:
                self._execute(runs, context)
            except CandidateLostError as error:
                raise PlanningError(_CHANGED) from error
            finally:
                context.engine = self.engine
        with reading(self.engine) as connection:
            if context.depends_on is not None and database_state(connection) != context.depends_on:
                raise PlanningError(_CHANGED)

    def _execute(self, runs: Runs, context: RunContext) -> None:
        revision = self._read(context)
        ledger = open_ledger(
            self.engine, self.backend_settings.base_url, self.backend_settings.api_key.get_secret_value(), self.clock
        )
        run = runs.move(
            context.run.run_id,
            RunStatus.READING,
            RunStatus.PLANNING,
            ledger_id=ledger.ledger_id,
            revision=revision,
            report=context.report,
        )
        check_gate(context, run)
        interrupted = recover(self.engine, ledger.ledger_id, now_ms=epoch_ms(self.clock()))
        if interrupted:
            context.report["interruptedCalls"] = interrupted
        if context.capabilities.mode != "core" and not run.plan_is_fixed:
            backend = BackendWrites(context.client)
            probe_missing(self.engine, ledger.ledger_id, backend, probe_all=run.verify, random=self.random)
        context.ledger_id = ledger.ledger_id
        since = plans_since(context.base, run, ledger)
        if since and run.verify:
            self._compare_plans(context, ledger, since)
        self._verify(runs, context, ledger)
        self._report_unknown(context, ledger)
        context.progress.phase("planning", None)
        plan = self._plan(context, ledger, since)
        context.plan_id = plan.plan_id
        if plan.holds:
            context.report["held"] = [hold.to_wire() for hold in plan.holds]
        if not run.dry_run and not run.plan_is_fixed and run.selection.is_everything:
            with writing(self.engine) as connection:
                forget_settled(connection, ledger.ledger_id, plan.plan_id)
        counts = self._complete_preview(context, plan) if run.dry_run else run_counts(plan.counts)
        counts = add_counts(context.before, counts)
        runs.update(run.run_id, RunStatus.PLANNING, plan_id=plan.plan_id, counts=counts, report=context.report)
        if run.dry_run or not plan.has_changes:
            return
        check_gate(context, runs.move(run.run_id, RunStatus.PLANNING, RunStatus.APPLYING))
        self._apply(context, plan)

    def _complete_preview(self, context: RunContext, plan: Plan) -> Counts:
        """Marks what the backend lacks in the plan of a dry run, and stores the access impact. Returns the counts."""
        with writing(self.engine) as connection:
            if unsupported := mark_unsupported(connection, plan.plan_id, context.capabilities):
                context.report["unsupported"] = unsupported
            if context.impact is not None:
                context.impact.store(connection, plan.plan_id)
                context.report["impact"] = context.impact.summary()
            return read_run_counts(connection, plan.plan_id) if unsupported else run_counts(plan.counts)

    def _read(self, context: RunContext) -> int:
        """Reads the directory, unless the run is about changes that were read before. Returns the revision."""
        run = context.run
        if run.trigger == CHANGES and not run.selection.is_everything:
            # The changes are in the access model already.
            with reading(self.engine) as connection:
                return current_revision(connection)
        context.progress.phase("reading", None)
        if run.dry_run:
            context.impact = ImpactOfDryRun(self.engine, self.clock, self.policy, partial(check_gate, context, run))
        options = ReadOptions(
            selection=None if run.selection.is_everything else run.selection,
            accept_empty=self.what_if.emptied if self.what_if is not None else (),
            # A preview of another file shows all of its changes.
            accept_shrink=[source.name for source in self.sources] if self.what_if is not None else (),
        )
        report = read_directory(
            context.engine,
            self.sources,
            options,
            clock=self.clock,
            guard=self.directory_settings.guard,
            progress=context.progress,
            on_candidate=run.dry_run,
            is_planned_from=run.dry_run,
            change_hook=None if context.impact is None else context.impact.collect,
        )
        context.depends_on = report.depends_on
        context.report |= directory_report(report)
        if self.what_if is not None:
            context.report["whatIf"] = list(self.what_if.files)
            for source in report.sources:
                if source.verdict is Verdict.FAILED and source.name in self.what_if.replaced:
                    raise EndedError(Ending(source.reason))
        for sentence in reading_sentences(report):
            context.progress.note(sentence)
        with reading(self.engine) as connection:
            # The revision of a candidate is not a revision of the database.
            return current_revision(connection) if context.run.dry_run else report.revision

    def _verify(self, runs: Runs, context: RunContext, ledger: Ledger) -> None:
        """Reads the backend back if that is due. A stored plan needs it only if it was never done, and approved deletes
        never do."""
        run = context.run
        is_due = ledger.needs_verify or (run.verify and not run.plan_is_fixed)
        if run.approved_at is not None or not is_due:
            return
        context.progress.phase("verifying", None)
        runs.move(run.run_id, RunStatus.PLANNING, RunStatus.VERIFYING)
        if run.dry_run:
            shadow_tables(context.engine, VERIFIED_TABLES)
        verify = Verify(
            engine=context.engine,
            client=context.client,
            ledger_id=ledger.ledger_id,
            # The tables of a dry run are its own.
            run_id=None if run.dry_run else run.run_id,
            capabilities=context.capabilities,
            gate=context.gate,
            threads=self.backend_settings.max_in_flight,
            progress=context.progress,
            clock=self.clock,
        )
        try:
            report = verify.run(run.selection)
        except VerifyStoppedError:
            check_gate(context, run)
            raise
        context.report["verify"] = report.to_wire()
        # A dry run has corrected the ledger of its candidate.
        with writing(context.engine) as connection:
            note_findings(connection, ledger.ledger_id, report.numbers(), self.clock())
        check_gate(context, runs.move(run.run_id, RunStatus.VERIFYING, RunStatus.PLANNING))

    def _report_unknown(self, context: RunContext, ledger: Ledger) -> None:
        """Reports ids of the selection that neither the access model nor the ledger contains."""
        run = context.run
        if run.plan_is_fixed:
            return
        with reading(context.engine) as connection:
            unknown = unknown_ids(connection, ledger.ledger_id, run.selection)
        if unknown is not None:
            context.report["unknown"] = unknown
            _log.info("run_names_unknown_ids", run_id=run.run_id, unknown=unknown)

    def _compare_plans(self, context: RunContext, ledger: Ledger, since: Sequence[str]) -> None:
        """Checks before a verify that a plan of changes is the same as a plan of everything."""
        request = PlanRequest(
            ledger_id=ledger.ledger_id,
            now=self.clock(),
            limits=self.sync_settings.limits,
            grace=self._grace,
            since=since,
        )
        if is_complete_plan_different(self.engine, request):
            context.report["planOfChangesDiffers"] = True
            _log.error("plan_of_changes_differs", run_id=context.run.run_id)

    def _plan(self, context: RunContext, ledger: Ledger, since: Sequence[str]) -> Plan:
        run = context.run
        if run.approved_at is None and run.requested_plan_id is not None:
            return self._stored_plan(context, run.requested_plan_id, ledger)
        if run.approved_at is not None:
            context.before = without_held(run.counts)
        request = PlanRequest(
            ledger_id=ledger.ledger_id,
            now=self.clock(),
            limits=None if run.allow_deletes else self.sync_settings.limits,
            grace=self._grace,
            selection=run.selection,
            approving=run.plan_id if run.approved_at is not None else None,
            is_preview=run.dry_run,
            retry=Retry(run.kinds, run.items) if run.retry else None,
            since=() if run.verify else since,
        )
        plan = make_plan(context.engine, request, random=self.random)
        if run.retry:
            self._report_retried(context, plan)
        threads = self.backend_settings.max_in_flight
        return plan if request.limits is None else hold_contents(context, plan, request.approving, threads=threads)

    def _report_retried(self, context: RunContext, plan: Plan) -> None:
        """Reports how many failed items are retried."""
        with writing(context.engine) as connection:
            waiting, parked = count_retried(
                connection,
                ledger_id=plan.ledger_id,
                plan_id=plan.plan_id,
                now_ms=epoch_ms(self.clock()),
                kinds=context.run.kinds,
                items=context.run.items,
            )
        context.report["retried"] = {"waiting": waiting, "parked": parked}
        context.progress.note(
            f"{waiting} {'item that waits' if waiting == 1 else 'items that wait'} for the next try and"
            f" {parked} parked {'item' if parked == 1 else 'items'} will be tried now"
        )

    def _stored_plan(self, context: RunContext, plan_id: str, ledger: Ledger) -> Plan:
        with writing(self.engine) as connection:
            plan_unsupported_again(connection, plan_id)
            plan = load_plan(connection, plan_id)
            if plan is None or plan.ledger_id != ledger.ledger_id:
                raise PlanningError(f"there is no plan {plan_id} of this backend")
            limits = None if allowed_deletes(connection, plan_id) else self.sync_settings.limits
        if not is_up_to_date(self.engine, plan, limits=limits, grace=self._grace):
            # Cancelled, not failed: only the caller needs to know.
            raise EndedError(Ending(stale_sentence(plan_id), cancelled=True))
        threads = self.backend_settings.max_in_flight
        return plan if limits is None else hold_contents(context, plan, None, threads=threads)

    def _apply(self, context: RunContext, plan: Plan) -> None:
        calls = CallSender(BackendWrites(context.client), context.capabilities, context.gate)
        Applier(
            engine=self.engine,
            run_id=context.run.run_id,
            plan_id=plan.plan_id,
            ledger_id=plan.ledger_id,
            sender=BatchSender(calls, self.backend_settings.batch_size),
            gate=context.gate,
            threads=self.backend_settings.max_in_flight,
            progress=context.progress,
            clock=self.clock,
            sleep=self.sleep,
            random=self.random,
            counts_before=context.before,
            calls_before=context.run.calls,
        ).apply()

    def _end(self, runs: Runs, context: RunContext, ending: Ending | None) -> Run:
        """Ends the run with the status that follows from its items or from ``ending``."""
        context.report |= capability_report(context.capabilities)
        try:
            run = runs.end(
                context.run.run_id, lambda connection: final_status(connection, context, ending, self.clock())
            )
        except RunConflictError:
            run = runs.get(context.run.run_id)
            if not run.is_final:
                raise
            _log.warning("run_taken_over", run_id=run.run_id, status=run.status.value, error=run.error)
            return run
        took = run.finished_at - run.started_at if run.finished_at and run.started_at else None
        _log.log(
            # A command prints how its run ended.
            logging.INFO if run.trigger == "command" else _LEVELS.get(run.status, logging.INFO),
            "run_ended",
            run_id=run.run_id,
            status=run.status.value,
            counts=run.counts,
            seconds=None if took is None else round(took.total_seconds(), 1),
            calls=run.calls,
            error=run.error,
        )
        return run
