"""The databases of an installation: opened, brought up to date, or looked at as they are."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

import app.backend
import app.commands
from app.access.contents import SourceState, source_states
from app.commands.bootstrap.acting import audited_upgrade
from app.commands.bootstrap.requirements import SetUpError
from app.foundation.database.compatibility import SchemaGuard
from app.foundation.database.engine import DatabaseUrlError, is_sqlite, open_engine, parse_url, reading
from app.foundation.database.migrations import is_new, last_upgrade_is_compatible, pending, revision_of, upgrade
from app.foundation.database.programs import (
    SELF_HOSTED_BACKEND,
    USHER,
    ForeignDatabaseError,
    Migrations,
    SchemaNewerError,
)
from app.settings import Settings

STORE_MIGRATIONS = Migrations(USHER, Path(app.commands.__file__).parent / "migrations")
BACKEND_MIGRATIONS = Migrations(SELF_HOSTED_BACKEND, Path(app.backend.__file__).parent / "migrations")


def open_store(settings: Settings) -> Engine:
    """Usher's own database, with the schema of this version. Raises ``SetUpError``."""
    engine = open_engine(settings.database_url, pool_size=settings.server.threads + 2)
    bring_up_to_date(engine, STORE_MIGRATIONS, "usher db upgrade", audited_upgrade())
    return engine


def open_store_for_service(settings: Settings) -> Engine:
    """Usher's own database for one process of the service, whose schema was looked at before."""
    return open_engine(settings.database_url, pool_size=settings.server.threads + 3, mapped=True)


def open_backend_store(settings: Settings, *, has_to_exist: bool = False) -> Engine:
    """The self-hosted backend's database, with the schema of this version. Raises ``SetUpError``.

    ``has_to_exist``: for a command that has nothing to do in a new one.
    """
    url = settings.self_hosted_backend.database_url
    parsed = parse_url(url)
    if has_to_exist and parsed.get_backend_name() == "sqlite" and not Path(str(parsed.database)).exists():
        raise SetUpError(
            f"there is no database {parsed.database} (self_hosted_backend.database_url): is this the right folder?"
        )
    engine = open_engine(url)
    bring_up_to_date(engine, BACKEND_MIGRATIONS, "usher backend upgrade")
    return engine


@dataclass(frozen=True, slots=True)
class Upgraded:
    """The result of an upgrade."""

    changed: bool
    older_can_go_on: bool | None
    """Whether processes of the version before can still use the database; None if the database was new."""


def upgrade_store(settings: Settings) -> Upgraded:
    """Upgrades Usher's own database to the schema of this version. The audit log records it."""
    engine = open_engine(settings.database_url)
    try:
        before = revision_of(engine, STORE_MIGRATIONS)
        changed = upgrade(engine, STORE_MIGRATIONS, audited_upgrade())
        if before is None:
            return Upgraded(changed, None)
        return Upgraded(changed, last_upgrade_is_compatible(engine, STORE_MIGRATIONS, before))
    finally:
        engine.dispose()


def upgrade_backend_store(settings: Settings) -> bool:
    """Upgrades the self-hosted backend's database to the schema of this version. Returns whether that changed it."""
    engine = open_engine(settings.self_hosted_backend.database_url)
    try:
        return upgrade(engine, BACKEND_MIGRATIONS)
    finally:
        engine.dispose()


def store_guard(engine: Engine) -> SchemaGuard:
    """Refuses work on Usher's own database once a newer version made it incompatible."""
    return SchemaGuard(engine, STORE_MIGRATIONS.revisions, monotonic)


def open_to_look(url: str) -> Engine:
    """A database for somebody who looks once, whatever its schema is."""
    return open_engine(url, pool_size=1)


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


def is_there(url: str) -> bool:
    """Whether there may be a database at this address: of a server's that shows when it is asked."""
    try:
        parsed = parse_url(url)
    except DatabaseUrlError:
        return False
    return parsed.get_backend_name() != "sqlite" or Path(str(parsed.database)).exists()


@contextmanager
def store_as_it_is(settings: Settings) -> Iterator[Engine | None]:
    """Usher's own database for somebody who changes nothing; None: it is not there, away, or of another version."""
    usable = False
    if not is_there(settings.database_url):
        yield None
        return
    engine = open_to_look(settings.database_url)
    try:
        with suppress(SQLAlchemyError, SchemaNewerError, ForeignDatabaseError, OSError):
            usable = not pending(engine, STORE_MIGRATIONS)
        yield engine if usable else None
    finally:
        engine.dispose()


def bring_up_to_date(
    engine: Engine, migrations: Migrations, command: str, witness: Callable[[Connection], None] | None = None
) -> None:
    """Upgrades a SQLite database; refuses a PostgreSQL one that is behind, because others may be using it. ``witness``
    writes an upgrade down; tables in a new database are none.

    Raises ``SetUpError``, and what ``upgrade`` does.
    """
    if is_sqlite(engine):
        if pending(engine, migrations):
            upgrade(engine, migrations, None if is_new(engine) else witness)
    elif pending(engine, migrations):
        new = is_new(engine)
        engine.dispose()
        if new:
            raise SetUpError(f"the database is empty: run {command}, which makes its tables")
        first = "stop the workers and " if migrations.program is USHER else ""
        raise SetUpError(f"the database's schema is older than this version: {first}run {command}")


def database_location(url: str) -> str:
    """Where a database is, without any password; a SQLite file by its whole path: a relative one depends on where one
    stands."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return str(Path(str(parsed.database)).resolve())
    return parsed.render_as_string(hide_password=True)
