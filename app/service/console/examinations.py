"""Examinations: passes of the doctor's checks, started from the console.

One is under way at a time, over all nodes: a row with a slot says so. It runs beside the requests of the process that
was asked, writes each finding down as it comes, and is given up after ten minutes, by whoever notices first.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
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

LONGEST = timedelta(minutes=10)
"""After which an examination is given up."""

GIVEN_UP = "given up after 10 minutes"
_RUNNING = "running"
_DONE = "done"
_KEPT = 20
_MOST_FINDINGS = 500
_EXAMINATION = ExaminationRow.__table__


class ExaminationFinding(NamedTuple):
    """One finding: what was looked at, how it is (ok, warning, problem), what that means, and what to do."""

    name: str
    state: str
    says: str
    advice: str


class ExaminationError(Exception):
    """The doctor could not look at everything; the text says why."""


Examine = Callable[[], Iterator[ExaminationFinding]]
"""Looks at everything. May raise ``ExaminationError``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """One examination. Times are epoch milliseconds."""

    examination_id: int
    asked_by: str
    node: str
    started_at: int
    finished_at: int | None
    outcome: str
    findings: Sequence[ExaminationFinding]

    @property
    def is_running(self) -> bool:
        """Whether it is under way."""
        return self.outcome == _RUNNING


@dataclass(frozen=True, slots=True)
class Examinations:
    """The examinations in one database."""

    clock: Clock

    def last(self, connection: Connection) -> Examination | None:
        """The last one, under way or over."""
        row = connection.execute(
            select(_EXAMINATION).order_by(_EXAMINATION.c.examination_id.desc()).limit(1)
        ).one_or_none()
        if row is None:
            return None
        is_stale = row.outcome == _RUNNING and self._is_stale(row.started_at)
        return Examination(
            examination_id=row.examination_id,
            asked_by=row.asked_by,
            node=row.node,
            started_at=row.started_at,
            finished_at=row.finished_at,
            outcome=GIVEN_UP if is_stale else row.outcome,
            findings=[ExaminationFinding(*one) for one in orjson.loads(row.findings)],
        )

    def begin(self, connection: Connection, asked_by: str) -> int | None:
        """Writes down that one is under way; None: one is already. The transaction is over then."""
        stale = epoch_ms(self.clock() - LONGEST)
        connection.execute(
            update(_EXAMINATION)
            .where(_EXAMINATION.c.slot == 1, _EXAMINATION.c.started_at < stale)
            .values(slot=None, outcome=GIVEN_UP, finished_at=epoch_ms(self.clock()))
        )
        if connection.execute(select(_EXAMINATION.c.slot).where(_EXAMINATION.c.slot == 1)).first() is not None:
            return None
        row = {
            "slot": 1,
            "asked_by": asked_by,
            "node": socket.gethostname(),
            "started_at": epoch_ms(self.clock()),
            "outcome": _RUNNING,
            "findings": "[]",
        }
        made = connection.execute(
            insert(_EXAMINATION).values(row).returning(_EXAMINATION.c.examination_id)
        ).scalar_one()
        connection.execute(delete(_EXAMINATION).where(_EXAMINATION.c.examination_id <= made - _KEPT))
        return int(made)

    def _is_stale(self, started_at: int) -> bool:
        return started_at < epoch_ms(self.clock() - LONGEST)

    def tell(self, connection: Connection, examination_id: int, findings: Sequence[ExaminationFinding]) -> bool:
        """Writes down what was found so far; False: it was given up meanwhile."""
        return self._change(connection, examination_id, findings=orjson.dumps([list(one) for one in findings]).decode())

    def end(self, connection: Connection, examination_id: int, outcome: str = _DONE) -> bool:
        """Writes down that it is over."""
        now = epoch_ms(self.clock())
        return self._change(connection, examination_id, slot=None, outcome=outcome, finished_at=now)

    def _change(self, connection: Connection, examination_id: int, **values: object) -> bool:
        changed = connection.execute(
            update(_EXAMINATION)
            .where(_EXAMINATION.c.examination_id == examination_id, _EXAMINATION.c.slot == 1)
            .values(**values)
        )
        return changed.rowcount > 0


def run_beside(engine: Engine, examinations: Examinations, examination_id: int, examine: Examine) -> Thread:
    """Runs one that was begun in a thread of its own, which is given back."""

    def work() -> None:
        found: list[ExaminationFinding] = []
        outcome = _DONE
        try:
            for one in examine():
                found.append(ExaminationFinding(*(printable(text, limit=2000) for text in one)))
                with writing(engine) as connection:
                    if not examinations.tell(connection, examination_id, found) or len(found) >= _MOST_FINDINGS:
                        break
        except ExaminationError as error:
            outcome = str(error)
        except Exception as error:  # noqa: BLE001 - log_fields tells all of it
            structlog.stdlib.get_logger(__name__).warning("examination_failed", **log_fields(error))
            outcome = "it failed; see the service's log"
        try:
            with writing(engine) as connection:
                examinations.end(connection, examination_id, outcome)
        except Exception as error:  # noqa: BLE001 - as above: it is given up by whoever looks later
            structlog.stdlib.get_logger(__name__).warning("examination_failed", **log_fields(error))

    thread = Thread(target=work, name="examination", daemon=True)
    thread.start()
    return thread


def begun(engine: Engine, examinations: Examinations, asked_by: str, note: Callable[[Connection], None]) -> int | None:
    """Begins one, with ``note`` in the same transaction; None: one is under way, perhaps since this very moment."""
    try:
        with writing(engine) as connection:
            made = examinations.begin(connection, asked_by)
            if made is not None:
                note(connection)
            return made
    except IntegrityError:
        return None
