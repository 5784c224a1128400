"""The composition of the parts: the one place where they are made from the settings.

Nothing is connected before it is used, except that a SQLite database is brought to the newest schema when it is opened.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from random import Random, SystemRandom
from threading import Event
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

import app.backend
import app.store
from app.clock import Clock, Sleep, utc_now
from app.database.engine import DatabaseUrlError, is_sqlite, open_engine, parse_url, reading
from app.database.migrations import Migrations, SchemaNewerError, is_new, pending, upgrade
from app.database.programs import SELF_HOSTED_BACKEND, USHER, ForeignDatabaseError
from app.directory.configured import sources_from_settings
from app.directory.source import Source
from app.ledger.ledger import open_ledger
from app.model.contents import SourceState, source_states
from app.notify.concerns import Concern, Expectations, concerns
from app.plan.stored import load_plan, stale_sentence
from app.runs.lifecycle import Runs
from app.runs.lock import SyncLock, sync_lock
from app.runs.schedule import first_due_after
from app.settings import Settings

if TYPE_CHECKING:
    from app.client.client import BackendClient, Observer
    from app.notify.watch import Watch
    from app.runs.engine import SyncEngine
    from app.runs.what_if import WhatIf


STORE_MIGRATIONS = Migrations(USHER, Path(app.store.__file__).parent / "migrations", once_left_out=("deleted_item",))
BACKEND_MIGRATIONS = Migrations(SELF_HOSTED_BACKEND, Path(app.backend.__file__).parent / "migrations")


SHORTEST_TOKEN = 16
"""Characters of a token that lets callers in: whoever guesses is not slowed down enough for fewer."""

NO_SOURCES = (
    "directory.sources is empty: name the directory file, as"
    " directory: {sources: [{type: file, path: /srv/directory/export.jsonl}]}"
)
"""What is said where a directory is needed and none is configured."""


class SetUpError(Exception):
    """What was asked for cannot be done with these settings; the text is one line that names the key and the fix."""


class MissingSettingError(SetUpError):
    """A setting without which it does not go is empty: the file that has it was perhaps not read."""


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
        """The directory's sources, in the order of the configuration; ``stop`` ends their reads. Raises ``SetUpError``
        where there are none."""
        require_sources(self.settings)
        return sources_from_settings(self.settings.directory, stop=stop, spool=spool_folder(self.settings))

    def backend_client(self, *, stop: Event | None = None, observer: "Observer | None" = None) -> "BackendClient":
        """A client of the configured backend; ``stop`` ends its waits. Raises ``SetUpError`` without credentials."""
        from app.client.client import BackendClient  # noqa: PLC0415 - the service lives without it, and starts sooner

        require_backend(self.settings)
        return BackendClient(self.settings.backend, clock=self.clock, random=self.random, stop=stop, observer=observer)

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
        from app.runs.engine import SyncEngine  # noqa: PLC0415 - as above

        return SyncEngine(
            engine=self.engine,
            client=self.backend_client(stop=stop, observer=observer),
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
        backend = self.settings.backend
        ledger = open_ledger(self.engine, backend.base_url, backend.api_key.get_secret_value(), self.clock)
        with reading(self.engine) as connection:
            plan = load_plan(connection, plan_id)
            if plan is None or plan.ledger_id != ledger.ledger_id:
                return f"there is no plan {plan_id} of this backend: usher plan makes one"
            is_stale = ledger.verified_at is not None and plan.ledger_revision != ledger.ledger_revision
            return stale_sentence(plan_id) if is_stale else None

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
    expected = expectations_of(settings)
    return lambda connection, now: concerns(connection, now, expected)


def expectations_of(settings: Settings) -> Expectations:
    """What ought to happen by itself."""
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
    from app.notify.configured import channels_from_settings  # noqa: PLC0415 - only servers tell anyone
    from app.notify.watch import Watch  # noqa: PLC0415 - as above

    return Watch(
        engine=engine,
        look=look_for_concerns(settings),
        channels=channels_from_settings(settings.notifications, clock=clock),
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


def database_place(url: str) -> str:
    """Where a database is, without any password; a SQLite file by its whole path: a relative one depends on where one
    stands."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return str(Path(str(parsed.database)).resolve())
    return parsed.render_as_string(hide_password=True)


