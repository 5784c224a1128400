"""``usher serve`` and ``usher worker``: the processes that run for ever."""

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
from app.foundation.processes import ChildEndedError, Children, exit_with_parent, freeze_garbage_collector, stop_signals

if TYPE_CHECKING:
    from flask import Flask

    from app.commands.bootstrap.application import Application
    from app.foundation.configuration.loading import Configuration
    from app.http.gunicorn import ServerOptions
    from app.settings import Settings


_ON_HANGUP = "a worker reads its settings at the start alone: send SIGTERM and start it again"
_PATIENCE_AT_THE_END = 5.0
"""Seconds that a last sign of life may take."""


def _end_with(_context: click.Context, _parameter: click.Parameter, parent: int | None) -> None:
    if parent is not None:
        exit_with_parent(parent)


ends_with_parent = click.option("--parent", type=int, hidden=True, expose_value=False, callback=_end_with)
"""How a process of ours that others start learns to end when they have ended."""


@click.command(cls=UsherCommand)
@click.option("--workers", type=click.IntRange(1, 256), help="Processes that answer requests.")
@click.option("--port", type=click.IntRange(0, 65535), help="Where to listen; 0: any free port.")
@click.option("--with-worker", is_flag=True, help="Also run the worker beside it: the one-machine form.")
@ends_with_parent
@pass_invocation
def serve(invocation: Invocation, workers: int | None, port: int | None, with_worker: bool) -> None:
    """Serve permission calls, the operators' API and the console.

    Serves permission answers, resync, health and metrics, under gunicorn.
    """
    from app.commands.bootstrap.databases import open_store
    from app.commands.bootstrap.requirements import (
        require_backend,
        require_issuer_library,
        require_provider_tokens,
        require_sources,
    )
    from app.monitoring.counters import share_counters

    invocation.values = {"server.workers": workers, "server.port": port}
    found = invocation.configuration(server=True)
    settings = found.settings
    require_provider_tokens(settings)
    require_issuer_library(settings)
    if with_worker:
        require_backend(settings)
    require_sources(settings)
    # The schema is looked at before anything listens; each process opens the database for itself.
    open_store(settings).dispose()
    with share_counters(settings.metrics.directory):
        if with_worker:
            serve_with_worker(invocation, settings)
        else:
            log_start(invocation, "service", settings.database_url)
            serve_alone(found, config=invocation.config, reread=lambda: _read_again(invocation))


def log_start(invocation: Invocation, program: str, database_url: str, **further: object) -> None:
    """The first line of a process that runs for ever: what it is, and what it goes by."""
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


def _read_again(invocation: Invocation) -> Configuration[Settings]:
    """The settings as they are now, so that tokens can be exchanged while the service runs."""
    from app.commands.bootstrap.requirements import require_issuer_library, require_provider_tokens, require_sources

    found = invocation.configuration(server=True)
    require_provider_tokens(found.settings)
    require_issuer_library(found.settings)
    require_sources(found.settings)
    return found


def serve_alone(
    found: Configuration[Settings], *, config: Path | None, reread: Callable[[], Configuration[Settings]]
) -> None:
    """Gunicorn in this process; does not return. On SIGHUP new processes take over that go by what ``reread`` gives;
    the address and the number of processes and threads stay. ``config``: the file that was named to us.
    """
    from prometheus_client.multiprocess import mark_process_dead

    from app.commands.bootstrap.examining import examiner
    from app.commands.bootstrap.service import open_service
    from app.http.gunicorn import serve as serve_app

    examine = examiner([] if config is None else ["--config", str(config)])

    def factory_of(given: Configuration[Settings]) -> Callable[[], Flask]:
        return lambda: open_service(given.settings, origins=given.origins, examine=examine)

    serve_app(
        factory_of(found),
        server_options(
            found.settings,
            found.settings.server.port,
            name="usher",
            on_worker_exit=mark_process_dead,
            reread=lambda: factory_of(reread()),
        ),
    )


def server_options(settings: Settings, port: int, **further: Any) -> ServerOptions:
    """How a server of ours listens."""
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


def serve_with_worker(invocation: Invocation, settings: Settings) -> None:
    """The service and a worker as two processes that live and end together; a worker that dies is started again."""
    common = common_arguments(invocation.config, invocation.verbosity)
    server = ["serve", "--workers", str(settings.server.workers), "--port", str(settings.server.port), *common]
    patience = max(settings.server.graceful_timeout, settings.worker.stop_timeout) + 5
    children = Children(patience=patience)
    with stop_signals() as stop:
        try:
            children.start("the service", server)
            signal.signal(signal.SIGHUP, lambda number, _frame: children.forward_signal(number, "the service"))
            # Answers go on while it is away: a sync that ran out of memory must not end them.
            children.keep("the worker", ["worker", *common])
            children.watch(stop)
        except ChildEndedError as error:
            raise CommandError(f"{error}; its last lines say why") from error
        finally:
            children.end()


def common_arguments(config: Path | None, verbosity: int) -> list[str]:
    """What a child is told of what we were told."""
    return [
        *(["--config", str(config)] if config is not None else []),
        *(["-" + "v" * verbosity] if verbosity else []),
        "--parent",
        str(os.getpid()),
    ]


