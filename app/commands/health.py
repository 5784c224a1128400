"""``usher health``: checks the Usher processes of this machine or container. It serves as HEALTHCHECK of the image."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, replace
from enum import Enum
from os import fsdecode, geteuid, getpid
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.commands.frame import CommandError, Invocation, UsherCommand, pass_invocation
from app.foundation.outbound.urls import local_host

if TYPE_CHECKING:
    from app.settings import Settings

_TIMEOUT = 3.0
"""Seconds for the response of a server."""


class LongRunning(Enum):
    """A command that runs until it is stopped. The value is its words."""

    SERVE = ("serve",)
    WORKER = ("worker",)
    BACKEND_SERVE = ("backend", "serve")


@dataclass(frozen=True, slots=True)
class UsherProcess:
    pid: int
    command: LongRunning
    arguments: tuple[str, ...]
    folder: Path
    """Its working directory."""
    environment: Mapping[str, str] | None = None
    """None: not readable."""

    @property
    def config(self) -> Path | None:
        """The settings file from its command line or environment."""
        path = self.option("--config") or (self.environment or {}).get("USHER_CONFIG")
        return self.folder / path if path else None

    @property
    def folder_name(self) -> str:
        """The path of the working directory, or of the link to it if it is not readable."""
        try:
            return str(self.folder.readlink())
        except OSError:
            return str(self.folder)

    def option(self, name: str) -> str:
        """The value of ``name VALUE`` or ``name=VALUE`` on its command line. Empty if there is none."""
        for index, argument in enumerate(self.arguments):
            option, equals, value = argument.partition("=")
            if option == name:
                return value if equals else "".join(self.arguments[index + 1 : index + 2])
        return ""

    def __str__(self) -> str:
        return f"usher {' '.join(self.command.value)} (process {self.pid})"


@click.command(cls=UsherCommand)
@click.option("--proc", type=click.Path(path_type=Path), default="/proc", hidden=True)
@pass_invocation
def health(invocation: Invocation, proc: Path) -> None:
    """Check the health of the Usher processes that run here.

    Checks all of them in this container or on this machine, or with --config those that were started with that file.
    `usher serve` and `usher backend serve` must answer at /healthz, and `usher worker` must have a recent heartbeat in
    the database.

    Exit code 0: all are healthy, 1: one is not, or none runs.
    """
    processes = list(find_processes(proc))
    if invocation.config is not None:
        config = invocation.config.resolve()
        processes = [process for process in processes if process.config and process.config.resolve() == config]
    if not processes:
        started = "" if invocation.config is None else f" that was started with {invocation.config}"
        raise CommandError(f"no usher serve, worker or backend{started} runs here")
    # The processes of one server have the same arguments, folder and environment, and are checked once.
    distinct = {
        process.pid
        if process.command is LongRunning.WORKER
        else (process.arguments, process.folder_name, frozenset((process.environment or {}).items())): process
        for process in processes
    }
    for process in distinct.values():
        try:
            # Paths in the settings may be relative.
            with chdir(process.folder):
                settings = replace(invocation, config=process.config, environment=process.environment).settings()
                _check(process, settings)
        except OSError as error:
            raise CommandError(f"{process}: {error.strerror}") from error
        except CommandError as error:
            raise CommandError(f"{process}: {error}") from error
    click.echo("ok")


def health_url(process: UsherProcess, settings: Settings) -> str:
    from app.commands.backend import DEFAULT_PORT

    default = settings.server.port if process.command is LongRunning.SERVE else DEFAULT_PORT
    return f"http://{local_host(settings.server.host)}:{int(process.option('--port') or default)}/healthz"


def _check(process: UsherProcess, settings: Settings) -> None:
    """Raises ``CommandError`` if the process is unhealthy."""
    match process.command:
        case LongRunning.SERVE | LongRunning.BACKEND_SERVE:
            _check_server(health_url(process, settings))
        case LongRunning.WORKER:
            _check_worker(process, settings)


def _check_worker(process: UsherProcess, settings: Settings) -> None:
    """Raises ``CommandError`` without a recent heartbeat in the database."""
    from sqlalchemy.exc import SQLAlchemyError

    from app.commands.bootstrap.databases import sqlite_file
    from app.foundation.clock import epoch_ms, utc_now
    from app.foundation.database.engine import disposing, open_engine, reading
    from app.foundation.database.errors import database_problem
    from app.sync.runs.run import process_name
    from app.sync.runs.workers import workers

    file = sqlite_file(settings.database_url)
    if file is not None and not file.exists():
        raise CommandError(f"there is no {file} yet")
    name = process_name(process.pid)
    try:
        with disposing(open_engine(settings.database_url, pool_size=1)) as engine, reading(engine) as connection:
            last = next((worker.seen_at for worker in workers(connection) if worker.name == name), None)
    except SQLAlchemyError as error:
        raise CommandError(database_problem(error)) from error
    if last is None:
        raise CommandError("has sent no heartbeat yet")
    age = (epoch_ms(utc_now()) - last) / 1000
    if age >= settings.notifications.dead_after:
        raise CommandError(f"sent its last heartbeat {age:.0f} s ago")


def _check_server(url: str) -> None:
    import requests

    from app.foundation.outbound.session import bare_session

    # No proxy from the environment.
    with bare_session() as session:
        try:
            response = session.get(url, timeout=_TIMEOUT, allow_redirects=False)
        except requests.RequestException as error:
            raise CommandError(f"{url}: {type(error).__name__}") from error
    if response.status_code != 200:
        raise CommandError(f"{url}: answers {response.status_code}")


def find_processes(proc: Path) -> Iterator[UsherProcess]:
    """The Usher processes of this user in ``/proc``. Root sees those of all users. Raises ``CommandError``."""
    try:
        pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal())
    except OSError as error:
        raise CommandError(f"{proc}: {error.strerror}; processes are listed on Linux only") from error
    for pid in pids:
        entry = proc / str(pid)
        try:
            arguments = tuple((entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0"))
            if geteuid() not in {0, entry.stat().st_uid}:
                continue
        except OSError:
            continue  # the process has ended
        command = command_of(arguments)
        if command is not None and pid != getpid():
            yield UsherProcess(pid, command, arguments, entry / "cwd", _environment(entry))


def _environment(entry: Path) -> dict[str, str] | None:
    """The environment with which a process was started. None if it is not readable."""
    try:
        variables = fsdecode((entry / "environ").read_bytes()).split("\0")
    except OSError:
        return None
    return {name: value for name, equals, value in (variable.partition("=") for variable in variables) if equals}


def command_of(arguments: Sequence[str]) -> LongRunning | None:
    """The long-running Usher command with these arguments. None for other commands and programs."""
    rest = iter(arguments)
    # The first loop ends at the program, so the second one continues with the arguments after it.
    for previous, argument in zip(("", *arguments), rest, strict=False):
        # Another program may have a module called app; Usher's runs on this interpreter.
        if Path(argument).name == "usher" or (previous, argument, arguments[0]) == ("-m", "app", sys.executable):
            break
    words = []
    for argument in rest:
        if argument == "--config":
            next(rest, None)
        elif argument and not argument.startswith("-"):
            words.append(argument)
    return next((command for command in LongRunning if command.value == tuple(words[: len(command.value)])), None)