def spool_folder(settings: Settings) -> Path:
    """Where sources keep what they need between reads. It may be lost: they are then read as a whole."""
    if settings.directory.spool is not None:
        return settings.directory.spool
    url = parse_url(settings.database_url)
    if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:":
        return Path(f"{url.database}-spool")
    # Installations that share a machine and a user may have sources of the same name.
    which = sha256(database_place(settings.database_url).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"usher-spool-{os.getuid()}-{which}"


def open_store(settings: Settings) -> Engine:
    """Usher's own database, with the schema of this version. Raises ``SetUpError``."""
    engine = open_engine(settings.database_url, pool_size=settings.server.threads + 2)
    bring_up_to_date(engine, STORE_MIGRATIONS, "usher db upgrade")
    return engine


def known_sources(settings: Settings) -> Mapping[str, SourceState]:
    """What is in force of each source, by name, as far as the database can tell without being changed."""
    with store_as_it_is(settings) as engine:
        if engine is None:
            return {}
        try:
            with reading(engine) as connection:
                return {state.name: state for state in source_states(connection, by_kind=True)}
        except (SQLAlchemyError, OSError):
            return {}


@contextmanager
def store_as_it_is(settings: Settings) -> Iterator[Engine | None]:
    """Usher's own database for somebody who changes nothing; None: it is not there, away, or of another version."""
    engine, usable = None, False
    with suppress(DatabaseUrlError):
        url = parse_url(settings.database_url)
        if url.get_backend_name() != "sqlite" or Path(str(url.database)).exists():
            engine = open_engine(settings.database_url, pool_size=1)
    if engine is None:
        yield None
        return
    try:
        with suppress(SQLAlchemyError, SchemaNewerError, ForeignDatabaseError, OSError):
            usable = not pending(engine, STORE_MIGRATIONS)
        yield engine if usable else None
    finally:
        engine.dispose()


def bring_up_to_date(engine: Engine, migrations: Migrations, command: str) -> None:
    """Upgrades a SQLite database; refuses a PostgreSQL one that is behind, because others may be using it.

    Raises ``SetUpError``, and what ``upgrade`` does.
    """
    if is_sqlite(engine):
        upgrade(engine, migrations)
    elif pending(engine, migrations):
        new = is_new(engine)
        engine.dispose()
        if new:
            raise SetUpError(f"the database is empty: run {command}, which makes its tables")
        raise SetUpError(f"the database's schema is older than this version: stop everything and run {command}")


def require_backend(settings: Settings) -> None:
    """Raises ``SetUpError`` when the credentials for the backend are missing."""
    missing = [f"backend.{name}" for name in _missing_credentials(settings)]
    if missing:
        raise MissingSettingError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} empty: set the backend's credentials"
            " (usher backend bootstrap makes some for the self-hosted backend)"
        )


def has_credentials(settings: Settings) -> bool:
    """Whether the backend can be called at all."""
    return not _missing_credentials(settings)


def _missing_credentials(settings: Settings) -> list[str]:
    backend = {"api_key": settings.backend.api_key, "auth_token": settings.backend.auth_token}
    return [name for name, secret in backend.items() if not secret.get_secret_value()]


def require_sources(settings: Settings) -> None:
    """Raises ``SetUpError`` when no directory source is configured."""
    if not settings.directory.sources:
        raise MissingSettingError(NO_SOURCES)


def require_provider_tokens(settings: Settings) -> None:
    """Raises ``SetUpError`` when anyone could ask for anybody's permissions, or guess how, without that being meant."""
    if not settings.provider.auth_tokens and not settings.provider.allow_anonymous:
        raise MissingSettingError(
            "provider.auth_tokens is empty: set at least one token, or provider.allow_anonymous: true to let anyone ask"
        )
    short = short_tokens(settings)
    if short:
        raise SetUpError(
            f"{' and '.join(short)} {'is' if len(short) == 1 else 'are'} shorter than {SHORTEST_TOKEN} characters and"
            " could be guessed: make one with openssl rand -hex 24"
        )


def short_tokens(settings: Settings) -> list[str]:
    """Which tokens that let callers in could be guessed."""
    given = {"provider.auth_tokens": settings.provider.auth_tokens, "admin.tokens": settings.admin.tokens}
    for index, source in enumerate(settings.directory.sources):
        if source.changes is not None:
            given[f"directory.sources[{index}].changes.tokens"] = source.changes.tokens
    return [
        f"{key}[{index}]"
        for key, tokens in given.items()
        for index, token in enumerate(tokens)
        if len(token.get_secret_value()) < SHORTEST_TOKEN
    ]
