"""The loop of a worker, which executes queued runs.

Any number of workers may run. They share a lock, so that one of them executes runs at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Event

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app.foundation.clock import Clock
from app.foundation.database.errors import database_problem, log_fields
from app.foundation.database.programs import SchemaNewerError
from app.sync.apply.progress import Progress
from app.sync.runs.lifecycle import Runs
from app.sync.runs.lock import SyncLock
from app.sync.runs.run import Run, RunError, RunStatus, program_error

_log = structlog.stdlib.get_logger(__name__)

Execute = Callable[[str, SyncLock, Progress, Event], Run]

_ORPHAN_PAUSE = timedelta(seconds=5)
"""The pause between two searches for runs whose process died."""
_LONGEST_PAUSE = 30.0
"""The maximum pause while the database is unavailable, in seconds."""


@dataclass(kw_only=True)
class Worker:
    """Executes queued runs, one at a time, until ``stop`` is set."""

    runs: Runs
    lock: SyncLock
    execute: Execute
    clock: Clock
    stop: Event
    poll: float = 1.0
    push_delay: float = 2.0
    """Seconds for which changes between two syncs are collected before a run follows."""
    check_schema: Callable[[], None] = lambda: None
    """Raises ``SchemaNewerError`` if this version cannot use the database any more."""
    _orphans_checked_at: datetime | None = field(default=None, init=False)
    _lost: dict[str, str] = field(default_factory=dict, init=False)
    """Runs of this process whose end could not be stored, with the reasons."""

    def run(self) -> None:
        """Executes runs until ``stop`` is set, or until a newer version makes the database unusable for this one. Waits
        while the database is unavailable."""
        pause = self.poll
        while not self.stop.wait(pause):
            try:
                self.check_schema()
                self.tick()
            except SchemaNewerError as error:
                _log.error("worker_stops", reason=str(error))
                self.stop.set()
            except Exception as error:  # noqa: BLE001 - log_fields logs the full error
                pause = min(max(pause, 1.0) * 2, _LONGEST_PAUSE)
                _log.warning("tick_failed", again_in=pause, **log_fields(error))
            else:
                pause = self.poll

    def tick(self) -> int:
        """Executes the queued runs if no other process holds the lock. Returns their number."""
        self._follow_changes()
        waiting = self.runs.next_queued() is not None
        if not waiting and not self._is_orphan_check_due():
            return 0
        if not self.lock.acquire():
            return 0
        try:
            self._end_orphans()
            executed = 0
            while not self.stop.is_set() and (run := self.runs.next_queued()) is not None:
                self._execute(run)
                executed += 1
                self._follow_changes()
                if not self.lock.held():
                    break
            return executed
        finally:
            self.lock.release()

    def _follow_changes(self) -> None:
        # Changes that become due before the next tick are queued now.
        gather = timedelta(seconds=max(0.0, self.push_delay - self.poll))
        for run in self.runs.enqueue_changes(gather):
            organizations, users = len(run.organization_ids), len(run.user_ids)
            _log.info("changes_to_follow", run_id=run.run_id, organizations=organizations, users=users)

    def _execute(self, run: Run) -> None:
        try:
            ended = self.execute(run.run_id, self.lock, LoggedProgress(run.run_id), self.stop)
            if ended.interrupted and ended.continued_by is None:
                self._continue(ended)
        except RunError as error:
            # It was cancelled before it started.
            _log.info("run_not_started", run_id=run.run_id, reason=str(error))
        except SQLAlchemyError as error:
            self._lost[run.run_id] = database_problem(error)
            raise
        except Exception as error:
            if self.runs.get(run.run_id).status is not RunStatus.QUEUED:
                raise
            # It would be the next run of the queue again, for ever.
            _log.exception("run_broke", run_id=run.run_id)
            problem = program_error(error)
            self.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.FAILED, error=problem, finished_at=self.clock())

    def _is_orphan_check_due(self) -> bool:
        now = self.clock()
        return self._orphans_checked_at is None or now - self._orphans_checked_at >= _ORPHAN_PAUSE

    def _end_orphans(self) -> None:
        self._orphans_checked_at = self.clock()
        orphans = self.runs.end_orphans(self._lost)
        self._lost.clear()
        for run in orphans:
            _log.warning("run_orphaned", run_id=run.run_id, error=run.error)
            self._continue(run)

    def _continue(self, run: Run) -> None:
        follower = self.runs.continue_run(run)
        if follower is not None:
            _log.info("run_continued", run_id=follower.run_id, after=run.run_id)
        else:
            _log.warning("run_not_continued", run_id=run.run_id, advice="the next scheduled run continues from there")


@dataclass(frozen=True, slots=True)
class LoggedProgress:
    """Logs the progress of a run, one line per phase."""

    run_id: str

    def phase(self, name: str, total: int | None) -> None:
        _log.info("run_phase", run_id=self.run_id, phase=name, items=total)

    def advance(self, n: int) -> None:
        """Logs nothing: the run contains the counts."""

    def note(self, text: str) -> None:
        _log.info("run_note", run_id=self.run_id, note=text)
