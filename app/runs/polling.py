"""The polling of sources: each that has a ``poll`` is asked for what changed between syncs, and runs about that follow.

The rules: ``app/runs/README.md``, "Polls".

Every worker polls, in a thread for each source, so that one that hangs holds up neither the others nor a run. Whoever
claims a poll in the database makes it; the others see that it is not due. Decisions follow at once; what changed is
noted in the same transaction, and a worker queues runs about it (``Runs.enqueue_changes``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event

import structlog
from sqlalchemy import Engine, Table, func, or_, select, update

from app.clock import Clock, epoch_ms
from app.database.engine import reading, writing
from app.database.trouble import log_fields
from app.directory.guarded import ReadingStoppedError
from app.directory.settings import GuardSettings
from app.directory.source import Source, Verdict
from app.runs.gathering import policy_of
from app.runs.reading import RefreshReport, refresh
from app.store.directory_tables import DirectorySourceRow
from app.store.record_tables import core_table

_SOURCE: Table = core_table(DirectorySourceRow)

_LONGEST_PAUSE = 30.0
"""Seconds between two tries while the database is away."""


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
        now = epoch_ms(self.clock())
        # What is not due now would be late at the next look.
        before = now - round(max(self.seconds - self.look, self.seconds / 2) * 1000)
        # What was never read is read by the first sync.
        due = (
            (_SOURCE.c.name == self.name)
            & (_SOURCE.c.read_in_force > 0)
            & (func.coalesce(_SOURCE.c.last_read_at, 0) <= before)
            & or_(_SOURCE.c.polled_at.is_(None), _SOURCE.c.polled_at <= before)
        )
        with reading(self.engine) as connection:
            # Most looks find nothing, and keep nobody waiting.
            if connection.execute(select(_SOURCE.c.source_id).where(due)).first() is None:
                return False
        with writing(self.engine) as connection:
            return connection.execute(update(_SOURCE).where(due).values(polled_at=now)).rowcount == 1


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
