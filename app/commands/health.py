"""``usher health``: whether the Usher processes of this machine or container are well, for its HEALTHCHECK."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass, replace
from os import geteuid, getpid
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.commands.frame import CommandError, Invocation, UsherCommand, pass_invocation

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from app.settings import Settings


_WITHIN = 3.0
_BACKEND_PORT = 8090
"""As ``usher backend serve`` has it."""
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104 - asked at, not listened on
_COMMANDS = {("serve",), ("worker",), ("backend", "serve"), ("backend", "deliver")}
_DEAD_AFTER = 180.0
"""Seconds without a sign of life, if ``notifications.worker_after`` is switched off."""


@dataclass(frozen=True, slots=True)
class Running:
    """A process of Usher that serves or works."""

    pid: int
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    folder: Path
    """Its working directory."""

    @property
    def config(self) -> Path | None:
        """The settings file that it was started with."""
        path = _value(self.arguments, "--config")
        return self.folder / path if path else None

    def __str__(self) -> str:
        return f"usher {' '.join(self.command)} (process {self.pid})"


@click.command(cls=UsherCommand)
@click.option("--proc", type=click.Path(path_type=Path), default="/proc", hidden=True)
@pass_invocation
def health(invocation: Invocation, proc: Path) -> None:
    """Check the health of the Usher processes that run here.

    These are all in this container, or on this machine; with --config those that were started with that file. `usher
    serve` and `usher backend serve` are asked at /healthz, `usher worker` needs a recent sign of life in the database,
    and `usher backend deliver` a database that can be read.

    Exit code 0: all are healthy, 1: one is not, or none runs.
    """
    found = list(running(proc))
    if invocation.config is not None:
        ours = invocation.config.resolve()
        found = [one for one in found if one.config is not None and one.config.resolve() == ours]
    if not found:
        raise CommandError("no usher serve, worker or backend runs here")
    # The processes of one server have the same arguments.
    for one in {one.pid if one.command == ("worker",) else one.arguments: one for one in found}.values():
        try:
            # Paths in the settings may be relative.
            with chdir(one.folder):
                _check(one, replace(invocation, config=one.config).settings())
        except OSError as error:
            raise CommandError(f"{one}: {error.strerror}") from error
        except CommandError as error:
            raise CommandError(f"{one}: {error}") from error
    click.echo("ok")


def running(proc: Path) -> Iterator[Running]:
    """This user's processes that serve or work; root sees those of all users."""
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
            continue  # it has ended
        command = command_of(arguments)
        if command is not None and pid != getpid():
            yield Running(pid, command, arguments, entry / "cwd")


def command_of(arguments: Sequence[str]) -> tuple[str, ...] | None:
    """Which command that serves or works these arguments start; None: another one, or another program."""
    rest = iter(arguments)
    for before, argument in zip(("", *arguments), rest, strict=False):
        # Another program's module may be called app, too: ours runs on this interpreter.
        if Path(argument).name == "usher" or (before, argument, arguments[0]) == ("-m", "app", sys.executable):
            break
    words = []
    for argument in rest:
        if argument == "--config":
            next(rest, None)
        elif argument and not argument.startswith("-"):
            words.append(argument)
    return next((command for command in _COMMANDS if command == tuple(words[: len(command)])), None)


def address_of(one: Running, settings: Settings) -> str:
    """The URL at which a server is asked."""
    port = _BACKEND_PORT if "backend" in one.command else settings.server.port
    port = int(_value(one.arguments, "--port") or port)
    host = settings.server.host
    host = _ANYWHERE.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}/healthz"


def _check(one: Running, settings: Settings) -> None:
    """Raises ``CommandError`` if the process is not well."""
    from sqlalchemy import text

    if "serve" in one.command:
        _ask(address_of(one, settings))
    elif "backend" in one.command:
        _look_into(settings.self_hosted_backend.database_url, lambda connection: connection.execute(text("SELECT 1")))
    else:
        _look_into(settings.database_url, lambda connection: _find_sign_of_life(connection, one, settings))


def _value(arguments: Sequence[str], option: str) -> str:
    """What follows an option, or stands behind its equals sign."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == option:
            return value if equals else "".join(arguments[index + 1 : index + 2])
    return ""


def _find_sign_of_life(connection: Connection, one: Running, settings: Settings) -> None:
    from app.foundation.clock import epoch_ms, utc_now
    from app.sync.runs.workers import process_name, workers

    name = process_name(one.pid)
    last = next((worker.seen_at for worker in workers(connection) if worker.name == name), None)
    if last is None:
        raise CommandError("has given no sign of life yet")
    age = (epoch_ms(utc_now()) - last) / 1000
    if age >= (settings.notifications.worker_after or _DEAD_AFTER):
        raise CommandError(f"gave its last sign of life {age:.0f} s ago")


def _ask(address: str) -> None:
    import requests

    from app.foundation.outbound.session import bare_session

    # A proxy for the outside has no business here.
    with bare_session() as session:
        try:
            answer = session.get(address, timeout=_WITHIN, allow_redirects=False)
        except requests.RequestException as error:
            raise CommandError(f"{address}: {type(error).__name__}") from error
    if answer.status_code != 200:
        raise CommandError(f"{address}: answers {answer.status_code}")


def _look_into(database_url: str, look: Callable[[Connection], object]) -> None:
    from sqlalchemy.exc import SQLAlchemyError

    from app.commands.bootstrap.databases import open_to_look
    from app.foundation.database.engine import is_sqlite, parse_url, reading
    from app.foundation.database.errors import database_problem

    file = parse_url(database_url).database
    engine = open_to_look(database_url)
    try:
        if is_sqlite(engine) and not Path(str(file)).exists():
            raise CommandError(f"there is no {file} yet")
        with reading(engine) as connection:
            look(connection)
    except SQLAlchemyError as error:
        raise CommandError(database_problem(error)) from error
    finally:
        engine.dispose()
