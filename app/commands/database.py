"""``usher db``: upgrades and backs up Usher's own database."""

from __future__ import annotations

from pathlib import Path

import click

from app.commands.frame import CommandError, Invocation, UsherGroup, json_option, pass_invocation
from app.commands.screen import print_result, show_json
from app.foundation.text import printable


@click.group(cls=UsherGroup)
def db() -> None:
    """Upgrade and back up Usher's own database."""


@db.command()
@json_option
@pass_invocation
def upgrade(invocation: Invocation, as_json: bool) -> None:
    """Upgrade the database.

    To the schema of this version, from any older one. Creates the tables of an empty database.
    """
    from app.commands.bootstrap.databases import upgrade_store

    upgraded = upgrade_store(invocation.settings())
    if as_json:
        show_json({"upgraded": upgraded.changed, "olderVersionsGoOn": upgraded.old_version_compatible})
    elif not upgraded.changed:
        print_result("the database was up to date")
    elif upgraded.old_version_compatible is None:
        print_result("the database is new and has its tables now")
    elif upgraded.old_version_compatible:
        print_result(
            "the database is up to date now; services of the previous version keep answering until you replace them"
        )
    else:
        print_result("the database is up to date now; services of an older version no longer answer: replace them now")


@db.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@pass_invocation
def backup(invocation: Invocation, file: Path) -> None:
    """Copy the database to a new file while Usher runs.

    SQLite only. Use pg_dump for PostgreSQL.
    """
    from app.commands.bootstrap.databases import sqlite_file
    from app.foundation.database.backup import copy_sqlite

    url = invocation.settings().database_url
    if sqlite_file(url) is None:
        raise CommandError("the database is PostgreSQL: pg_dump --format=custom copies it while everything runs")
    size = copy_sqlite(url, file)
    print_result(f"{printable(str(file))}: {size:,} bytes")
