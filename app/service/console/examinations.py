"""Runs the doctor from the console: one run, called an examination, at a time over all nodes.

The unique column ``slot`` of its row ensures that. The checks run in a thread of the process that received the request.
The thread stores each finding when it arrives. An examination that has not ended after ten minutes has timed out.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Thread
from typing import NamedTuple

import orjson
import structlog
from sqlalchemy import Connection, Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import writing
from app.foundation.database.errors import log_fields
from app.foundation.text import printable
from app.monitoring.tables import ExaminationRow

_log = structlog.stdlib.get_logger(__name__)

TIMEOUT = timedelta(minutes=10)

TIMED_OUT = "given up after 10 minutes"
_RUNNING = "running"
_DONE = "done"
_KEPT = 20
_MAX_FINDINGS = 500
_EXAMINATION = ExaminationRow.__table__


class ExaminationFinding(NamedTuple):
    name: str
    """What was checked."""
    state: str
    """ok, warning or problem."""
    message: str
    advice: str


class ExaminationError(Exception):
    """The doctor could not run all checks. The text states why."""


Examine = Callable[[], Iterator[ExaminationFinding]]
"""Runs all checks. May raise ``ExaminationError``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """One examination. Times are epoch milliseconds."""

    asked_by: str
    node: str
    started_at: int
    finished_at: int | None
    outcome: str
    """``running``, ``done``, or why it did not run all checks."""
    findings: Sequence[ExaminationFinding]

    @property
    def is_running(self) -> bool:
        return self.outcome == _RUNNING


def last_examination(connection: Connection, now: datetime) -> Examination | None:
    """The latest examination, running or not. None: there was none."""
    row = connection.execute(select(_EXAMINATION).order_by(_EXAMINATION.c.examination_id.desc()).limit(1)).one_or_none()
    if row is None:
        return None
    has_timed_out = row.outcome == _RUNNING and row.started_at < epoch_ms(now - TIMEOUT)
    return Examination(
        asked_by=row.asked_by,
        node=row.node,
        started_at=row.started_at,
        finished_at=row.finished_at,
        outcome=TIMED_OUT if has_timed_out else row.outcome,
        findings=[ExaminationFinding(*finding) for finding in orjson.loads(row.findings)],
    )


def begin_examination(engine: Engine, clock: Clock, asked_by: str, note: Callable[[Connection], None]) -> int | None:
    """Stores a new examination, calls ``note`` in the same transaction, and returns the id. None: one is running."""
    try:
        with writing(engine) as connection:
            examination_id = _insert(connection, clock(), asked_by)
            if examination_id is not None:
                note(connection)
            return examination_id
    except IntegrityError:
        # Another node took the slot at the same time.
        return None


def _insert(connection: Connection, now: datetime, asked_by: str) -> int | None:
    connection.execute(
        update(_EXAMINATION)
        .where(_EXAMINATION.c.slot == 1, _EXAMINATION.c.started_at < epoch_ms(now - TIMEOUT))
        .values(slot=None, outcome=TIMED_OUT, finished_at=epoch_ms(now))
    )
    if connection.execute(select(_EXAMINATION.c.slot).where(_EXAMINATION.c.slot == 1)).first() is not None:
        return None
    row = {
        "slot": 1,
        "asked_by": asked_by,
        "node": socket.gethostname(),
        "started_at": epoch_ms(now),
        "outcome": _RUNNING,
        "findings": "[]",
    }
    inserted = connection.execute(insert(_EXAMINATION).values(row).returning(_EXAMINATION.c.examination_id))
    examination_id = int(inserted.scalar_one())
    connection.execute(delete(_EXAMINATION).where(_EXAMINATION.c.examination_id <= examination_id - _KEPT))
    return examination_id


def run_examination(engine: Engine, clock: Clock, examination_id: int, examine: Examine) -> Thread:
    """Runs an examination in a thread, which is returned."""

    def work() -> None:
        findings: list[ExaminationFinding] = []
        outcome = _DONE
        try:
            for finding in examine():
                findings.append(ExaminationFinding(*(printable(text, limit=2000) for text in finding)))
                stored = orjson.dumps([list(finding) for finding in findings]).decode()
                if not _update(engine, examination_id, findings=stored) or len(findings) >= _MAX_FINDINGS:
                    break
        except ExaminationError as error:
            outcome = str(error)
        except Exception as error:  # noqa: BLE001 - it is logged
            _log.warning("examination_failed", **log_fields(error))
            outcome = "it failed; see the service's log"
        try:
            _update(engine, examination_id, slot=None, outcome=outcome, finished_at=epoch_ms(clock()))
        except Exception as error:  # noqa: BLE001 - as above; it times out
            _log.warning("examination_failed", **log_fields(error))

    thread = Thread(target=work, name="examination", daemon=True)
    thread.start()
    return thread


def _update(engine: Engine, examination_id: int, **values: object) -> bool:
    """Updates a running examination. False: it has timed out."""
    with writing(engine) as connection:
        updated = connection.execute(
            update(_EXAMINATION)
            .where(_EXAMINATION.c.examination_id == examination_id, _EXAMINATION.c.slot == 1)
            .values(**values)
        )
        return updated.rowcount > 0
