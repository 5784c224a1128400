"""``usher serve``: the service, alone or together with a worker."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import click

from app.commands.daemon import child_arguments, ends_with_parent, log_start, server_options
from app.commands.frame import CommandError, Invocation, UsherCommand, pass_invocation
from app.commands.screen import print_note
from app.foundation.outbound.urls import local_host
from app.foundation.processes import ChildEndedError, Children, stop_signals

if TYPE_CHECKING:
    from flask import Flask

    from app.foundation.configuration.loading import Configuration
    from app.settings import Settings


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
        print_note("the database cannot be reached; permission calls are answered from this node's index")
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
        require_libraries,
        require_safe_tokens,
        require_sources,
    )

    configuration = invocation.configuration(server=True)
    require_safe_tokens(configuration.settings)
    require_libraries(configuration.settings)
    if with_worker:
        require_backend(configuration.settings)
    require_sources(configuration.settings)
    return configuration


def _serve_alone(invocation: Invocation, configuration: Configuration[Settings]) -> NoReturn:
    """Runs gunicorn in this process. On SIGHUP, new processes take over with the current settings, so that tokens can
    be rotated. The address and the number of processes and threads do not change."""
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


def _serve_with_worker(invocation: Invocation, settings: Settings) -> None:
    """Runs the service and a worker as two processes that end together. A worker that dies is restarted."""
    common = child_arguments(invocation)
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
