"""The operator of a command: the audit actor, the ``--reason`` option, and audit rows for changes in other systems."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from app.foundation.text import printable

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from app.foundation.audit import Actor, AuditAction

reason_option = click.option("--reason", metavar="TEXT", help="Why, for the audit log.")


def stored_reason(reason: str | None) -> str | None:
    """The reason as the audit log stores it."""
    from app.foundation.audit import MAX_REASON

    return None if reason is None else printable(reason, limit=MAX_REASON)


def operator() -> Actor:
    """The user of the operating system. Their role is admin, because they can read the settings."""
    from app.foundation.audit import Actor

    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # In a container, the user may have a number only.
        name = f"user {os.getuid()}"
    return Actor(name=f"{name} (command line)", role="admin", way="command")


@dataclass(slots=True)
class ExternalAction:
    """A change in another system."""

    outcome: str = "it was interrupted or failed; the outcome is unknown"
    """The outcome for the audit log, set by the command."""


@contextmanager
def audited_action(
    engine: Engine, action: AuditAction, subject: str, reason: str | None = None
) -> Iterator[ExternalAction]:
    """Writes an audit row before the block and one with its outcome after it, so that a crash leaves a trace."""
    from app.commands.errors import USER_ERRORS
    from app.foundation.audit import BEGUN, Audit
    from app.foundation.clock import utc_now
    from app.foundation.database.engine import writing

    def write(outcome: str) -> None:
        with writing(engine) as connection:
            audit = Audit(utc_now)
            audit.record(connection, operator(), action, subject=subject, reason=stored_reason(reason), outcome=outcome)

    running = ExternalAction()
    write(BEGUN)
    try:
        yield running
    except USER_ERRORS as error:
        running.outcome = str(error)
        raise
    finally:
        write(running.outcome)
