"""Checks Usher's own database: that it can be used and has the schema of this version. Then checks its contents."""

import time
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from app.commands.bootstrap.databases import STORE_MIGRATIONS, sqlite_file
from app.commands.doctor.contents import check_contents
from app.commands.doctor.finding import Finding, Findings, State, ok, problem, warning
from app.foundation.clock import Clock, utc_now
from app.foundation.configuration.showing import without_secrets
from app.foundation.database import errors
from app.foundation.database.engine import is_sqlite, open_engine, reading, writing
from app.foundation.database.migrations import is_new, state_of
from app.foundation.database.programs import ForeignDatabaseError, SchemaNewerError, SchemaState
from app.foundation.database.url import DatabaseUrlError, DriverMissingError
from app.foundation.text import printable
from app.settings import Settings

_FREE_BYTES = 1024**3
"""With less free space, a check warns."""
_MIN_FREE_BYTES = 1024**2
"""With less free space, the disk is full."""
_MAX_CLOCK_OFFSET = 30.0
"""Seconds between the clocks of the database and of this machine."""

_TABLES_WITHOUT_RIGHTS = text(
    "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND NOT"
    " (has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE')"
    " AND has_table_privilege(oid, 'DELETE')) ORDER BY 1"
)


def check_store(settings: Settings, clock: Clock) -> Findings:
    """Checks Usher's own database and its contents."""
    engine, finding = open_database(settings.database_url)
    yield finding
    yield from check_permissions(settings.database_url, "database")
    if engine is None:
        return
    try:
        schema = _check_schema(engine)
        yield schema
        if schema.state is not State.PROBLEM:
            if not is_sqlite(engine):
                # A replica and a role that may only read refuse this. A connection that was used for reading would
                # begin a read-write transaction even if the role's default is read-only.
                engine.dispose()
                with writing(engine) as connection:
                    connection.execute(text("UPDATE access_revision SET revision = revision WHERE FALSE"))
                    rights = list(_check_rights(connection))
                yield from rights
            with reading(engine) as connection:
                findings = list(check_contents(connection, settings, clock()))
            yield from findings
    except SQLAlchemyError as error:
        yield _unusable(error)
    finally:
        engine.dispose()


def open_database(url: str) -> tuple[Engine | None, Finding]:
    """Connects to a database. Creates no file. Returns no engine if the database cannot be used."""
    try:
        file = sqlite_file(url)
        if file is not None and not file.exists():
            return None, _check_missing_file(file)
        engine = open_engine(url, pool_size=1)
        started_at = time.monotonic()
        with reading(engine) as connection:
            connection.execute(text("SELECT 1"))
            milliseconds = (time.monotonic() - started_at) * 1000
            finding = _check_clock(connection) if file is None else _check_file(file)
    except DriverMissingError as error:
        return None, problem("database", str(error), "install it, or let database_url name a SQLite file")
    except DatabaseUrlError as error:
        return None, problem("database", str(error), "fix database_url")
    except (SQLAlchemyError, OSError) as error:
        return None, _unusable(error)
    return engine, finding or ok("database", f"{engine.dialect.name} answered in {milliseconds:.1f} ms")


def _unusable(error: SQLAlchemyError | OSError) -> Finding:
    message = without_secrets(printable(errors.cause_of(error), limit=300))
    default = "check that it runs and that database_url is right (usher config show prints its origin)"
    return problem("database", message, errors.remedy_of(error) or default)


def check_permissions(url: str, check: str) -> Findings:
    """Warns if other users of the machine can read or change a SQLite database. It contains unencrypted URLs."""
    with suppress(DatabaseUrlError):
        file = sqlite_file(url)
        if file is None:
            return
        files = [file, *(Path(f"{file}{ending}") for ending in ("-wal", "-shm", "-journal"))]
        if exposed := " ".join(str(path) for path in files if _others_may_access(path)):
            yield warning(check, f"every user of this machine can read or change {exposed}", f"chmod 600 {exposed}")


def _others_may_access(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o006)
    except OSError:
        return False


def _check_file(file: Path) -> Finding | None:
    """Whether this user can write to a SQLite file that can be read. None if there is no problem."""
    if not errors.is_writable_database(file):
        advice = "give this user the right to write to the file and to the directory that it is in"
        return problem("database", f"{file} {errors.READ_ONLY}", advice)
    return check_space("database", file)


def check_space(check: str, path: Path) -> Finding | None:
    """Warns if there is little free space. None if there is enough."""
    free = errors.free_bytes(path)
    if free < _MIN_FREE_BYTES:
        return problem(check, f"the disk is full where {path} is", "free some space")
    if free < _FREE_BYTES:
        return warning(check, f"{free // 1024**2:,} MB are left where {path} is", "free some space")
    return None


def _check_missing_file(file: Path) -> Finding:
    missing = f"there is no {file} yet"
    existing = next(path for path in file.parents if path.exists())
    if not existing.is_dir() or not errors.is_writable(existing):
        advice = "give this user the right to write there, or fix database_url"
        return problem("database", f"{missing}, and it cannot be created in {existing}", advice)
    if existing != file.parent and file.is_absolute():
        advice = "fix database_url, or create the directory for a new database"
        return problem("database", f"{missing}: there is no directory {file.parent}", advice)
    advice = "usher directory refresh creates it. If it should exist, check database_url and the working directory"
    return warning("database", missing, advice)


def _check_rights(connection: Connection) -> Findings:
    """Reports tables that the role may not change, such as those that an upgrade by another role created."""
    tables = [printable(str(name), limit=80) for name in connection.execute(_TABLES_WITHOUT_RIGHTS).scalars()]
    if tables:
        names = ", ".join(tables[:3]) + (f" and {len(tables) - 3} more" if len(tables) > 3 else "")
        yield problem(
            "database",
            f"its role may not read and write all tables ({names})",
            "let database_url name the role that ran usher db upgrade, or GRANT ALL ON ALL TABLES and ON ALL SEQUENCES"
            " to this one",
        )


def _check_clock(connection: Connection) -> Finding | None:
    now = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    offset = abs((utc_now() - now).total_seconds())
    if offset > _MAX_CLOCK_OFFSET:
        return warning("database", f"its clock and this machine's are {offset:.0f} s apart", "let NTP set both")
    return None


def _check_schema(engine: Engine) -> Finding:
    try:
        state = state_of(engine, STORE_MIGRATIONS)
    except SchemaNewerError as error:
        return problem("schema", error.problem, error.advice)
    except ForeignDatabaseError as error:
        return problem("schema", str(error), "usher config show prints the origin of database_url")
    if state is SchemaState.OLDER and is_new(engine):
        return problem("schema", "the database is empty: it has none of Usher's tables yet", "run usher db upgrade")
    if state is SchemaState.OLDER:
        return problem("schema", "is older than this version", "stop the workers and run usher db upgrade")
    if state is SchemaState.NEWER:
        return warning("schema", "is newer than this version, which can still use it", "install the newer version")
    return ok("schema", "matches this version")
