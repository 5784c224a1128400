"""The parts of one process around Usher's own database, and what it expects to happen by itself."""

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
from app.commands.bootstrap.outside import backend_client, configured_sources, notification_channels
from app.commands.bootstrap.requirements import require_backend, require_sources
from app.directory.source import Source
from app.foundation.audit import Audit
from app.foundation.clock import Clock, Sleep, utc_now
from app.foundation.database.engine import reading
from app.settings import Settings
from app.sync.runs.lock import SyncLock, sync_lock
from app.sync.runs.schedule import first_due_after

if TYPE_CHECKING:
    from app.access.view.loader import AccessViewLoader
    from app.client.client import Observer
    from app.monitoring.notify.concerns import Concern, Expectations
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
    def runs(self) -> "Runs":
        """The runs in the database."""
        from app.sync.runs.lifecycle import Runs

        return Runs(self.engine, self.clock, self.random)

    @property
    def audit(self) -> Audit:
        """What was done, and by whom."""
        return Audit(self.clock)

    def sync_lock(self) -> SyncLock:
        """The lock under which one process synchronizes; not yet taken."""
        return sync_lock(self.engine, sleep=self.sleep)

    def sources(self, *, stop: Event | None = None) -> Sequence[Source]:
        """The directory's sources, in the order of the configuration; ``stop`` ends their reads. Raises ``SetUpError``
        where there are none."""
        require_sources(self.settings)
        return configured_sources(self.settings, stop=stop)

    def view_loader(self, *, names: bool = False) -> "AccessViewLoader":
        """What loads from the access model what decisions need; ``names``: and what their reasons show besides."""
        from app.access.view.loader import AccessViewLoader

        return AccessViewLoader(self.engine, self.settings.provider.policy, names=names)

    def sync_engine(
        self,
        *,
        stop: Event | None = None,
        observer: "Observer | None" = None,
        sources: Sequence[Source] | None = None,
        what_if: "WhatIf | None" = None,
    ) -> "SyncEngine":
        """What takes a run to its end; ``stop`` ends the waits of its calls at once. ``sources``: others than those
        that are configured, with what they stand for."""
        from app.sync.runs.engine import SyncEngine

        return SyncEngine(
            engine=self.engine,
            client=backend_client(self.settings, clock=self.clock, random=self.random, stop=stop, observer=observer),
            sources=self.sources(stop=stop) if sources is None else sources,
            sync_settings=self.settings.sync,
            backend_settings=self.settings.backend,
            directory_settings=self.settings.directory,
            clock=self.clock,
            sleep=self.sleep,
            random=self.random,
            what_if=what_if,
        )

    def plan_problem(self, plan_id: str) -> str | None:
        """Why this stored plan cannot be applied to the configured backend; None: it may be.

        Whether it is still what is due shows when the directory is read: what it was made from may not be in force yet.
        """
        from app.sync.ledger.ledger import ledger_in_use, open_ledger, read_ledger
        from app.sync.plan.stored import load_plan, stale_sentence

        backend = self.settings.backend
        api_key = backend.api_key.get_secret_value()
        own = open_ledger(self.engine, backend.base_url, api_key, self.clock).ledger_id if api_key else None
        with reading(self.engine) as connection:
            # A service may know no credentials, or not yet: it goes by what the workers use.
            ledger_id = ledger_in_use(connection) if own is None else own
            plan = load_plan(connection, plan_id)
            if plan is None or plan.ledger_id != ledger_id:
                return f"there is no plan {plan_id} of this backend: usher plan makes one"
            ledger = read_ledger(connection, plan.ledger_id)
            is_stale = ledger.verified_at is not None and plan.ledger_revision != ledger.ledger_revision
            return stale_sentence(plan_id) if is_stale else None

    def concerns(self) -> "Sequence[Concern]":
        """What needs somebody's attention now."""
        with reading(self.engine) as connection:
            return look_for_concerns(self.settings)(connection, self.clock())

    def check_database(self) -> None:
        """Raises what SQLAlchemy raises when the database does not answer."""
        with reading(self.engine) as connection:
            connection.execute(text("SELECT 1"))


def look_for_concerns(
    settings: Settings, *, most: int | None = None
) -> "Callable[[Connection, datetime], Sequence[Concern]]":
    """What tells, from the database, what needs somebody's attention at a moment; ``most``: what is many is counted no
    further."""
    from app.monitoring.notify.concerns import concerns

    expected = expectations_of(settings)
    return lambda connection, now: concerns(connection, now, expected, most=most)


def expectations_of(settings: Settings) -> "Expectations":
    """What ought to happen by itself."""
    from app.monitoring.notify.concerns import Expectations

    sync = settings.sync
    schedules = [schedule for schedule in (sync.schedule, sync.verify_schedule) if schedule]
    return Expectations(
        due_after=lambda moment: first_due_after(moment, schedules, sync.timezone),
        missed_after=timedelta(seconds=settings.notifications.missed_after),
        worker_after=timedelta(seconds=settings.notifications.worker_after),
    )


def watch_over(settings: Settings, engine: Engine, *, clock: Clock, stop: Event) -> "Watch":
    """What tells people, until ``stop`` is set: in every worker, and in the services, which notice that no worker
    lives."""
    from app.monitoring.notify.watch import Watch

    return Watch(
        engine=engine,
        look=look_for_concerns(settings),
        channels=notification_channels(settings, clock=clock),
        clock=clock,
        random=SystemRandom(),
        stop=stop,
        tries=settings.notifications.tries,
    )


@contextmanager
def application(settings: Settings, *, needs_backend: bool = False) -> Iterator[Application]:
    """The parts for one command; ``needs_backend``: it syncs, so that it needs the directory as well. Raises
    ``SetUpError``."""
    if needs_backend:
        require_backend(settings)
        require_sources(settings)
    engine = open_store(settings)
    try:
        yield Application(settings=settings, engine=engine, clock=utc_now, sleep=time.sleep, random=SystemRandom())
    finally:
        engine.dispose()