@click.command(cls=UsherCommand)
@click.option("--only-metrics", is_flag=True, hidden=True)
@ends_with_parent
@pass_invocation
def worker(invocation: Invocation, only_metrics: bool) -> None:
    """Run scheduled and queued syncs.

    Any number of workers may run, on any number of nodes: one of them at a time does a sync.
    """
    from app.commands.bootstrap.requirements import require_backend, require_sources
    from app.foundation.files import make_folder
    from app.http.listening import BindError, bind
    from app.monitoring.counters import VARIABLE, share_counters

    settings = invocation.settings(server=True)
    if only_metrics:
        serve_metrics(settings)
    require_backend(settings)
    require_sources(settings)
    if not settings.metrics.worker_port:
        if settings.metrics.directory:
            # The service on this machine shows what is counted there.
            make_folder(Path(settings.metrics.directory))
            os.environ.setdefault(VARIABLE, settings.metrics.directory)
        run_worker(invocation, settings)
        return
    try:
        bind(settings.server.host, settings.metrics.worker_port).close()
    except BindError as error:
        raise CommandError(f"metrics.worker_port: {error}") from error
    with share_counters(settings.metrics.directory), metrics_beside(invocation):
        run_worker(invocation, settings)


def serve_metrics(settings: Settings) -> NoReturn:
    """Shows at ``metrics.worker_port`` what the worker that started this process counts; does not return."""
    from app.commands.bootstrap.service import worker_metrics
    from app.http.gunicorn import serve as serve_app

    options = server_options(settings, settings.metrics.worker_port, name="usher metrics")
    serve_app(lambda: worker_metrics(settings), replace(options, workers=1, threads=2))


@contextmanager
def metrics_beside(invocation: Invocation) -> Iterator[None]:
    """A process that shows this one's counters, as long as this one works."""
    children = Children()
    stop = Event()
    arguments = ["worker", "--only-metrics", *common_arguments(invocation.config, invocation.verbosity)]

    def look_after() -> None:
        try:
            children.watch(stop)
        except ChildEndedError as error:
            note(f"error: metrics.worker_port: {error}; its last lines say why")

    children.keep("the worker's metrics", arguments)
    watching = threading.Thread(target=look_after, name="metrics", daemon=True)
    watching.start()
    try:
        yield
    finally:
        stop.set()
        watching.join()
        children.end(quickly=True)


def run_worker(invocation: Invocation, settings: Settings) -> None:
    """Works until SIGTERM or SIGINT; a run in the middle ends before its next call."""
    import structlog

    from app.commands.bootstrap.application import application
    from app.commands.bootstrap.work import worker_parts
    from app.monitoring.activity import NodeActivity, node_name

    log = structlog.stdlib.get_logger(__name__)
    # Its own action would end the process without a word.
    signal.signal(signal.SIGHUP, lambda _number, _frame: _say_aside(_ignore_hangup))
    with application(settings, needs_backend=True) as parts, stop_signals() as stop:
        # A sync has time; whoever waits for an answer of the service beside it has none.
        os.nice(settings.worker.nice)
        working = worker_parts(parts, stop=stop)
        working.scheduler.start()
        if settings.sync.schedule:
            run_at_first(parts)
        # Daemons: nobody waits for a mail server, or for a source that hangs, when the worker is to end.
        _begin("watch", working.watch.run)
        pulse = _begin("heartbeat", working.heartbeat.run)
        activity = NodeActivity(node=node_name(), role="worker", clock=utc_now)
        _begin("activity", lambda: activity.keep_writing(parts.engine, stop))
        _begin("patience", lambda: _give_up_after(stop, settings.worker.stop_timeout))
        for poll in working.polls:
            _begin(f"poll {poll.name}", poll.run)
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
        # After its last sign of life, lest that one follow the goodbye.
        pulse.join(_PATIENCE_AT_THE_END)
        working.heartbeat.end()
        log.info("worker_stopped")


def _begin(name: str, run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _ignore_hangup() -> None:
    import structlog

    structlog.stdlib.get_logger(__name__).info("hangup_ignored", advice=_ON_HANGUP)


def _say_aside(say: Callable[[], None]) -> None:
    """A handler of signals comes in the middle of anything, of a line for the log among it."""
    threading.Thread(target=say, daemon=True).start()


def run_at_first(parts: Application) -> None:
    """A directory that was never read answers nobody: the first worker does not wait for the schedule.

    That happens once for a database; after a failure the schedule is in charge.
    """
    from app.access.contents import current_revision
    from app.foundation.database.engine import reading
    from app.sync.runs.run import RunRequest

    with reading(parts.engine) as connection:
        never_read = current_revision(connection) == 0
    if never_read:
        parts.runs.enqueue(RunRequest(trigger="schedule", idempotency_key="schedule, the first run"))


def _give_up_after(stop: Event, patience: float) -> None:
    """Ends the process when a run does not end in time: the journal makes that safe, and the next run mends it."""
    stop.wait()
    threading.Event().wait(patience)
    note(f"the run did not end within {patience:g} seconds; leaving it to the next one")
    sys.stderr.flush()
    os._exit(1)
