"""What the audit log says of whoever moves a run."""

from sqlalchemy import Connection

from app.audit import Actor, Audit
from app.runs.lifecycle import Witness
from app.runs.run import Run


def audited(audit: Audit, actor: Actor, action: str, reason: str | None = None) -> Witness:
    """Writes a row about the run in the transaction in which it is moved; of held deletes it tells how many."""

    def note(connection: Connection, run: Run) -> None:
        held = run.total("held")
        subject = f"{run.run_id}: {held:,} held {'delete' if held == 1 else 'deletes'}" if held else run.run_id
        audit.note(connection, actor, action, subject=subject, reason=reason)

    return note
