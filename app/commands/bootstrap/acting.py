"""Whoever runs a command, as the audit log knows them, and what it says of what is done before anything is opened."""

import getpass
import os
from collections.abc import Callable

from sqlalchemy import Connection

from app import __version__
from app.foundation.audit import Actor, Audit
from app.foundation.clock import utc_now


def operator() -> Actor:
    """The user of the operating system; whoever can read the settings may do everything."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # In a container a number may be all that there is.
        name = f"user {os.getuid()}"
    return Actor(name=f"{name} (command line)", role="admin", way="command")


def audited_upgrade() -> Callable[[Connection], None]:
    """Writes a row about an upgrade of the database in its transaction."""

    def note(connection: Connection) -> None:
        Audit(utc_now).record(connection, operator(), "database upgraded", subject=f"to version {__version__}")

    return note
