"""The rows of workers, alive and dead.

Each worker updates its row regularly and deletes it when it stops. An old row belongs to a worker that was killed or
has lost the database.
"""

import socket
from dataclasses import asdict, dataclass

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
    """The last heartbeat of a worker. Times are epoch milliseconds."""

    worker_id: str
    name: str
    started_at: int
    seen_at: int
    leads: bool


def process_name(pid: int) -> str:
    """The name of a process of this host, for operators and ``usher health``."""
    return f"{socket.gethostname()}:{pid}"


def beat(connection: Connection, state: WorkerState) -> None:
    """Stores a heartbeat."""
    run(connection, _BEAT, asdict(state))


def remove_worker(connection: Connection, worker_id: str) -> None:
    """Removes the row of a worker that stops."""
    connection.execute(delete(_WORKER).where(_WORKER.c.worker_id == worker_id))


def remove_dead(connection: Connection, seen_before: int) -> int:
    """Removes workers with an older heartbeat, and returns their number."""
    return connection.execute(delete(_WORKER).where(_WORKER.c.seen_at < seen_before)).rowcount


def workers(connection: Connection) -> list[WorkerState]:
    """All rows, the latest heartbeat first."""
    rows = connection.execute(select(_WORKER).order_by(_WORKER.c.seen_at.desc(), _WORKER.c.worker_id))
    return [WorkerState(**row._asdict()) for row in rows]
