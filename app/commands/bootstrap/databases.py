"""Opens and upgrades the databases of an installation: Usher's own and the self-hosted backend's."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from time import monotonic

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

import app.backend
import app.commands
from app import __version__
from app.access.index.layout import LAYOUT
from app.access.source_states import SourceState, source_states
from app.commands.bootstrap.requirements import SetUpError
from app.commands.operator import operator
from app.foundation.audit import Audit, AuditAction
from app.foundation.clock import utc_now
from app.foundation.database.engine import disposing, is_sqlite, open_engine, reading
from app.foundation.database.migrations import is_new, last_upgrade_is_compatible, pending, revision_of, upgrade
from app.foundation.database.programs import (
    SELF_HOSTED_BACKEND,
    USHER,
    ForeignDatabaseError,
    Migrations,
    SchemaGuard,
    SchemaNewerError,
)
from app.foundation.database.url import parse_url
from app.settings import Settings

STORE_MIGRATIONS = Migrations(USHER, Path(app.commands.__file__).parent / "migrations", "app.commands.schema")
BACKEND_MIGRATIONS = Migrations(
    SELF_HOSTED_BACKEND, Path(app.backend.__file__).parent / "migrations", "app.backend.schema"
)

_RESPONSE_TIMEOUT = 14.0
"""Seconds for which a request waits for a response of PostgreSQL. Cancelling the statement may take one more.
Pages of the console end a statement after two seconds."""


def open_store(settings: Settings) -> Engine:
    """Usher's own database, with the schema of this version. Raises ``SetUpError``, and as ``pending``."""
    # More connections than a command or worker needs: a run uses a few, and background threads one each.
    engine = open_engine(settings.database_url, pool_size=settings.server.threads + 2)
    return _with_current_schema(engine, STORE_MIGRATIONS)


def open_store_for_service(settings: Settings) -> Engine:
    """Usher's own database for one process of the service. The schema was checked before the fork."""
    # One connection for each request thread, and some for the background threads: notifications and activity.
    return open_engine(
        settings.database_url, pool_size=settings.server.threads + 3, mapped=True, response_timeout=_RESPONSE_TIMEOUT
    )


@contextmanager
def existing_store(settings: Settings) -> Iterator[Engine | None]:
    """Usher's own database, to be read. None if it is missing, unavailable or has the schema of another version."""
    file = sqlite_file(settings.database_url)
    if file is not None and not file.exists():
        yield None
        return
    usable = False
    with disposing(open_engine(settings.database_url, pool_size=1)) as engine:
        with suppress(SQLAlchemyError, SchemaNewerError, ForeignDatabaseError, OSError):
            usable = not pending(engine, STORE_MIGRATIONS)
        yield engine if usable else None


def known_sources(engine: Engine | None) -> Mapping[str, SourceState]:
    """The state of each source, by name, with its number of records by kind. Empty if the database cannot be read."""
    if engine is not None:
        with suppress(SQLAlchemyError, OSError), reading(engine) as connection:
            return {state.name: state for state in source_states(connection, by_kind=True)}
    return {}


def open_backend_store(settings: Settings, *, must_exist: bool = False) -> Engine:
    """As ``open_store``, for the self-hosted backend. ``must_exist``: raise instead of creating a SQLite file."""
    url = settings.self_hosted_backend.database_url
    file = sqlite_file(url)
    if must_exist and file is not None and not file.exists():
        raise SetUpError(f"there is no database {file} (self_hosted_backend.database_url): is this the right folder?")
    return _with_current_schema(open_engine(url), BACKEND_MIGRATIONS)


@dataclass(frozen=True, slots=True)
class Upgraded:
    changed: bool
    old_version_compatible: bool | None
    """Whether processes of the previous version can still use the database. None if the database was new."""


def upgrade_store(settings: Settings) -> Upgraded:
    """Upgrades Usher's own database to the schema of this version. The audit log records it."""
    with disposing(open_engine(settings.database_url)) as engine:
        before = revision_of(engine, STORE_MIGRATIONS)
        changed = upgrade(engine, STORE_MIGRATIONS, audit_upgrade)
        if before is None:
            return Upgraded(changed, None)
        return Upgraded(changed, last_upgrade_is_compatible(engine, before))


def upgrade_backend_store(settings: Settings) -> bool:
    """Upgrades the self-hosted backend's database to the schema of this version. Returns whether that changed it."""
    with disposing(open_engine(settings.self_hosted_backend.database_url)) as engine:
        return upgrade(engine, BACKEND_MIGRATIONS)


def audit_upgrade(connection: Connection) -> None:
    """Writes the audit row of an upgrade, in its transaction."""
    Audit(utc_now).record(connection, operator(), AuditAction.UPGRADE, subject=f"to version {__version__}")


def store_guard(engine: Engine) -> SchemaGuard:
    """Refuses work on Usher's own database once a newer version made it incompatible."""
    return SchemaGuard(engine, STORE_MIGRATIONS.revisions()[-1], monotonic)


def _with_current_schema(engine: Engine, migrations: Migrations) -> Engine:
    """The engine, with the schema of this version. Disposes the engine if it raises."""
    try:
        _require_current_schema(engine, migrations)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _require_current_schema(engine: Engine, migrations: Migrations) -> None:
    """Upgrades a SQLite database. Raises ``SetUpError`` for an older PostgreSQL schema: other processes may use it."""
    if not pending(engine, migrations):
        return
    is_usher = migrations is STORE_MIGRATIONS
    if is_sqlite(engine):
        upgrade(engine, migrations, audit_upgrade if is_usher and not is_new(engine) else None)
        return
    command = "usher db upgrade" if is_usher else "usher backend upgrade"
    if is_new(engine):
        raise SetUpError(f"the database is empty: run {command} to create its tables")
    first = "stop the workers and " if is_usher else ""
    raise SetUpError(f"the database's schema is older than this version: {first}run {command}")


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite database. None for PostgreSQL."""
    parsed = parse_url(url)
    return Path(str(parsed.database)) if parsed.get_backend_name() == "sqlite" else None


def index_folder(settings: Settings) -> Path:
    """The folder of the index: below that of the settings, otherwise beside a SQLite file, or in ``var``. Each database
    and each layout has one of its own, so that two of them never share a file."""
    file = sqlite_file(settings.database_url)
    beside = Path("var/index") if file is None else file.parent / f"{file.name}-index"
    database = blake2b(database_location(settings.database_url).encode(), digest_size=6).hexdigest()
    return (settings.index.path or beside) / f"{database}-{LAYOUT}"


def database_location(url: str) -> str:
    """The URL without its password, or the absolute path of a SQLite file."""
    file = sqlite_file(url)
    return parse_url(url).render_as_string(hide_password=True) if file is None else str(file.resolve())
