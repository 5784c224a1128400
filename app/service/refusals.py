"""Rate-limited audit rows for refused HTTP requests.

A caller who sends wrong tokens, or who repeats a refused request, must not fill the audit log. Each process writes at
most ``AN_HOUR`` rows of one sort (the wrong tokens of an address, the refusals of a person). The last of them is
marked, because more may follow.
"""

from collections.abc import Callable
from dataclasses import replace
from time import monotonic

import structlog
from sqlalchemy import Engine

from app.foundation.audit import Actor, Audit
from app.foundation.database.engine import writing
from app.foundation.database.errors import log_fields
from app.http.throttle import WindowCounter, network_of

AN_HOUR = 20
"""Audit rows of one sort that one process writes in an hour."""
OF_ALL_ADDRESSES = 100
"""Audit rows about callers without a valid credential that one process writes in an hour."""
MORE = "; further ones within the hour stand in the service's log alone"
"""The end of the outcome of the last row of an hour."""

_MOST_SORTS = 10_000


class Rations:
    """A rate limiter for audit rows."""

    def __init__(self, now: Callable[[], float] = monotonic, *, an_hour: int = AN_HOUR) -> None:
        self._counter = WindowCounter(now, seconds=3600, max_keys=_MOST_SORTS)
        self._an_hour = an_hour

    def end_of(self, sort: str) -> str | None:
        """The end of the outcome of one more row of this sort; None: do not write it."""
        count, _ = self._counter.increment(sort)
        return None if count > self._an_hour else MORE if count == self._an_hour else ""


class Refusals:
    """Writes audit rows for refused requests. A refusal is answered even if its row cannot be written."""

    def __init__(self, audit: Audit, engine: Engine, *, now: Callable[[], float] = monotonic) -> None:
        self.rations = Rations(now)
        self._of_all_addresses = Rations(now, an_hour=OF_ALL_ADDRESSES)
        """Its only key is never evicted, however many addresses there are."""
        self._audit = audit
        self._engine = engine

    def note(self, actor: Actor, subject: str, why: str, *, sort: str) -> None:
        """Writes a row unless there were too many of this sort."""
        self._write(actor, subject, why, self.rations.end_of(sort))

    def wrong_token(self, actor: Actor, subject: str, why: str = "the bearer token is not accepted") -> None:
        """Writes a row about a caller without a valid credential. Do not call it for a throttled caller, or with text
        that the caller has chosen. Their request id is left out: they may have chosen it."""
        end = self.rations.end_of(f"wrong token {network_of(actor.address)}")
        if end is not None:
            last = self._of_all_addresses.end_of("")
            end = None if last is None else end or last
        self._write(replace(actor, request_id=""), subject, why, end)

    def _write(self, actor: Actor, subject: str, why: str, end: str | None) -> None:
        if end is None:
            return
        try:
            with writing(self._engine) as connection:
                self._audit.record(connection, actor, "refused", subject=subject, outcome=f"{why}{end}")
        except Exception as error:  # noqa: BLE001 - log_fields tells all of it
            structlog.stdlib.get_logger(__name__).warning("audit_not_written", **log_fields(error))
