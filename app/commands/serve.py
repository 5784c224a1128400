"""``usher serve`` and ``usher worker``: the processes that run for ever."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import SystemRandom
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from app.bootstrap import (
    Application,
    SetUpError,
    application,
    look_for_concerns,
    open_store,
    require_backend,
    require_provider_tokens,
)
from app.commands.frame import CommandError, Invocation, UsherCommand, pass_invocation
from app.counters import VARIABLE, share_counters
from app.database.engine import reading
from app.edge.beside import serve_beside
from app.edge.gunicorn import BindError, ServerOptions
from app.edge.gunicorn import serve as serve_app
from app.processes import ChildEndedError, Children, end_with, stop_signals
from app.screen import note
from app.settings import Settings
from app.store.access_model import current_revision
from app.store.runs import RunRequest

if TYPE_CHECKING:
    from flask import Flask

    from app.metrics import Metrics


def _end_with(_context: click.Context, _parameter: click.Parameter, parent: int | None) -> None:
    if parent is not None:
        end_with(parent)


ends_with_parent = click.option("--parent", type=int, hidden=True, expose_value=False, callback=_end_with)
"""How a process of ours that others start learns to end when they are gone."""


@click.command(cls=UsherCommand)
@click.option("--workers", type=click.IntRange(1, 256), help="Processes that answer requests.")
@click.option("--port", type=click.IntRange(0, 65535), help="Where to listen; 0: any free port.")
@click.option("--with-worker", is_flag=True, help="Also run the worker beside it: the one-machine form.")
@ends_with_parent
@pass_invocation
def serve(invocation: Invocation, workers: int | None, port: int | None, with_worker: bool) -> None:
    """Answer permission questions and operators.

    Serves permission answers, resync, health and metrics, under gunicorn.
    """
    invocation.values = {"server.workers": workers, "server.port": port}
    settings = invocation.settings(server=True)
    require_provider_tokens(settings)
    if with_worker:
        require_backend(settings)
    # The schema is looked at before anything listens; each process opens the database for itself.
    open_store(settings).dispose()
    with share_counters(settings.metrics.directory):
        if with_worker:
            serve_with_worker(invocation, settings)
        else:
            serve_alone(settings, reread=lambda: _read_again(invocation))


def _read_again(invocation: Invocation) -> Settings:
    """The settings as they are now, so that tokens can be exchanged while the service runs."""
    settings = invocation.settings(server=True)
    require_provider_tokens(settings)
    return settings


def serve_alone(settings: Settings, *, reread: Callable[[], Settings]) -> None:
    """Gunicorn in this process; does not return. On SIGHUP new processes take over that go by what ``reread`` gives;
    the address and the number of processes and threads stay.
    """
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - its counters must be shared first

    from app.web import make_app  # noqa: PLC0415 - as above

    def factory_again() -> Callable[[], "Flask"]:
        now = reread()
        return lambda: make_app(now)

    serve_app(
        lambda: make_app(settings),
        server_options(
            settings, settings.server.port, name="usher", on_worker_exit=mark_process_dead, reread=factory_again
        ),
    )


def server_options(settings: Settings, port: int, **further: Any) -> ServerOptions:
    """How a server of ours listens."""
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
    """The service and a worker as two processes that live and end together."""
    common = common_arguments(invocation.config, invocation.verbosity)
    server = ["serve", "--workers", str(settings.server.workers), "--port", str(settings.server.port), *common]
    patience = max(settings.server.graceful_timeout, settings.worker.stop_timeout) + 5
    children = Children(patience=patience)
    with stop_signals() as stop:
        try:
            children.start("the service", server)
            signal.signal(signal.SIGHUP, lambda number, _frame: children.pass_on(number, "the service"))
            children.start("the worker", ["worker", *common])
            children.watch(stop)
        except ChildEndedError as error:
            raise CommandError(f"{error}; its last lines tell why") from error
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
@ends_with_parent
@pass_invocation
def worker(invocation: Invocation) -> None:
    """Run the schedule and the syncs.

    Any number of workers may run, on any number of nodes: one of them at a time does a sync.
    """
    settings = invocation.settings(server=True)
    require_backend(settings)
    if settings.metrics.directory:
        # The service on this machine shows what is counted there.
        Path(settings.metrics.directory).mkdir(parents=True, exist_ok=True)
        os.environ.setdefault(VARIABLE, settings.metrics.directory)
    run_worker(settings)


def run_worker(settings: Settings) -> None:
    """Works until SIGTERM or SIGINT; a run in the middle ends before its next call."""
    import structlog  # noqa: PLC0415 - only those who log need it

    from app.notify.configured import channels_from_settings  # noqa: PLC0415 - only a worker tells anyone
    from app.notify.watch import Watch  # noqa: PLC0415 - as above
    from app.worker import Timetable, Worker, scheduler_for  # noqa: PLC0415 - its counters must be shared first

    log = structlog.stdlib.get_logger(__name__)
    # A sync has time; whoever waits for an answer of the service beside it has none.
    os.nice(settings.worker.nice)
    with application(settings, needs_backend=True) as parts, stop_signals() as stop:
        engine = parts.sync_engine(stop=stop, observer=_observer(settings))
        timetable = Timetable(
            schedule=settings.sync.schedule,
            verify_schedule=settings.sync.verify_schedule,
            timezone=settings.sync.timezone,
            jitter=settings.sync.jitter,
            keep_runs=timedelta(days=settings.worker.keep_runs),
        )
        scheduler = scheduler_for(timetable, parts.runs, clock=parts.clock, random=SystemRandom(), stop=stop)
        scheduler.start()
        if settings.sync.schedule:
            run_at_first(parts)
        watch = Watch(
            engine=parts.engine,
            look=look_for_concerns(settings),
            channels=channels_from_settings(settings.notifications, clock=parts.clock),
            clock=parts.clock,
            random=SystemRandom(),
            stop=stop,
            tries=settings.notifications.tries,
        )
        # A daemon: nobody waits for a mail server when the worker is to end.
        threading.Thread(target=watch.run, name="watch", daemon=True).start()
        overseer = threading.Thread(
            target=_give_up_after, args=(stop, settings.worker.stop_timeout), name="patience", daemon=True
        )
        overseer.start()
        log.info("worker_ready", schedule=settings.sync.schedule, verify_schedule=settings.sync.verify_schedule)
        Worker(
            runs=parts.runs,
            lock=parts.sync_lock(),
            execute=lambda run_id, lock, progress, stopped: engine.execute(
                run_id, lock=lock, progress=progress, stop=stopped
            ),
            clock=parts.clock,
            stop=stop,
            poll=settings.worker.poll,
        ).run()
        scheduler.shutdown(wait=True)
        log.info("worker_stopped")


def run_at_first(parts: Application) -> None:
    """A directory that was never read answers nobody: the first worker does not wait for the schedule.

    That happens once for a database; after a failure the schedule is in charge.
    """
    with reading(parts.engine) as connection:
        never_read = current_revision(connection) == 0
    if never_read:
        parts.runs.enqueue(RunRequest(trigger="schedule", idempotency_key="schedule, the first run"))


def _observer(settings: Settings) -> "Metrics":
    """What counts the calls to the backend, where anyone can see the numbers."""
    from app.metrics import Metrics  # noqa: PLC0415 - its counters must be shared first

    metrics = Metrics()
    if settings.metrics.worker_port:
        from app.web import create_metrics_app  # noqa: PLC0415 - as above

        try:
            serve_beside(create_metrics_app(settings, metrics), settings.server.host, settings.metrics.worker_port)
        except BindError as error:
            raise CommandError(f"metrics.worker_port: {error}") from error
    return metrics


def _give_up_after(stop: Event, patience: float) -> None:
    """Ends the process when a run does not end in time: the journal makes that safe, and the next run mends it."""
    stop.wait()
    threading.Event().wait(patience)
    note(f"the run did not end within {patience:g} seconds; leaving it to the next one")
    sys.stderr.flush()
    os._exit(1)
