"""The audit log: actor, action, time, origin, reason and outcome.

A row is written in the transaction of the action, so neither exists without the other. Each row is also logged after
the commit.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Literal

import structlog
from sqlalchemy import ColumnElement, Connection, delete, insert, select

from app.foundation.audit_tables import AuditRow
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import after_commit
from app.foundation.text import printable

_log = structlog.stdlib.get_logger(__name__)

Way = Literal["console", "oidc", "api", "command"]
"""How the actor reached Usher. ``oidc`` is the console, with a sign-in through OpenID Connect."""


class AuditAction(StrEnum):
    """What was done. The console shows each action by a name in words."""

    SYNC = "sync asked for"
    PREVIEW = "preview asked for"
    RETRY = "retry asked for"
    APPLY = "plan applied"
    APPROVE = "approved"
    DISCARD = "discarded"
    CANCEL = "cancelled"
    REFRESH = "directory refreshed"
    FORGET = "source forgotten"
    PUSH = "pushed"
    UPLOAD = "pushed everything"
    SIGN_IN = "signed in"
    SIGN_OUT = "signed out"
    LINK = "sign-in link created"
    END_SESSION = "session ended"
    END_SESSIONS = "sessions ended"
    DOCTOR = "doctor run"
    REGISTER = "provider registered"
    WORKSPACE = "workspace made"
    UPGRADE = "database upgraded"
    REFUSE = "refused"
    """A refused request. Its subject is the path, or ``subject_of_refused`` of the action that was refused."""


def subject_of_refused(action: AuditAction, subject: str = "") -> str:
    """The subject of a row about a refused action."""
    return f"{action}: {subject}" if subject else str(action)


DONE = "done"
"""The outcome of a completed action. Any other outcome but ``BEGUN`` is a sentence with the reason of the failure."""

BEGUN = "begun"
"""The outcome of an action that takes several transactions. A later row has its result. If there is none, the
action was interrupted."""

_AUDIT = AuditRow.__table__
_MAX_ID = 2**31 - 1
"""PostgreSQL rejects a larger value for this column."""
MAX_REASON = 1000
"""The most characters of a reason."""
_MAX_LENGTHS = {"actor": 200, "subject": 1000, "reason": MAX_REASON, "outcome": 500, "address": 100, "request_id": 128}


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The actor of an action."""

    name: str
    role: str = ""
    """viewer, approver or admin. Empty if the actor was refused."""
    way: Way
    address: str = ""
    """The caller's address. Empty: this machine."""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Audit:
    """Writes the audit log."""

    clock: Clock

    def record(
        self,
        connection: Connection,
        actor: Actor,
        action: AuditAction,
        *,
        subject: str = "",
        reason: str | None = None,
        outcome: str = DONE,
    ) -> None:
        """Inserts one row in this transaction, and logs it after the commit."""
        texts = {
            "actor": actor.name,
            "subject": subject,
            "reason": reason or "",
            "outcome": outcome,
            "address": actor.address,
            "request_id": actor.request_id,
        }
        safe = {name: printable(text, limit=_MAX_LENGTHS[name]) for name, text in texts.items()}
        # Logs of text would show the enum by its repr.
        row = {**safe, "at": epoch_ms(self.clock()), "role": actor.role, "way": actor.way, "action": str(action)}
        connection.execute(insert(_AUDIT).values(row))
        fields = {name: value for name, value in row.items() if value != "" and name not in {"at", "request_id"}}
        after_commit(connection, partial(_log.info, "audit", **fields))

    def prune(self, connection: Connection, keep: timedelta) -> int:
        """Deletes rows older than ``keep`` and returns their number."""
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
) -> list[AuditRow]:
    """The newest rows. ``before`` is an ``audit_id`` that all of them are below. ``since`` and ``until`` are epoch
    milliseconds, inclusive."""
    query = select(_AUDIT).order_by(_AUDIT.c.audit_id.desc()).limit(limit)
    if actor is not None:
        query = query.where(_AUDIT.c.actor == actor)
    if action is not None:
        query = query.where(_AUDIT.c.action == action)
    # Ids and times grow together, so a range of times is a range of ids, which the other indexes contain.
    if since is not None:
        first = _id_at(connection, _AUDIT.c.at >= since, _AUDIT.c.at)
        query = query.where(_AUDIT.c.audit_id >= (_MAX_ID if first is None else first))
    if until is not None:
        last = _id_at(connection, _AUDIT.c.at <= until, _AUDIT.c.at.desc())
        query = query.where(_AUDIT.c.audit_id <= (0 if last is None else last))
    if before is not None:
        query = query.where(_AUDIT.c.audit_id < min(before, _MAX_ID))
    return [AuditRow(**row._asdict()) for row in connection.execute(query)]


def _id_at(connection: Connection, condition: ColumnElement[bool], order: Any) -> int | None:
    return connection.scalar(select(_AUDIT.c.audit_id).where(condition).order_by(order).limit(1))
