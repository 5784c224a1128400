"""``usher health``: whether the process that a container runs is well, for its HEALTHCHECK."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.commands.frame import CommandError, Invocation, UsherCommand, pass_invocation

if TYPE_CHECKING:
    from app.settings import Settings


_WITHIN = 3.0
_BACKEND_PORT = 8090
"""As ``usher backend serve`` has it."""
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104 - asked at, not listened on


@click.command(cls=UsherCommand)
@click.option("--of", "process", type=click.Path(path_type=Path), default="/proc/1/cmdline", hidden=True)
@pass_invocation
def health(invocation: Invocation, process: Path) -> None:
    """Check the health of this container's process; exit code 0: healthy.

    `usher serve` and `usher backend serve` are asked at /healthz; of any other the database is asked.
    """
    try:
        arguments = process.read_bytes().decode("utf-8", "replace").split("\0")
    except OSError as error:
        raise CommandError(f"{process}: {error.strerror}") from error
    invocation.config = invocation.config or _path_in(arguments)
    settings = invocation.settings()
    address = address_of(arguments, settings)
    if address:
        _ask(address)
    elif "backend" in arguments:
        _look_into(settings.self_hosted_backend.database_url)
    else:
        _look_into(settings.database_url)
    click.echo("ok")


def address_of(arguments: Sequence[str], settings: Settings) -> str:
    """Where a process that was started with these is asked; empty: nowhere, because it serves nothing."""
    if "serve" not in arguments:
        return ""
    port = _BACKEND_PORT if "backend" in arguments else settings.server.port
    port = int(_value(arguments, "--port") or port)
    host = settings.server.host
    host = _ANYWHERE.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}/healthz"


def _path_in(arguments: Sequence[str]) -> Path | None:
    path = _value(arguments, "--config")
    return Path(path) if path else None


def _value(arguments: Sequence[str], option: str) -> str:
    """What follows an option, or stands behind its equals sign."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == option:
            return value if equals else "".join(arguments[index + 1 : index + 2])
    return ""


def _ask(address: str) -> None:
    import requests

    from app.sessions import bare_session

    # A proxy for the outside has no business here.
    with bare_session() as session:
        try:
            answer = session.get(address, timeout=_WITHIN, allow_redirects=False)
        except requests.RequestException as error:
            raise CommandError(f"{address}: {type(error).__name__}") from error
    if answer.status_code != 200:
        raise CommandError(f"{address}: answers {answer.status_code}")


def _look_into(database_url: str) -> None:
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError

    from app.bootstrap.databases import open_to_look
    from app.database.engine import is_sqlite, parse_url, reading
    from app.database.trouble import database_problem

    file = parse_url(database_url).database
    engine = open_to_look(database_url)
    try:
        if is_sqlite(engine) and not Path(str(file)).exists():
            raise CommandError(f"there is no {file} yet")
        with reading(engine) as connection:
            connection.execute(text("SELECT 1"))
    except SQLAlchemyError as error:
        raise CommandError(database_problem(error)) from error
    finally:
        engine.dispose()
