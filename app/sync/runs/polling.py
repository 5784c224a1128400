"""The polling of sources: each that has a ``poll`` is asked for what changed between syncs, and runs about that follow.

The rules: ``app/sync/runs/README.md``, "Polls".

Every worker polls, in a thread for each source, so that one that hangs holds up neither the others nor a run. Whoever
claims a poll in the database makes it; the others see that it is not due. Decisions follow at once; what changed is
noted in the same transaction, and a worker queues runs about it (``Runs.enqueue_changes``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import structlog
from sqlalchemy import Engine, Row, Table, func, or_, select, update

from app.access.record_tables import core_table
from app.access.source_tables import DirectorySourceRow
from app.directory.guarded import ReadingStoppedError
from app.directory.settings import GuardSettings
from app.directory.source import Source, Verdict
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import reading, writing
from app.foundation.database.errors import log_fields
from app.sync.runs.refresh import RefreshReport, refresh
from app.sync.runs.source_reads import policy_of

_SOURCE: Table = core_table(DirectorySourceRow)

_JUDGED = (
    _SOURCE.c.last_read_at,
    _SOURCE.c.polled_at,
    _SOURCE.c.last_verdict,
    _SOURCE.c.last_reason,
    _SOURCE.c.refused,
    _SOURCE.c.login_refused,
)

_LONGEST_PAUSE = 30.0
"""Seconds between two tries while the database is away."""

_LONGEST_BACK_OFF = 300.0
"""Seconds between two polls of a source that fails, unless its ``poll`` is longer."""

_MOST_REFUSED_LOGINS = 3
"""Refused logins after which a source is not polled any more: directories lock accounts after a few."""


@dataclass(kw_only=True)
class Poll:
    """Asks one source for what changed, again and again; ``sources`` are all that are configured, in their order."""

    engine: Engine
    sources: Sequence[Source]
    name: str
    seconds: float
    guard: GuardSettings
    clock: Clock
    stop: Event
    look: float = 1.0
    """Seconds between two looks whether it is due."""
    _judged_at: int | None = field(default=None, init=False)
    """When the last read ended that the next two include. All workers observe the same reads."""
    _failures: int = field(default=0, init=False)
    """The number of failed reads since the last good one."""
    _refused_logins: int = field(default=0, init=False)

    def run(self) -> None:
        """Polls until told to stop. A database that is away is waited for."""
        log = structlog.stdlib.get_logger(__name__)
        pause = self.look
        while not self.stop.wait(pause):
            try:
                self.tick()
            except ReadingStoppedError:
                return
            except Exception as error:  # noqa: BLE001 - log_fields tells all of it
                pause = min(max(pause, 1.0) * 2, _LONGEST_PAUSE)
                log.warning("poll_broke", source=self.name, again_in=pause, **log_fields(error))
            else:
                pause = self.look

    def tick(self) -> RefreshReport | None:
        """Asks the source, if that is due and nobody else does; what came of it."""
        if not self._claimed():
            return None
        report = refresh(
            self.engine, self.sources, clock=self.clock, guard=self.guard, only={self.name}, note_touched=True
        )
        [told] = report.sources
        if report.changed or told.verdict is not Verdict.COMPLETE:
            structlog.stdlib.get_logger(__name__).info(
                "source_polled",
                source=self.name,
                verdict=told.verdict.value,
                reason=told.reason,
                answered=told.answered or "everything",
                records=told.records,
                gone=told.gone,
                revision=report.revision,
                seconds=round(told.seconds, 3),
            )
        return report

    def _claimed(self) -> bool:
        """Whether a poll is due and this worker makes it. The first sync creates the row of a source."""
        with reading(self.engine) as connection:
            row = connection.execute(select(*_JUDGED).where(_SOURCE.c.name == self.name)).first()
        if row is None:
            return False
        self._judge(row)
        if self._refused_logins >= _MOST_REFUSED_LOGINS:
            return False
        now = epoch_ms(self.clock())
        # What is not due now would be late at the next look.
        before = now - round(max(self._pause() - self.look, self.seconds / 2) * 1000)
        if (row.last_read_at or 0) > before or (row.polled_at or 0) > before:
            # Most looks end here, and keep nobody waiting.
            return False
        due = (
            (_SOURCE.c.name == self.name)
            & (func.coalesce(_SOURCE.c.last_read_at, 0) <= before)
            & or_(_SOURCE.c.polled_at.is_(None), _SOURCE.c.polled_at <= before)
        )
        with writing(self.engine) as connection:
            return connection.execute(update(_SOURCE).where(due).values(polled_at=now)).rowcount == 1

    def _judge(self, source: Row[*tuple[Any, ...]]) -> None:
        """Counts the last read if it failed, each read once. What the guard refused was read well."""
        if source.last_read_at is None or source.last_read_at == self._judged_at:
            return
        self._judged_at = source.last_read_at
        failed = source.last_verdict == Verdict.FAILED and not source.refused
        self._failures = self._failures + 1 if failed else 0
        self._refused_logins = self._refused_logins + 1 if failed and source.login_refused else 0
        if self._refused_logins == _MOST_REFUSED_LOGINS:
            structlog.stdlib.get_logger(__name__).error("polls_stopped", source=self.name, reason=source.last_reason)

    def _pause(self) -> float:
        """Seconds between two polls: twice as long after each failure but the first."""
        longer = self.seconds * (1 << min(max(self._failures - 1, 0), 16))
        return max(self.seconds, min(longer, _LONGEST_BACK_OFF))


def polls_of(
    engine: Engine, sources: Sequence[Source], *, guard: GuardSettings, clock: Clock, stop: Event
) -> list[Poll]:
    """One for each source that is to be asked between syncs."""
    return [
        Poll(
            engine=engine,
            sources=sources,
            name=source.name,
            seconds=policy_of(source).poll,
            guard=guard,
            clock=clock,
            stop=stop,
        )
        for source in sources
        if policy_of(source).poll and not policy_of(source).only_pushed
    ]
