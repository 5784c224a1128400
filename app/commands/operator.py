"""What whoever runs a command says of why, and the audit of what changes something elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from app.foundation.text import printable

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
    """Records in the audit log that an action begins, and afterwards its outcome, so that no crash hides it.

    Nothing is done without a record: raises as ``open_store`` if the database cannot be used.
    """
    from app.commands.bootstrap.acting import operator
    from app.commands.bootstrap.databases import open_store
    from app.foundation.audit import BEGUN, Audit
    from app.foundation.clock import utc_now
    from app.foundation.database.engine import writing

    act = ActElsewhere()
    engine = open_store(settings)

    def write(outcome: str) -> None:
        with writing(engine) as connection:
            audit = Audit(utc_now)
            audit.record(connection, operator(), action, subject=subject, reason=kept_reason(reason), outcome=outcome)

    try:
        write(BEGUN)
        try:
            yield act
        finally:
            write(act.outcome)
    finally:
        engine.dispose()
