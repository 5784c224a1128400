"""Rate-limited audit rows for refused HTTP requests.

A caller that repeats a refused request must not fill the audit log. Each process writes at most ``ROWS_PER_HOUR`` rows
with the same key, such as the refusals of one operator. The last of them states that more may follow.
"""

from collections.abc import Callable
from dataclasses import replace
from time import monotonic

import structlog
from flask import request
from sqlalchemy import Engine

from app.foundation.audit import Actor, Audit, AuditAction, Way
from app.foundation.database.engine import writing
from app.foundation.database.errors import log_fields
from app.http.request_id import current_request_id
from app.http.throttle import WindowCounter, network_of

_log = structlog.stdlib.get_logger(__name__)

ROWS_PER_HOUR = 20
"""Audit rows with the same key that one process writes in an hour."""
ANONYMOUS_ROWS_PER_HOUR = 100
"""Audit rows about callers without a valid credential that one process writes in an hour."""
LAST_ROW_SUFFIX = "; further ones within this hour are only in the service's log"
"""The end of the outcome in the last row of an hour."""

_MAX_KEYS = 10_000


def request_actor(name: str, way: Way, role: str = "") -> Actor:
    """The caller of the current request, as an actor of the audit log."""
    address = request.remote_addr or ""
    return Actor(name=name, role=role, way=way, address=address, request_id=current_request_id() or "")


class RowLimit:
    """Limits the audit rows with the same key."""

    def __init__(self, now: Callable[[], float] = monotonic, *, per_hour: int = ROWS_PER_HOUR) -> None:
        self._counter = WindowCounter(now, seconds=3600, max_keys=_MAX_KEYS)
        self._per_hour = per_hour

    def suffix(self, key: str) -> str | None:
        """Counts a row. Returns the suffix of its outcome, or None if the row must not be written."""
        count, _ = self._counter.increment(key)
        return None if count > self._per_hour else LAST_ROW_SUFFIX if count == self._per_hour else ""


class Refusals:
    """Writes audit rows for refused requests. The request is answered even if its row cannot be written."""

    def __init__(self, audit: Audit, engine: Engine, *, now: Callable[[], float] = monotonic) -> None:
        self._limit = RowLimit(now)
        self._anonymous_limit = RowLimit(now, per_hour=ANONYMOUS_ROWS_PER_HOUR)
        """Has one key, so that many addresses cannot evict it."""
        self._audit = audit
        self._engine = engine

    def row_suffix(self, key: str) -> str | None:
        """As ``RowLimit.suffix``, for a row that the caller writes."""
        return self._limit.suffix(key)

    def record(self, actor: Actor, subject: str, reason: str, *, key: str) -> None:
        """Writes a row unless the limit of its key is exceeded."""
        self._write(actor, subject, reason, self.row_suffix(key))

    def record_wrong_token(self, actor: Actor, subject: str, reason: str = "the bearer token is not accepted") -> None:
        """Writes a row about a caller without a valid credential. Do not call it for a throttled caller, or with text
        that the caller has chosen. The request id is left out, because the caller may have chosen it."""
        suffix = self.row_suffix(f"wrong token {network_of(actor.address)}")
        if suffix is not None:
            last = self._anonymous_limit.suffix("")
            suffix = None if last is None else suffix or last
        self._write(replace(actor, request_id=""), subject, reason, suffix)

    def _write(self, actor: Actor, subject: str, reason: str, suffix: str | None) -> None:
        if suffix is None:
            return
        try:
            with writing(self._engine) as connection:
                self._audit.record(connection, actor, AuditAction.REFUSE, subject=subject, outcome=f"{reason}{suffix}")
        except Exception as error:  # noqa: BLE001 - it is logged
            _log.warning("audit_not_written", **log_fields(error))
