"""What the audit log says of whoever moves a run, reads the directory or forgets a source."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from app.foundation.audit import DONE, Actor, Audit

# Whoever reads the directory alone loads nothing of runs.
if TYPE_CHECKING:
    from app.access.refresh.refresh import Witness as RefreshWitness
    from app.access.refresh.revision import ModelChange
    from app.access.refresh.sources import StagedRead
    from app.sync.runs.lifecycle import Witness
    from app.sync.runs.run import Run


def audited(audit: Audit, actor: Actor, action: str, reason: str | None = None) -> "Witness":
    """Writes a row about the run in the transaction in which it is moved; of held deletes it tells how many."""

    def note(connection: Connection, run: "Run") -> None:
        held = run.total("held")
        subject = f"{run.run_id}: {held:,} held {'delete' if held == 1 else 'deletes'}" if held else run.run_id
        audit.record(connection, actor, action, subject=subject, reason=reason)

    return note


def audited_refresh(audit: Audit, actor: Actor, accepted: str, reason: str | None = None) -> "RefreshWitness":
    """Writes a row about a read of the directory in its transaction. ``accepted``: what the operator accepted."""

    def note(connection: Connection, _reads: "Sequence[StagedRead]", replaced: "ModelChange") -> None:
        subject = f"revision {replaced.revision} {accepted}".strip()
        audit.record(connection, actor, "directory refreshed", subject=subject, reason=reason, outcome=DONE)

    return note


def audited_forgetting(
    audit: Audit, actor: Actor, name: str, reason: str | None = None
) -> "Callable[[Mapping[str, int]], RefreshWitness]":
    """The same for a source that is forgotten, of which so many records (kind → number) were kept."""

    def witness_of(records: Mapping[str, int]) -> "RefreshWitness":
        subject = f"{name}: {counts_in_words(records)}"

        def note(connection: Connection, _reads: "Sequence[StagedRead]", _: "ModelChange") -> None:
            audit.record(connection, actor, "source forgotten", subject=subject, reason=reason, outcome=DONE)

        return note

    return witness_of


def counts_in_words(records: Mapping[str, int]) -> str:
    """Kinds with the number of their records, for people."""
    return ", ".join(f"{count:,} {kind}" for kind, count in records.items()) or "nothing"
