"""Builds the parts of a worker, among them the execution of runs and the deletion of old rows."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

import structlog

from app.access.stored_problems import COUNT_EVERY_MS, count_problems
from app.commands.bootstrap.application import Application, build_watch, expectations
from app.commands.bootstrap.databases import store_guard
from app.commands.bootstrap.what_if import ReplacementError, uploaded_sources
from app.foundation.audit import Audit
from app.foundation.clock import epoch_ms
from app.foundation.database.engine import reading, writing
from app.foundation.database.errors import cause_of
from app.monitoring.activity import delete_old_activity
from app.monitoring.metrics import Metrics
from app.monitoring.notify.watch import Watch
from app.sync.runs.files import file_of
from app.sync.runs.lifecycle import Runs
from app.sync.runs.lock import SyncLock
from app.sync.runs.polling import SourcePoller, source_pollers
from app.sync.runs.run import Run, RunStatus, process_name
from app.sync.runs.workers import Heartbeat
from app.sync.scheduler import scheduler_for
from app.sync.worker import Worker

if TYPE_CHECKING:
    from apscheduler.schedulers.background import BackgroundScheduler

    from app.client.records import Observer
    from app.sync.apply.progress import Progress
    from app.sync.runs.engine import SyncEngine

_log = structlog.stdlib.get_logger(__name__)

_WATCH_INTERVAL = 10.0
"""Seconds between two checks by a worker."""


@dataclass(frozen=True, kw_only=True)
class WorkerParts:
    """The concurrent parts of one worker, not yet started."""

    worker: Worker
    scheduler: "BackgroundScheduler"
    heartbeat: Heartbeat
    watch: Watch
    polls: Sequence[SourcePoller]
    next_run: datetime | None
    """The next scheduled run."""


def worker_parts(parts: Application, *, stop: Event) -> WorkerParts:
    """The parts of a worker that runs until ``stop`` is set. Raises ``SetUpError`` and ``ScheduleError``."""
    settings, clock, random = parts.settings, parts.clock, parts.random
    metrics = Metrics()
    engine = parts.sync_engine(stop=stop, observer=metrics.call_ended)
    lock = parts.sync_lock()
    scheduler = scheduler_for(
        settings.sync,
        parts.runs,
        prune=partial(
            delete_old_rows,
            parts.runs,
            keep_runs=timedelta(days=settings.worker.keep_runs),
            keep_audit=timedelta(days=settings.console.keep_audit_days),
        ),
        count_problems=partial(count_problems, parts.engine, clock, every_ms=COUNT_EVERY_MS),
        clock=clock,
        random=random,
        stop=stop,
    )
    return WorkerParts(
        worker=Worker(
            runs=parts.runs,
            lock=lock,
            execute=partial(_execute_run, parts=parts, engine=engine, observer=metrics.call_ended),
            clock=clock,
            stop=stop,
            poll=settings.worker.poll,
            push_delay=settings.sync.push_delay,
            check_schema=store_guard(parts.engine).check,
        ),
        scheduler=scheduler,
        heartbeat=Heartbeat(
            engine=parts.engine,
            worker_id=f"{random.getrandbits(64):016x}",
            name=process_name(os.getpid()),
            leads=lock.held,
            clock=clock,
            stop=stop,
            after_jump=scheduler.wakeup,
        ),
        watch=build_watch(settings, parts.engine, clock=clock, stop=stop, interval=_WATCH_INTERVAL),
        polls=source_pollers(
            parts.engine, parts.sources(stop=stop), guard=settings.directory.guard, clock=clock, stop=stop
        ),
        next_run=expectations(settings).due_after(clock()),
    )


def _execute_run(
    run_id: str,
    lock: SyncLock,
    progress: "Progress",
    stop: Event,
    *,
    parts: Application,
    engine: "SyncEngine",
    observer: "Observer",
) -> Run:
    """Executes a queued run as ``SyncEngine.execute``: with ``engine``, or if it previews an uploaded file, with an
    engine that reads this file. ``observer`` receives the calls of the latter."""
    with reading(parts.engine) as connection:
        file = file_of(connection, run_id)
    if file is None:
        return engine.execute(run_id, lock=lock, progress=progress, stop=stop)
    with ExitStack() as stack:
        try:
            replaced = stack.enter_context(uploaded_sources(parts.settings, file))
            sources = replaced.sources(parts.settings, stop)
            of_file = parts.sync_engine(stop=stop, observer=observer, sources=sources, what_if=replaced.what_if)
            stack.callback(of_file.client.close)
        except ReplacementError as error:
            problem = str(error)
        except OSError as error:
            problem = f"the worker cannot write {file.name} to its temporary folder: {cause_of(error)}"
        else:
            return of_file.execute(run_id, lock=lock, progress=progress, stop=stop)
    now = parts.clock()
    return parts.runs.move(run_id, RunStatus.QUEUED, RunStatus.FAILED, error=problem, finished_at=now)


def delete_old_rows(runs: Runs, *, keep_runs: timedelta, keep_audit: timedelta) -> None:
    """Deletes runs, audit rows and activity after their retention period. Logs how many."""
    run_count = runs.prune(keep_runs)
    with writing(runs.engine) as connection:
        audit_count = Audit(runs.clock).prune(connection, keep_audit)
        delete_old_activity(connection, epoch_ms(runs.clock()))
    if run_count:
        _log.info("runs_forgotten", runs=run_count)
    if audit_count:
        _log.info("audit_forgotten", rows=audit_count)
