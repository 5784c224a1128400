"""Writes audit rows about actions on runs, reads of the directory, and forgotten sources."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from app.foundation.audit import Actor, Audit, AuditAction
from app.foundation.text import counted

# Commands that only read the directory do not load runs.
if TYPE_CHECKING:
    from app.access.refresh.reads import StagedRead
    from app.access.refresh.refresh import ChangeHook
    from app.access.revisions import ModelChange
    from app.sync.runs.lifecycle import AuditHook
    from app.sync.runs.run import Run, RunRequest


def requested_action(request: "RunRequest") -> AuditAction:
    """The action of a request for a run."""
    if request.dry_run:
        return AuditAction.PREVIEW
    if request.retry:
        return AuditAction.RETRY
    return AuditAction.SYNC if request.plan_id is None else AuditAction.APPLY


def audited(audit: Audit, actor: Actor, action: AuditAction, reason: str | None = None) -> "AuditHook":
    """An audit hook that writes a row about a run, with its number of held deletes, which a cancel discards."""

    def note(connection: Connection, run: "Run") -> None:
        held = run.total("held")
        subject = f"{run.run_id}: {counted(held, 'held delete')}" if held else run.run_id
        is_discard = action is AuditAction.CANCEL and run.status == "held"
        named = AuditAction.DISCARD if is_discard else action
        audit.record(connection, actor, named, subject=subject, reason=reason)

    return note


def audited_refresh(audit: Audit, actor: Actor, accepted: str, reason: str | None = None) -> "ChangeHook":
    """An audit hook that writes a row about a read of the directory. ``accepted``: what the operator accepted."""

    def note(connection: Connection, _reads: "Sequence[StagedRead]", replaced: "ModelChange") -> None:
        subject = f"revision {replaced.revision} {accepted}".strip()
        audit.record(connection, actor, AuditAction.REFRESH, subject=subject, reason=reason)

    return note


def audited_forgetting(
    audit: Audit, actor: Actor, name: str, reason: str | None = None
) -> Callable[[Connection, Mapping[str, int]], None]:
    """An audit hook that writes a row about a forgotten source, with its number of records by kind."""

    def note(connection: Connection, records: Mapping[str, int]) -> None:
        subject = f"{name}: {counts_in_words(records)}"
        audit.record(connection, actor, AuditAction.FORGET, subject=subject, reason=reason)

    return note


def counts_in_words(records: Mapping[str, int]) -> str:
    """Numbers of records by kind, as text."""
    from app.sync.ledger.items import noun_of  # noqa: PLC0415 - see above

    return ", ".join(f"{count:,} {noun_of(kind, count)}" for kind, count in records.items() if count) or "no records"
