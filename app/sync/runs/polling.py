"""Polls sources for changes between syncs.

The rules: ``app/sync/runs/README.md``, "Polls".

Every worker has a thread for each source with a ``poll``, so that a source that hangs delays neither others nor runs.
One worker claims a poll in the database and performs it. Decisions use the result at once. The changes are stored in
the same transaction, and a worker queues runs for them (``Runs.enqueue_changes``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import structlog
from sqlalchemy import Engine, Row, Table, func, select, update

from app.access.source_tables import DirectorySourceRow
from app.directory.bounded import ReadingStoppedError
from app.directory.source import Source, Verdict
from app.directory.source_settings import GuardSettings
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import reading, writing
from app.foundation.database.errors import log_fields
from app.sync.runs.directory_reads import ReadOptions, RefreshReport, read_directory
from app.sync.runs.source_reads import policy_of

_log = structlog.stdlib.get_logger(__name__)

_SOURCE: Table = DirectorySourceRow.__table__

_LONGEST_PAUSE = 30.0
"""The maximum pause after an error, in seconds."""

_LONGEST_BACK_OFF = 300.0
"""The maximum pause between polls of a failing source, in seconds, unless its ``poll`` is longer."""

_MAX_REFUSED_LOGINS = 3
"""Refused logins after which polling stops, because directories lock accounts after a few."""


@dataclass(kw_only=True)
class SourcePoller:
    """Polls one source. ``sources``: all configured sources, in order."""

    engine: Engine
    sources: Sequence[Source]
    name: str
    poll_interval: float
    """Seconds."""
    guard: GuardSettings
    clock: Clock
    stop: Event
    check_interval: float = 1.0
    """Seconds between two checks whether a poll is due."""
    _counted_at: int | None = field(default=None, init=False)
    """The end of the last read that ``_failures`` and ``_refused_logins`` include. All workers count the same reads."""
    _failures: int = field(default=0, init=False)
    """The number of failed reads since the last good one."""
    _refused_logins: int = field(default=0, init=False)

    def run(self) -> None:
        """Polls until ``stop`` is set. Pauses after an error."""
        pause = self.check_interval
        while not self.stop.wait(pause):
            try:
                self.tick()
            except ReadingStoppedError:
                return
            except Exception as error:  # noqa: BLE001 - log_fields logs the full error
                pause = min(max(pause, 1.0) * 2, _LONGEST_PAUSE)
                _log.warning("poll_broke", source=self.name, again_in=pause, **log_fields(error))
            else:
                pause = self.check_interval

    def tick(self) -> RefreshReport | None:
        """Polls the source if it is due and no other worker does."""
        if not self._claim():
            return None
        options = ReadOptions(only={self.name}, store_pending=True)
        report = read_directory(self.engine, self.sources, options, clock=self.clock, guard=self.guard)
        [source] = report.sources
        if report.changed or source.verdict is not Verdict.COMPLETE:
            _log.info(
                "source_polled",
                source=self.name,
                verdict=source.verdict.value,
                reason=source.reason,
                answered=source.answered or "everything",
                records=source.records,
                gone=source.gone,
                revision=report.revision,
                seconds=round(source.seconds, 3),
            )
        return report

    def _claim(self) -> bool:
        """Counts the last read if it failed, and claims the poll if it is due. Returns whether this worker performs
        it."""
        with reading(self.engine) as connection:
            row = connection.execute(select(_SOURCE).where(_SOURCE.c.name == self.name)).first()
        if row is None:
            # The first sync creates the row of a source.
            return False
        self._count_failure(row)
        if self._refused_logins >= _MAX_REFUSED_LOGINS:
            return False
        now = epoch_ms(self.clock())
        # A poll that becomes due before the next check is performed now.
        before = now - round(max(self._pause() - self.check_interval, self.poll_interval / 2) * 1000)
        if (row.last_read_at or 0) > before or (row.polled_at or 0) > before:
            # Most checks end here, without a write transaction.
            return False
        due = (
            (_SOURCE.c.name == self.name)
            & (func.coalesce(_SOURCE.c.last_read_at, 0) <= before)
            & (func.coalesce(_SOURCE.c.polled_at, 0) <= before)
        )
        with writing(self.engine) as connection:
            return connection.execute(update(_SOURCE).where(due).values(polled_at=now)).rowcount == 1

    def _count_failure(self, source: Row[*tuple[Any, ...]]) -> None:
        """Counts the last read if it failed, once. A read that the guard refused has not failed."""
        if source.last_read_at is None or source.last_read_at == self._counted_at:
            return
        self._counted_at = source.last_read_at
        failed = source.last_verdict == Verdict.FAILED and not source.refused
        self._failures = self._failures + 1 if failed else 0
        self._refused_logins = self._refused_logins + 1 if failed and source.login_refused else 0
        if self._refused_logins == _MAX_REFUSED_LOGINS:
            _log.error("polls_stopped", source=self.name, reason=source.last_reason)

    def _pause(self) -> float:
        """Seconds between two polls, doubled after each failure but the first."""
        longer = self.poll_interval * (1 << min(max(self._failures - 1, 0), 16))
        return max(self.poll_interval, min(longer, _LONGEST_BACK_OFF))


def source_pollers(
    engine: Engine, sources: Sequence[Source], *, guard: GuardSettings, clock: Clock, stop: Event
) -> list[SourcePoller]:
    """A poller for each source with a ``poll``."""
    return [
        SourcePoller(
            engine=engine,
            sources=sources,
            name=source.name,
            poll_interval=policy_of(source).poll,
            guard=guard,
            clock=clock,
            stop=stop,
        )
        for source in sources
        if policy_of(source).poll and not policy_of(source).only_pushed
    ]
