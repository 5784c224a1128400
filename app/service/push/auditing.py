"""Audits pushes and uploads: applied ones, in their transactions, and refused ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flask import request
from sqlalchemy import Connection

from app.access.refresh.pushes import PushAuditHook
from app.access.refresh.reads import COMPLETE, StagedRead
from app.access.refresh.refresh import ChangeHook
from app.access.revisions import ModelChange
from app.foundation.audit import DONE, Actor, Audit, AuditAction
from app.foundation.text import counted
from app.http.throttle import network_of
from app.http.tokens import token_fingerprint
from app.service.refusals import Refusals, request_actor


@dataclass(frozen=True, slots=True)
class PushAudit:
    """Writes the audit rows of pushes. Their number is limited."""

    audit: Audit
    refusals: Refusals

    def record_wrong_token(self, *, is_known: bool) -> None:
        """Writes a row about a caller with a wrong token. ``is_known``: the path contains an existing source."""
        self.refusals.record_wrong_token(request_actor("", "api"), request.path if is_known else str(request.url_rule))

    def record_refusal(self, reason: str) -> None:
        """Writes a row about a caller with a token of this source or another one."""
        self.refusals.record(_actor(), request.path, reason, key=_key("refused"))

    def push_audit_hook(self, source: str, what: str) -> PushAuditHook | None:
        """A callback that writes the row of a push: ``what`` was pushed. None: the limit is exceeded."""
        suffix = self.refusals.row_suffix(_key("push", source))
        if suffix is None:
            return None
        actor = _actor()

        def note(connection: Connection, counts: Mapping[str, int], number: int) -> None:
            changes = ", ".join(f"{count:,} {change}" for change, count in counts.items() if count) or "nothing"
            # The number increases with each push, so that gaps between rows are visible.
            subject = f"{source}: push {number:,}, {what}: {changes}"
            self.audit.record(connection, actor, AuditAction.PUSH, subject=subject, outcome=f"{DONE}{suffix}")

        return note

    def upload_audit_hook(self, source: str, *, accept_shrink: bool) -> ChangeHook | None:
        """A callback that writes the row of an upload. None: the limit is exceeded."""
        suffix = self.refusals.row_suffix(_key("everything", source))
        if suffix is None:
            return None
        actor = _actor()

        def note(connection: Connection, reads: Sequence[StagedRead], replaced: ModelChange) -> None:
            (read,) = reads
            subject = f"{source}: {counted(read.records, 'record')}{', acceptShrink' if accept_shrink else ''}"
            if read.verdict != COMPLETE:
                outcome = f"was not applied: {read.reason if read.refusal is None else read.refusal.reason}"
            else:
                subject += f", revision {replaced.revision}"
                outcome = DONE
            self.audit.record(connection, actor, AuditAction.UPLOAD, subject=subject, outcome=f"{outcome}{suffix}")

        return note


def _actor() -> Actor:
    return request_actor(f"push token {token_fingerprint(request)}", "api", "push")


def _key(action: str, source: str = "") -> str:
    """The key of the limit. ``source`` must exist: invented names would each have a limit of their own."""
    return f"{action} {token_fingerprint(request)} {network_of(request.remote_addr or '')} {source}"
