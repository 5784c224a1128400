"""The rows of the audit log that callers over HTTP bring about: bounded, so that nobody fills it.

Whoever shows a wrong token again and again, or pushes a document every second, would bury what people did. So of one
sort (the wrong tokens of an address, the pushes of a token to a source) each process writes down some an hour, and with
the last of them that there may be more.
"""

from collections.abc import Callable
from time import monotonic

import structlog
from sqlalchemy import Engine

from app.audit import Actor, Audit
from app.database.engine import writing
from app.database.trouble import log_fields
from app.edge.throttle import Windows, network_of

AN_HOUR = 20
"""Rows of one sort in an hour, of one process."""
MORE = "; further ones within the hour stand in the service's log alone"
"""How the outcome of the last of them ends."""

_MOST_SORTS = 10_000


class Rations:
    """How many rows of one sort may still be written."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._windows = Windows(now, seconds=3600, most_keys=_MOST_SORTS)

    def end_of(self, sort: str) -> str | None:
        """How the outcome of one more row of this sort ends; None: it is not to be written."""
        count, _ = self._windows.one_more(sort)
        return None if count > AN_HOUR else MORE if count == AN_HOUR else ""


class Refusals:
    """Writes down who was refused. The refusal stands, whether or not it can be written down."""

    def __init__(self, audit: Audit, engine: Engine) -> None:
        self.rations = Rations()
        self._audit = audit
        self._engine = engine

    def note(self, actor: Actor, subject: str, why: str, *, sort: str = "") -> None:
        """``sort``: of which only some are written; empty: all."""
        end = self.rations.end_of(sort) if sort else ""
        if end is None:
            return
        try:
            with writing(self._engine) as connection:
                self._audit.note(connection, actor, "refused", subject=subject, outcome=f"{why}{end}")
        except Exception as error:  # noqa: BLE001 - log_fields tells all of it
            structlog.stdlib.get_logger(__name__).warning("audit_not_written", **log_fields(error))

    def wrong_token(self, actor: Actor, subject: str, why: str = "the bearer token is not accepted") -> None:
        """Of somebody who was not slowed down yet."""
        self.note(actor, subject, why, sort=f"wrong token {network_of(actor.address)}")
