"""``usher worker``: runs scheduled and queued syncs, and serves its metrics at ``metrics.worker_port``."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, NoReturn

import click

from app.commands.daemon import child_arguments, ends_with_parent, log_start, server_options
from app.commands.frame import CommandError, Invocation, UsherCommand, pass_invocation
from app.commands.screen import print_note
from app.foundation.clock import utc_now, utc_text
from app.foundation.processes import ChildEndedError, Children, freeze_garbage_collector, stop_signals

if TYPE_CHECKING:
    from app.commands.bootstrap.application import Application
    from app.settings import Settings

_LAST_HEARTBEAT_TIMEOUT = 5.0


@click.command(cls=UsherCommand)
@click.option("--only-metrics", is_flag=True, hidden=True)
@ends_with_parent
@pass_invocation
def worker(invocation: Invocation, only_metrics: bool) -> None:
    """Run scheduled and queued syncs.

    Any number of workers may run, on any number of nodes. One at a time syncs.
    """
    from app.commands.bootstrap.requirements import require_backend, require_sources
    from app.foundation.files import make_folder
    from app.http.listening import BindError, bind
    from app.monitoring.counters import VARIABLE, share_counters

    settings = invocation.settings(server=True)
    if only_metrics:
        _serve_metrics(settings)
    require_backend(settings)
    require_sources(settings)
    if not settings.metrics.worker_port:
        if settings.metrics.directory:
            # The service on this machine serves the counters in that folder.
            make_folder(Path(settings.metrics.directory))
            os.environ.setdefault(VARIABLE, settings.metrics.directory)
        _run_worker(invocation, settings)
        return
    try:
        bind(settings.server.host, settings.metrics.worker_port).close()
    except BindError as error:
        raise CommandError(f"metrics.worker_port: {error}") from error
    with share_counters(settings.metrics.directory), _metrics_process(invocation):
        _run_worker(invocation, settings)


def _serve_metrics(settings: Settings) -> NoReturn:
    """Serves the counters of the parent process, a worker, at ``metrics.worker_port``."""
    from app.commands.bootstrap.service import worker_metrics
    from app.http.gunicorn import serve as serve_app

    options = server_options(settings, settings.metrics.worker_port, name="usher metrics")
    serve_app(lambda: worker_metrics(settings), replace(options, workers=1, threads=2))


@contextmanager
def _metrics_process(invocation: Invocation) -> Iterator[None]:
    """Runs a process that serves the counters of this one, and restarts it if it dies."""
    children = Children()
    stop = Event()

    def watch() -> None:
        try:
            children.watch(stop)
        except ChildEndedError as error:
            print_note(f"error: metrics.worker_port: {error}; the reason is in its last lines")

    children.keep("the worker's metrics", ["worker", "--only-metrics", *child_arguments(invocation)])
    watching = threading.Thread(target=watch, name="metrics", daemon=True)
    watching.start()
    try:
        yield
    finally:
        stop.set()
        watching.join()
        children.end(quickly=True)


def _run_worker(invocation: Invocation, settings: Settings) -> None:
    """Works until SIGTERM or SIGINT. A run ends before its next call."""
    import structlog

    from app.commands.bootstrap.application import application
    from app.commands.bootstrap.worker import worker_parts
    from app.monitoring.activity import NodeActivity, node_name

    # The default action would end the process.
    signal.signal(signal.SIGHUP, lambda _number, _frame: _start_thread("hangup", _log_hangup))
    with application(settings, needs_backend=True) as parts, stop_signals() as stop:
        # The service on the same machine has priority.
        os.nice(settings.worker.nice)
        working = worker_parts(parts, stop=stop)
        working.scheduler.start()
        if settings.sync.schedule:
            _queue_first_run(parts)
        # Daemon threads: a mail server or a source that hangs must not keep the process alive.
        _start_thread("watch", working.watch.run)
        heartbeat = _start_thread("heartbeat", working.heartbeat.run)
        activity = NodeActivity(node=node_name(), role="worker", clock=utc_now)
        _start_thread("activity", lambda: activity.keep_writing(parts.engine, stop))
        _start_thread("stop-timeout", lambda: _exit_after(stop, settings.worker.stop_timeout))
        for poll in working.polls:
            _start_thread(f"poll {poll.name}", poll.run)
        log_start(
            invocation,
            "worker",
            settings.database_url,
            schedule=settings.sync.schedule,
            verify_schedule=settings.sync.verify_schedule,
            next_run=None if working.next_run is None else utc_text(working.next_run),
        )
        freeze_garbage_collector()
        working.worker.run()
        working.scheduler.shutdown(wait=True)
        # No heartbeat may follow the sign-off.
        heartbeat.join(_LAST_HEARTBEAT_TIMEOUT)
        working.heartbeat.end()
        structlog.stdlib.get_logger(__name__).info("worker_stopped")


def _start_thread(name: str, run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _log_hangup() -> None:
    """Runs in a thread, because a signal handler may interrupt a thread that is writing to the log."""
    import structlog

    advice = "a worker reads its settings only at the start: send SIGTERM and start it again"
    structlog.stdlib.get_logger(__name__).info("hangup_ignored", advice=advice)


def _queue_first_run(parts: Application) -> None:
    """Queues the first run of a database, because the service cannot answer until then. If it fails, others follow."""
    from app.access.revisions import current_revision
    from app.foundation.database.engine import reading
    from app.sync.runs.run import RunRequest

    with reading(parts.engine) as connection:
        never_read = current_revision(connection) == 0
    if never_read:
        parts.runs.enqueue(RunRequest(trigger="schedule", idempotency_key="schedule, the first run"))


def _exit_after(stop: Event, timeout: float) -> None:
    """Ends the process if a run does not end in time. The journal makes that safe, and the next run continues it."""
    stop.wait()
    threading.Event().wait(timeout)
    print_note(f"the run did not end within {timeout:g} seconds; leaving it to the next one")
    sys.stderr.flush()
    os._exit(1)
