"""``usher serve`` and ``usher worker``: the long-running processes."""

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
from typing import TYPE_CHECKING, Any, NoReturn

import click

from app import __version__
from app.commands.frame import CommandError, Invocation, UsherCommand, pass_invocation
from app.commands.screen import note
from app.foundation.clock import utc_now, utc_text
from app.foundation.outbound.urls import local_host
from app.foundation.processes import ChildEndedError, Children, exit_with_parent, freeze_garbage_collector, stop_signals

if TYPE_CHECKING:
    from flask import Flask

    from app.commands.bootstrap.application import Application
    from app.foundation.configuration.loading import Configuration
    from app.http.gunicorn import ServerOptions
    from app.settings import Settings

_LAST_HEARTBEAT_TIMEOUT = 5.0


def _exit_with(_context: click.Context, _parameter: click.Parameter, parent: int | None) -> None:
    if parent is not None:
        exit_with_parent(parent)


ends_with_parent = click.option("--parent", type=int, hidden=True, expose_value=False, callback=_exit_with)
"""The parent's process id. The command stops when that process has ended."""


@click.command(cls=UsherCommand)
@click.option("--workers", type=click.IntRange(1, 256), help="Processes that answer requests.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port to listen on; 0: any free port.")
@click.option("--with-worker", is_flag=True, help="Also run a worker, for one machine.")
@ends_with_parent
@pass_invocation
def serve(invocation: Invocation, workers: int | None, port: int | None, with_worker: bool) -> None:
    """Serve permission calls, the operators' API and the console.

    Also serves pushes, health checks and metrics. Runs gunicorn.
    """
    from sqlalchemy.exc import OperationalError

    from app.commands.bootstrap.databases import index_folder, open_store
    from app.monitoring.counters import share_counters

    invocation.values = {"server.workers": workers, "server.port": port}
    configuration = _service_configuration(invocation, with_worker=with_worker)
    settings = configuration.settings
    # Check the schema before anything listens. Each process opens the database itself.
    try:
        open_store(settings).dispose()
    except OperationalError:
        # A node with an index can restart while the database cannot be reached.
        if not (index_folder(settings) / "current").exists():
            raise
        note("the database cannot be reached; permission calls are answered from this node's index")
    with share_counters(settings.metrics.directory):
        if with_worker:
            _serve_with_worker(invocation, settings)
        else:
            log_start(invocation, "service", settings.database_url, console=_console_url(settings))
            _serve_alone(invocation, configuration)


def _console_url(settings: Settings) -> str:
    """The address of the console. Without ``console.public_url``, it is that on this machine."""
    here = f"http://{local_host(settings.server.host)}:{settings.server.port}"
    return f"{settings.console.public_url or here}/console/"


def _service_configuration(invocation: Invocation, *, with_worker: bool = False) -> Configuration[Settings]:
    """The current settings. Raises ``SetUpError`` if they do not suffice for a service."""
    from app.commands.bootstrap.requirements import (
        require_backend,
        require_issuer_library,
        require_safe_tokens,
        require_scim_library,
        require_sources,
    )

    configuration = invocation.configuration(server=True)
    require_safe_tokens(configuration.settings)
    require_issuer_library(configuration.settings)
    require_scim_library(configuration.settings)
    if with_worker:
        require_backend(configuration.settings)
    require_sources(configuration.settings)
    return configuration


def log_start(invocation: Invocation, program: str, database_url: str, **further: object) -> None:
    """Logs the first line of a long-running process."""
    import structlog

    from app.commands.bootstrap.databases import database_location

    file = invocation.settings_file
    structlog.stdlib.get_logger(__name__).info(
        "started",
        program=program,
        version=__version__,
        settings="no file" if file is None else str(file.resolve()),
        database=database_location(database_url),
        **further,
    )


def _serve_alone(invocation: Invocation, configuration: Configuration[Settings]) -> NoReturn:
    """Runs gunicorn in this process.

    On SIGHUP, new processes take over with the current settings, so that tokens can be rotated. The address and the
    number of processes and threads do not change.
    """
    from prometheus_client.multiprocess import mark_process_dead

    from app.commands.bootstrap.doctor_process import examiner
    from app.commands.bootstrap.service import open_service
    from app.http.gunicorn import serve as serve_app

    examine = examiner([] if invocation.config is None else ["--config", str(invocation.config)])

    def factory(configuration: Configuration[Settings]) -> Callable[[], Flask]:
        return lambda: open_service(configuration.settings, origins=configuration.origins, examine=examine)

    options = server_options(
        configuration.settings,
        configuration.settings.server.port,
        name="usher",
        on_worker_exit=mark_process_dead,
        reload_factory=lambda: factory(_service_configuration(invocation)),
    )
    serve_app(factory(configuration), options)


def server_options(settings: Settings, port: int, **further: Any) -> ServerOptions:
    """The options of every HTTP server."""
    from app.commands.bootstrap.requirements import SetUpError
    from app.http.gunicorn import ServerOptions

    server = settings.server
    return ServerOptions(
        host=server.host,
        port=port,
        workers=server.workers,
        threads=server.threads,
        timeout=server.timeout,
        read_timeout=server.read_timeout,
        graceful_timeout=server.graceful_timeout,
        startup_errors=(SetUpError,),
        **further,
    )


def _serve_with_worker(invocation: Invocation, settings: Settings) -> None:
    """Runs the service and a worker as two processes that end together. A worker that dies is restarted."""
    common = _child_arguments(invocation)
    server = ["serve", "--workers", str(settings.server.workers), "--port", str(settings.server.port), *common]
    children = Children(patience=max(settings.server.graceful_timeout, settings.worker.stop_timeout) + 5)
    with stop_signals() as stop:
        try:
            children.start("the service", server)
            signal.signal(signal.SIGHUP, lambda number, _frame: children.forward_signal(number, "the service"))
            # The service keeps answering: a sync that runs out of memory must not end it.
            children.keep("the worker", ["worker", *common])
            children.watch(stop)
        except ChildEndedError as error:
            raise CommandError(f"{error}; the reason is in its last lines") from error
        finally:
            children.end()


def _child_arguments(invocation: Invocation) -> list[str]:
    """The common options for a child process."""
    return [
        *(["--config", str(invocation.config)] if invocation.config is not None else []),
        *(["-" + "v" * invocation.verbosity] if invocation.verbosity else []),
        "--parent",
        str(os.getpid()),
    ]


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
            note(f"error: metrics.worker_port: {error}; the reason is in its last lines")

    children.keep("the worker's metrics", ["worker", "--only-metrics", *_child_arguments(invocation)])
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
    """Queues a run if the directory was never read, because the service cannot answer until then.

    Once per database. If it fails, the next run follows on schedule.
    """
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
    note(f"the run did not end within {timeout:g} seconds; leaving it to the next one")
    sys.stderr.flush()
    os._exit(1)
