"""Whoever runs a command, as runs and the audit log know them, and what they say of why."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

import click

from app.text import printable

if TYPE_CHECKING:
    from app.audit import Actor
    from app.bootstrap.application import Application
    from app.settings import Settings

MAX_REASON = 1000

reason_option = click.option("--reason", metavar="TEXT", help="Why, for the audit log.")
"""The option by which somebody says why an action is taken."""


def kept_reason(reason: str | None) -> str | None:
    """The reason as it is kept."""
    return None if reason is None else printable(reason, limit=MAX_REASON)


def operator() -> Actor:
    """The user of the operating system; whoever can read the settings may do everything."""
    from app.audit import Actor

    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # In a container a number may be all that there is.
        name = f"user {os.getuid()}"
    return Actor(name=f"{name} (command line)", role="admin", way="command")


def note_done(parts: Application, action: str, subject: str, reason: str | None = None) -> None:
    """Writes into the audit log what a command did, right after it was done."""
    from app.database.engine import writing

    with writing(parts.engine) as connection:
        parts.audit.note(connection, operator(), action, subject=subject, reason=kept_reason(reason))


def note_done_elsewhere(settings: Settings, action: str, subject: str, reason: str | None = None) -> None:
    """As ``note_done``, for a command that needs no database: where there is none of this version, nothing is
    written."""
    from app.audit import Audit
    from app.bootstrap.databases import store_as_it_is
    from app.clock import utc_now
    from app.database.engine import writing

    with store_as_it_is(settings) as engine:
        if engine is None:
            return
        with writing(engine) as connection:
            Audit(utc_now).note(connection, operator(), action, subject=subject, reason=kept_reason(reason))
