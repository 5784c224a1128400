"""How are the parts put together? The one place where they are made from the settings.

Nothing is connected before it is used, except that a SQLite database is brought to the newest schema when it is opened.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random, SystemRandom
from threading import Event
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text

import app.backend
import app.store
from app.database.engine import is_sqlite, open_engine, reading, writing
from app.database.migrations import pending, upgrade
from app.directory.configured import sources_from_settings
from app.directory.source import Source
from app.notify.concerns import Concern, Expectations, concerns
from app.settings import Settings
from app.store.ledger import forget_failures, open_ledger
from app.store.lock import SyncLock, sync_lock
from app.store.plans import load_plan
from app.store.runs import Runs
from app.sync.schedule import first_due_after

if TYPE_CHECKING:
    from app.client.client import BackendClient, Observer
    from app.sync.engine import SyncEngine

Clock = Callable[[], datetime]
Sleep = Callable[[float], None]

STORE_MIGRATIONS = Path(app.store.__file__).parent / "migrations"
BACKEND_MIGRATIONS = Path(app.backend.__file__).parent / "migrations"


class SetUpError(Exception):
    """What was asked for cannot be done with these settings; the text is one line that names the key and the fix."""


def utc_now() -> datetime:
    """The clock of everything that runs for real."""
    return datetime.now(UTC)


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
        """The runs in the database."""
        return Runs(self.engine, self.clock, self.random)

    def sync_lock(self) -> SyncLock:
        """The lock under which one process synchronizes; not yet taken."""
        return sync_lock(self.engine, sleep=self.sleep)

    def sources(self, *, stop: Event | None = None) -> Sequence[Source]:
        """The directory's sources, in the order of the configuration; ``stop`` ends their reads."""
        return sources_from_settings(self.settings.directory, stop=stop)

    def backend_client(self, *, stop: Event | None = None, observer: "Observer | None" = None) -> "BackendClient":
        """A client of the configured backend; ``stop`` ends its waits. Raises ``SetUpError`` without credentials."""
        from app.client.client import BackendClient  # noqa: PLC0415 - the service lives without it, and starts sooner

        require_backend(self.settings)
        return BackendClient(self.settings.backend, clock=self.clock, random=self.random, stop=stop, observer=observer)

    def sync_engine(self, *, stop: Event | None = None, observer: "Observer | None" = None) -> "SyncEngine":
        """What takes a run to its end; ``stop`` ends the waits of its calls at once."""
        from app.sync.engine import SyncEngine  # noqa: PLC0415 - as above

        return SyncEngine(
            engine=self.engine,
            client=self.backend_client(stop=stop, observer=observer),
            sources=self.sources(stop=stop),
            sync_settings=self.settings.sync,
            backend_settings=self.settings.backend,
            directory_settings=self.settings.directory,
            clock=self.clock,
            sleep=self.sleep,
            random=self.random,
        )

    def retry_parked(self) -> int:
        """Someone's word that what was given up is to be tried again; how many items."""
        backend = self.settings.backend
        ledger = open_ledger(self.engine, backend.base_url, backend.api_key.get_secret_value(), self.clock)
        with writing(self.engine) as connection:
            return forget_failures(connection, ledger.ledger_id)

    def has_plan(self, plan_id: str) -> bool:
        """Whether this is a stored plan for the configured backend."""
        backend = self.settings.backend
        ledger = open_ledger(self.engine, backend.base_url, backend.api_key.get_secret_value(), self.clock)
        with reading(self.engine) as connection:
            plan = load_plan(connection, plan_id)
        return plan is not None and plan.ledger_id == ledger.ledger_id

    def concerns(self) -> Sequence[Concern]:
        """What needs somebody's attention now."""
        with reading(self.engine) as connection:
            return look_for_concerns(self.settings)(connection, self.clock())

    def check_database(self) -> None:
        """Raises what SQLAlchemy raises when the database does not answer."""
        with reading(self.engine) as connection:
            connection.execute(text("SELECT 1"))


def look_for_concerns(settings: Settings) -> Callable[[Connection, datetime], Sequence[Concern]]:
    """What tells, from the database, what needs somebody's attention at a moment."""
    sync = settings.sync
    schedules = [schedule for schedule in (sync.schedule, sync.verify_schedule) if schedule]
    expectations = Expectations(
        due_after=lambda moment: first_due_after(moment, schedules, sync.timezone),
        missed_after=timedelta(seconds=settings.notifications.missed_after),
    )
    return lambda connection, now: concerns(connection, now, expectations)


@contextmanager
def application(settings: Settings, *, needs_backend: bool = False) -> Iterator[Application]:
    """The parts for one command. Raises ``SetUpError``."""
    if needs_backend:
        require_backend(settings)
    engine = open_store(settings)
    try:
        yield Application(settings=settings, engine=engine, clock=utc_now, sleep=time.sleep, random=SystemRandom())
    finally:
        engine.dispose()


def open_store(settings: Settings) -> Engine:
    """Usher's own database, with the schema of this version. Raises ``SetUpError``."""
    engine = open_engine(settings.database_url, pool_size=settings.server.threads + 2)
    bring_up_to_date(engine, STORE_MIGRATIONS, "usher db upgrade")
    return engine


def bring_up_to_date(engine: Engine, migrations: Path, command: str) -> None:
    """Upgrades a SQLite database; refuses a PostgreSQL one that is behind, because others may be using it."""
    if is_sqlite(engine):
        upgrade(engine, migrations)
    elif pending(engine, migrations):
        engine.dispose()
        raise SetUpError(f"the database's schema is older than this version: stop everything and run {command}")


def require_backend(settings: Settings) -> None:
    """Raises ``SetUpError`` when the credentials for the backend are missing."""
    missing = [f"backend.{name}" for name in _missing_credentials(settings)]
    if missing:
        raise SetUpError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} empty: set the backend's credentials"
            " (usher backend bootstrap makes some for the self-hosted backend)"
        )


def has_credentials(settings: Settings) -> bool:
    """Whether the backend can be called at all."""
    return not _missing_credentials(settings)


def _missing_credentials(settings: Settings) -> list[str]:
    backend = {"api_key": settings.backend.api_key, "auth_token": settings.backend.auth_token}
    return [name for name, secret in backend.items() if not secret.get_secret_value()]


def require_provider_tokens(settings: Settings) -> None:
    """Raises ``SetUpError`` when anyone could ask for anybody's permissions without that being meant."""
    if not settings.provider.auth_tokens and not settings.provider.allow_anonymous:
        raise SetUpError(
            "provider.auth_tokens is empty: set at least one token, or provider.allow_anonymous: true to let anyone ask"
        )
