"""The workers that are alive, and those that died.

Each worker updates its row regularly and deletes it when it stops. So an old row belongs to a worker that was killed or
is cut off from the database.
"""

import socket
from dataclasses import dataclass

from sqlalchemy import Connection, delete, select

from app.access.record_tables import core_table
from app.foundation.database.statements import run
from app.sync.runs.tables import WorkerRow

_WORKER = core_table(WorkerRow)

_BEAT = """
INSERT INTO worker (worker_id, name, started_at, seen_at, leads)
VALUES (:worker_id, :name, :started_at, :seen_at, :leads)
ON CONFLICT (worker_id) DO UPDATE SET seen_at = excluded.seen_at, leads = excluded.leads
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """A worker's last sign of life. Times are epoch milliseconds."""

    worker_id: str
    name: str
    started_at: int
    seen_at: int
    leads: bool


def process_name(pid: int) -> str:
    """A process of this machine, by which operators and ``usher health`` find it."""
    return f"{socket.gethostname()}:{pid}"


def beat(connection: Connection, state: WorkerState) -> None:
    """Writes down a sign of life."""
    run(
        connection,
        _BEAT,
        {
            "worker_id": state.worker_id,
            "name": state.name,
            "started_at": state.started_at,
            "seen_at": state.seen_at,
            "leads": state.leads,
        },
    )


def say_goodbye(connection: Connection, worker_id: str) -> None:
    """The worker ends because it was told to."""
    connection.execute(delete(_WORKER).where(_WORKER.c.worker_id == worker_id))


def forget_dead(connection: Connection, seen_before: int) -> int:
    """Forgets those whose last sign of life is older; how many."""
    return connection.execute(delete(_WORKER).where(_WORKER.c.seen_at < seen_before)).rowcount


def workers(connection: Connection) -> list[WorkerState]:
    """All that have not said goodbye, who was seen last first."""
    rows = connection.execute(select(_WORKER).order_by(_WORKER.c.seen_at.desc(), _WORKER.c.worker_id))
    return [WorkerState(**row._asdict()) for row in rows]
