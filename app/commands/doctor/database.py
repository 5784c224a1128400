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
from app.foundation.database.engine import open_engine, reading
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
_SQLITE_HEADER = b"SQLite format 3\0"

_MISSING_PRIVILEGES = text(
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
        if file is not None:
            finding = _check_file(file)
            if finding is not None and (finding.state is State.PROBLEM or not file.exists()):
                return None, finding
        engine = open_engine(url, pool_size=1)
        started_at = time.monotonic()
        with reading(engine) as connection:
            connection.execute(text("SELECT 1"))
            milliseconds = (time.monotonic() - started_at) * 1000
            finding = _check_postgresql(connection) if file is None else _check_file(file)
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
    """Checks a SQLite file without opening the database. None if there is no problem."""
    if file.is_dir():
        return problem("database", f"{file} is a directory", "let database_url name a file, as in it")
    if not file.exists():
        return _check_missing_file(file)
    if not file.is_file():
        return problem("database", f"{file} is not a regular file", "let database_url name Usher's own file")
    try:
        with file.open("rb") as opened:
            header = opened.read(len(_SQLITE_HEADER))
    except OSError as error:
        return problem("database", f"{file} cannot be read: {error.strerror}", "give this user the right to read it")
    if header and header != _SQLITE_HEADER:
        advice = "let database_url name Usher's own file, or a new one"
        return problem("database", f"{file} is not a SQLite database", advice)
    if not errors.is_writable_database(file):
        if errors.is_on_read_only_disk(file):
            message = f"{file} {errors.READ_ONLY}{errors.ON_READ_ONLY_DISK}"
            return problem("database", message, errors.MOUNT_IT)
        return problem("database", f"{file} cannot be written to", "give this user the right to write there")
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
    if errors.is_on_read_only_disk(file):
        return problem("database", f"{missing}, and {errors.ON_READ_ONLY_DISK[2:]}", errors.MOUNT_IT)
    advice = "usher directory refresh creates it. If it should exist, check database_url and the working directory"
    if file.parent.is_dir():
        if errors.is_writable(file.parent):
            return warning("database", missing, advice)
        message = f"{missing}, and this user may not write to {file.parent}"
        return problem("database", message, "give the user the right to write there, or fix database_url")
    nearest = next(path for path in file.parents if path.exists())
    if not nearest.is_dir() or not errors.is_writable(nearest):
        why = "cannot be written to" if nearest.is_dir() else "is not a directory"
        message = f"there is no directory {file.parent}, and it cannot be created: {nearest} {why}"
        return problem("database", message, "create it for this user, or fix database_url")
    missing = f"there is no directory {file.parent}, and so no {file.name} in it"
    if file.is_absolute():
        return problem("database", missing, "fix database_url, or create the directory for a new database")
    # A new installation.
    return warning("database", f"{missing} yet", advice)


def _check_postgresql(connection: Connection) -> Finding | None:
    if connection.execute(text("SELECT pg_is_in_recovery()")).scalar():
        return problem("database", "is a read-only replica", "let database_url name the primary server")
    role = printable(str(connection.execute(text("SELECT current_user")).scalar_one()), limit=80)
    if connection.execute(text("SELECT current_schema()")).scalar() is None:
        message = f"the role {role} may use no schema of its search_path"
        return problem("database", message, "GRANT USAGE ON SCHEMA public to it, or let database_url name another role")
    default = text("SELECT reset_val FROM pg_settings WHERE name = 'default_transaction_read_only'")
    if connection.execute(default).scalar() == "on":
        advice = "ALTER ROLE (or DATABASE) … RESET default_transaction_read_only, or let database_url name another role"
        return problem("database", f"is read-only for the role {role}: default_transaction_read_only is on", advice)
    tables = [printable(str(name), limit=80) for name in connection.execute(_MISSING_PRIVILEGES).scalars()]
    if tables:
        names = ", ".join(tables[:3]) + (f" and {len(tables) - 3} more" if len(tables) > 3 else "")
        return problem(
            "database",
            f"the role {role} may not read and write all of its tables ({names})",
            "let database_url name the role that ran usher db upgrade, or GRANT ALL ON ALL TABLES and ON ALL"
            " SEQUENCES to this one",
        )
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
