"""Shared code of the long-running commands: the ``--parent`` option, the first log line and the server options."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from app import __version__
from app.commands.frame import Invocation
from app.foundation.processes import exit_with_parent

if TYPE_CHECKING:
    from app.http.gunicorn import ServerOptions
    from app.settings import Settings


def _exit_with(_context: click.Context, _parameter: click.Parameter, parent: int | None) -> None:
    if parent is not None:
        exit_with_parent(parent)


ends_with_parent = click.option("--parent", type=int, hidden=True, expose_value=False, callback=_exit_with)
"""The parent's process id. The command stops when that process has ended."""


def child_arguments(invocation: Invocation) -> list[str]:
    """The common options for a child process."""
    return [
        *(["--config", str(invocation.config)] if invocation.config is not None else []),
        *(["-" + "v" * invocation.verbosity] if invocation.verbosity else []),
        "--parent",
        str(os.getpid()),
    ]


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
