"""``usher db``: the schema of Usher's own database, and a copy of it."""

from __future__ import annotations

from pathlib import Path

import click

from app.commands.frame import CommandError, Invocation, UsherGroup, pass_invocation
from app.commands.screen import say, show_json
from app.foundation.text import printable


@click.group(cls=UsherGroup)
def db() -> None:
    """Upgrade and back up Usher's own database."""


@db.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_invocation
def upgrade(invocation: Invocation, as_json: bool) -> None:
    """Bring the database up to date.

    To the schema of this version, from whatever it has, also from nothing.
    """
    from app.commands.bootstrap.databases import upgrade_store

    upgraded = upgrade_store(invocation.settings())
    if as_json:
        show_json({"upgraded": upgraded.changed, "olderVersionsGoOn": upgraded.older_can_go_on})
    elif not upgraded.changed:
        say("the database was up to date")
    elif upgraded.older_can_go_on is None:
        say("the database is new and has its tables now")
    elif upgraded.older_can_go_on:
        say("the database is up to date now; services of the version before go on until you replace them")
    else:
        say("the database is up to date now; services of a version before answer 503: replace them now")


@db.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@pass_invocation
def backup(invocation: Invocation, file: Path) -> None:
    """Copy the database into a new file, while everything runs.

    SQLite only; for PostgreSQL there is pg_dump.
    """
    from app.foundation.database.backup import copy_sqlite
    from app.foundation.database.engine import parse_url

    url = invocation.settings().database_url
    if parse_url(url).get_backend_name() != "sqlite":
        raise CommandError("the database is PostgreSQL: pg_dump --format=custom copies it while everything runs")
    size = copy_sqlite(url, file)
    say(f"{printable(str(file))}: {size:,} bytes")
