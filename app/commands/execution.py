"""Executes runs in the process of a command, under the lock that all workers share."""

from dataclasses import replace
from math import inf
from time import monotonic

from app.commands.bootstrap.application import Application
from app.commands.bootstrap.what_if import ReplacedSources
from app.commands.frame import CommandError, EndedBySignalError
from app.commands.operator import operator
from app.commands.problems import count_problems_now
from app.commands.progress import progress
from app.commands.screen import print_note
from app.foundation.processes import stop_signals
from app.sync.runs.audit import audited, requested_action
from app.sync.runs.lock import SyncLock
from app.sync.runs.run import Run, RunRequest, RunStatus


class BusyError(CommandError):
    """Another process is synchronizing, and the timeout is over."""

    exit_code = 5


def run_now(
    parts: Application, request: RunRequest, replaced: ReplacedSources | None = None, *, timeout: float | None = None
) -> Run:
    """Queues a run and executes it in this process, with progress on standard error.

    ``replaced``: other sources than the configured ones. ``timeout``: seconds to wait for another process that
    synchronizes. None waits without limit. Raises ``BusyError`` after it.

    Ctrl-C cancels the run before its next call. SIGTERM stops it there, and another run continues it.
    """
    lock = parts.sync_lock()
    _acquire(lock, parts, timeout)
    try:
        parts.runs.end_orphans()
        actor = operator()
        audit_hook = audited(parts.audit, actor, requested_action(request), request.asked_reason)
        run, _ = parts.runs.enqueue(replace(request, asked_by=actor.name), audit_hook=audit_hook)
        return _execute(parts, run.run_id, lock, replaced)
    finally:
        lock.release()


def resume(parts: Application, run_id: str) -> Run:
    """Executes a queued run, or waits for the worker that was faster."""
    lock = parts.sync_lock()
    while True:
        acquired = lock.acquire(timeout=1.0)
        try:
            run = parts.runs.get(run_id)
            if run.status is RunStatus.QUEUED and acquired:
                return _execute(parts, run_id, lock)
            if acquired or (run.status is not RunStatus.QUEUED and not run.is_running):
                return run
        finally:
            if acquired:
                lock.release()


def _acquire(lock: SyncLock, parts: Application, timeout: float | None) -> None:
    """Raises ``BusyError`` after ``timeout`` seconds, and database errors if the database is unavailable."""
    if lock.acquire():
        return
    parts.check_database()
    if timeout != 0:
        print_note("another process is synchronizing; waiting for it to end")
    deadline = monotonic() + (inf if timeout is None else timeout)
    while (left := deadline - monotonic()) > 0:
        if lock.acquire(timeout=min(left, 5.0)):
            return
        parts.check_database()
    raise BusyError("another process is synchronizing" + (f"; it did not end within {timeout:g} s" if timeout else ""))


def _execute(parts: Application, run_id: str, lock: SyncLock, replaced: ReplacedSources | None = None) -> Run:
    with stop_signals(interrupt_cancels=True) as stop, progress() as display:
        engine = parts.sync_engine(
            stop=stop,
            sources=None if replaced is None else replaced.sources(parts.settings, stop),
            what_if=None if replaced is None else replaced.what_if,
        )
        run = engine.execute(run_id, lock=lock, progress=display, stop=stop)
    if stop.number is not None and run.status in {RunStatus.FAILED, RunStatus.CANCELLED}:
        done = run.total("done")
        remaining = max(0, run.total("planned") - done - run.total("failed"))
        continuation = parts.runs.continue_run(run) if run.interrupted else None
        if continuation is None:
            rest = f"{remaining:,} left to the next sync; run {run.run_id}"
        else:
            rest = f"{remaining:,} left to run {continuation.run_id}, which a worker or the next usher sync executes"
        raise EndedBySignalError(f"{done:,} done, {rest}", stop.number)
    if stop.number is None and not run.dry_run:
        count_problems_now(parts)
    return run
