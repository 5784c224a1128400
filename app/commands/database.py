"""``usher db``: the schema of Usher's own database."""

import click

from app.bootstrap import STORE_MIGRATIONS
from app.commands.frame import Invocation, UsherGroup, pass_invocation
from app.database.engine import open_engine
from app.database.migrations import upgrade as upgrade_database
from app.screen import say


@click.group(cls=UsherGroup)
def db() -> None:
    """Look after Usher's own database."""


@db.command()
@pass_invocation
def upgrade(invocation: Invocation) -> None:
    """Bring the database up to date.

    To the schema of this version, from whatever it has, also from nothing.
    """
    engine = open_engine(invocation.settings().database_url)
    try:
        changed = upgrade_database(engine, STORE_MIGRATIONS)
    finally:
        engine.dispose()
    say("the database is up to date now" if changed else "the database was up to date")
