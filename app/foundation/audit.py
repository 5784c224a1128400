"""The audit log: actor, action, time, origin, reason and outcome.

A row is written in the transaction of the action, so neither exists without the other. Rows are never updated. Each row
is also logged after the commit.
"""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import structlog
from sqlalchemy import ColumnElement, Connection, delete, insert, select

from app.foundation.audit_tables import AuditRow
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import once_committed
from app.foundation.text import printable

Way = Literal["console", "oidc", "api", "command"]
"""By which way somebody came; ``oidc``: to the console, through an issuer of OpenID Connect."""

DONE = "done"
"""The outcome of a completed action. Any other outcome but ``BEGUN`` is a sentence with the reason of the failure."""

BEGUN = "begun"
"""The outcome of an action that takes several transactions. A later row has its result; without one, the action was
interrupted."""

_AUDIT = AuditRow.__table__
_LARGEST = 2**31 - 1
"""No row has a larger id; PostgreSQL compares with no larger one."""
_LONGEST = {"actor": 200, "subject": 1000, "reason": 1000, "outcome": 500, "address": 100, "request_id": 128}


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The actor of an action."""

    name: str
    role: str = ""
    """viewer, approver or admin; empty: nobody who was let in."""
    way: Way
    address: str = ""
    """Where they called from; empty: on the machine itself."""
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One row, as it is read. ``at`` is epoch milliseconds."""

    audit_id: int
    at: int
    actor: str
    role: str
    way: str
    address: str
    action: str
    subject: str
    reason: str
    outcome: str
    request_id: str

    def to_wire(self) -> dict[str, object]:
        """It as a JSON object; ``at`` is epoch milliseconds."""
        return {
            "auditId": self.audit_id,
            "at": self.at,
            "actor": self.actor,
            "role": self.role,
            "way": self.way,
            "address": self.address,
            "action": self.action,
            "subject": self.subject,
            "reason": self.reason,
            "outcome": self.outcome,
            "requestId": self.request_id,
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """Writes and reads the audit log."""

    clock: Clock

    def note(
        self,
        connection: Connection,
        actor: Actor,
        action: str,
        *,
        subject: str = "",
        reason: str | None = None,
        outcome: str = DONE,
    ) -> None:
        """Writes one row in this transaction, and a line in the log when it is committed."""
        texts = {
            "actor": actor.name,
            "subject": subject,
            "reason": reason or "",
            "outcome": outcome,
            "address": actor.address,
            "request_id": actor.request_id,
        }
        shown = {name: printable(text, limit=_LONGEST[name]) for name, text in texts.items()}
        row = {**shown, "at": epoch_ms(self.clock()), "role": actor.role, "way": actor.way, "action": action}
        connection.execute(insert(_AUDIT).values(row))
        given = {name: value for name, value in row.items() if value != "" and name not in {"at", "request_id"}}
        once_committed(connection, partial(structlog.stdlib.get_logger(__name__).info, "audit", **given))

    def prune(self, connection: Connection, keep: timedelta) -> int:
        """Deletes the rows that are older; how many."""
        before = epoch_ms(self.clock() - keep)
        return connection.execute(delete(_AUDIT).where(_AUDIT.c.at < before)).rowcount


def audit_page(
    connection: Connection,
    *,
    actor: str | None = None,
    action: str | None = None,
    since: int | None = None,
    until: int | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[AuditEntry]:
    """The newest rows; ``before``: an ``audit_id``, only those written earlier; ``since``, ``until``: epoch
    milliseconds, only those written between."""
    query = select(_AUDIT).order_by(_AUDIT.c.audit_id.desc()).limit(limit)
    if actor is not None:
        query = query.where(_AUDIT.c.actor == actor)
    if action is not None:
        query = query.where(_AUDIT.c.action == action)
    # Ids and times grow together: found by the index of times, a page is still a range of ids.
    if since is not None:
        first = _at(connection, _AUDIT.c.at >= since, _AUDIT.c.at)
        query = query.where(_AUDIT.c.audit_id >= (_LARGEST if first is None else first))
    if until is not None:
        last = _at(connection, _AUDIT.c.at <= until, _AUDIT.c.at.desc())
        query = query.where(_AUDIT.c.audit_id <= (0 if last is None else last))
    if before is not None:
        query = query.where(_AUDIT.c.audit_id < min(before, _LARGEST))
    return [AuditEntry(**row._asdict()) for row in connection.execute(query)]


def _at(connection: Connection, where: ColumnElement[bool], order: Any) -> int | None:
    return connection.scalar(select(_AUDIT.c.audit_id).where(where).order_by(order).limit(1))
