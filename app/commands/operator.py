"""What whoever runs a command says of why, and the audit of what changes something elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from app.screen import note
from app.text import printable

if TYPE_CHECKING:
    from app.settings import Settings

MAX_REASON = 1000

reason_option = click.option("--reason", metavar="TEXT", help="Why, for the audit log.")
"""The option by which somebody says why an action is taken."""


def kept_reason(reason: str | None) -> str | None:
    """The reason as it is kept."""
    return None if reason is None else printable(reason, limit=MAX_REASON)


@dataclass(slots=True)
class ActElsewhere:
    """Something that a command does outside of our database."""

    outcome: str = "it was interrupted or failed: what came of it is not known"
    """What the audit log says of it when it is over."""


@contextmanager
def act_elsewhere(settings: Settings, action: str, subject: str, reason: str | None = None) -> Iterator[ActElsewhere]:
    """Writes down that something is begun, and afterwards what came of it, so that no crash hides it.

    It needs no database of ours: where there is none nothing is written, and where there is one that cannot be written
    to the user is told so.
    """
    from app.audit import BEGUN, Audit
    from app.bootstrap.acting import operator
    from app.bootstrap.databases import is_there, store_as_it_is
    from app.clock import utc_now
    from app.database.engine import writing

    act = ActElsewhere()
    with store_as_it_is(settings) as engine:
        if engine is None:
            if is_there(settings.database_url):
                note("the audit log has no line of this: the database is away, or not of this version")
            yield act
            return

        def write(outcome: str) -> None:
            with writing(engine) as connection:
                audit = Audit(utc_now)
                audit.note(connection, operator(), action, subject=subject, reason=kept_reason(reason), outcome=outcome)

        write(BEGUN)
        try:
            yield act
        finally:
            write(act.outcome)
