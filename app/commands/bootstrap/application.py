"""The parts of one process around Usher's own database.

Methods import what only some commands need, so that the others start quickly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random, SystemRandom
from threading import Event
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text

from app.commands.bootstrap.databases import open_store
from app.commands.bootstrap.outgoing import backend_client, configured_sources, notification_channels
from app.commands.bootstrap.requirements import require_backend, require_sources
from app.directory.source import Source
from app.foundation.audit import Audit
from app.foundation.clock import Clock, Sleep, utc_now
from app.foundation.database.engine import disposing, reading
from app.settings import Settings
from app.sync.runs.lock import SyncLock, sync_lock
from app.sync.runs.schedule import first_due_after

if TYPE_CHECKING:
    from app.client.records import Observer
    from app.monitoring.notify.concerns import Concern, DueAfter, Expectations
    from app.monitoring.notify.watch import Watch
    from app.sync.runs.engine import SyncEngine
    from app.sync.runs.lifecycle import Runs
    from app.sync.runs.run import WhatIf


@dataclass(frozen=True, kw_only=True)
class Application:
    """The parts of one process, around one database."""

    settings: Settings
    engine: Engine
    clock: Clock
    sleep: Sleep
    random: Random

    @property
    def runs(self) -> Runs:
        from app.sync.runs.lifecycle import Runs

        return Runs(self.engine, self.clock, self.random)

    @property
    def audit(self) -> Audit:
        return Audit(self.clock)

    def sync_lock(self) -> SyncLock:
        """The lock that allows one process at a time to sync, not yet acquired."""
        return sync_lock(self.engine, sleep=self.sleep)

    def sources(self, *, stop: Event | None = None) -> Sequence[Source]:
        """The configured sources, in order. ``stop`` ends their reads. Raises ``SetUpError`` if there are none."""
        require_sources(self.settings)
        return configured_sources(self.settings, stop=stop)

    def sync_engine(
        self,
        *,
        stop: Event | None = None,
        observer: Observer | None = None,
        sources: Sequence[Source] | None = None,
        what_if: WhatIf | None = None,
    ) -> SyncEngine:
        """Executes runs. ``stop`` ends their pauses. ``sources`` and ``what_if`` replace the sources in a dry run."""
        from app.sync.runs.engine import SyncEngine

        return SyncEngine(
            engine=self.engine,
            client=backend_client(self.settings, clock=self.clock, random=self.random, stop=stop, observer=observer),
            sources=self.sources(stop=stop) if sources is None else sources,
            sync_settings=self.settings.sync,
            backend_settings=self.settings.backend,
            directory_settings=self.settings.directory,
            policy=self.settings.provider.policy,
            clock=self.clock,
            sleep=self.sleep,
            random=self.random,
            what_if=what_if,
        )

    def plan_problem(self, plan_id: str) -> str | None:
        """Why this stored plan cannot be applied to the backend, as far as the ledger shows. None if it can be."""
        from app.sync.ledger.ledger import ledger_in_use, open_ledger, read_ledger
        from app.sync.plan.stored import load_plan, stale_sentence

        backend = self.settings.backend
        api_key = backend.api_key.get_secret_value()
        own = open_ledger(self.engine, backend.base_url, api_key, self.clock).ledger_id if api_key else None
        with reading(self.engine) as connection:
            # A service without credentials uses the workers' ledger.
            ledger_id = ledger_in_use(connection) if own is None else own
            plan = load_plan(connection, plan_id)
            if plan is None or plan.ledger_id != ledger_id:
                return f"there is no plan {plan_id} of this backend: usher plan makes one"
            ledger = read_ledger(connection, plan.ledger_id)
            is_stale = ledger.verified_at is not None and plan.ledger_revision != ledger.ledger_revision
            return stale_sentence(plan_id) if is_stale else None

    def concerns(self) -> Sequence[Concern]:
        with reading(self.engine) as connection:
            return concern_finder(self.settings)(connection, self.clock())

    def check_database(self) -> None:
        """Raises SQLAlchemy's errors if the database does not answer."""
        with reading(self.engine) as connection:
            connection.execute(text("SELECT 1"))


def concern_finder(
    settings: Settings, *, limit: int | None = None
) -> Callable[[Connection, datetime], Sequence[Concern]]:
    """Returns a function that reads the concerns from the database. It counts up to ``limit`` items."""
    from app.monitoring.notify.concerns import concerns

    expected = expectations(settings)
    return lambda connection, now: concerns(connection, now, expected, limit=limit)


def expectations(settings: Settings) -> Expectations:
    """The times after which runs are due, and a late run or an unresponsive worker is a concern."""
    from app.monitoring.notify.concerns import Expectations

    sync = settings.sync
    return Expectations(
        due_after=due_after(settings, sync.schedule, sync.verify_schedule),
        missed_after=timedelta(seconds=settings.notifications.missed_after),
        worker_after=timedelta(seconds=settings.notifications.worker_after),
    )


def due_after(settings: Settings, *schedules: str) -> DueAfter:
    """Returns when the first of these schedules is due after a moment."""
    written = [schedule for schedule in schedules if schedule]
    return lambda moment: first_due_after(moment, written, settings.sync.timezone)


def build_watch(settings: Settings, engine: Engine, *, clock: Clock, stop: Event, interval: float) -> Watch:
    """Builds the loop that sends notifications. Services run it, too, because a dead worker cannot report itself.
    ``interval``: seconds between two checks."""
    from app.monitoring.notify.watch import Watch

    return Watch(
        engine=engine,
        find_concerns=concern_finder(settings),
        channels=notification_channels(settings, clock=clock),
        clock=clock,
        random=SystemRandom(),
        stop=stop,
        interval=interval,
        tries=settings.notifications.tries,
    )


@contextmanager
def application(settings: Settings, *, needs_backend: bool = False) -> Iterator[Application]:
    """The parts for one command. ``needs_backend``: it needs credentials and a source. Raises ``SetUpError``."""
    if needs_backend:
        require_backend(settings)
        require_sources(settings)
    with disposing(open_store(settings)) as engine:
        yield Application(settings=settings, engine=engine, clock=utc_now, sleep=time.sleep, random=SystemRandom())
