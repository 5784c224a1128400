"""The check of the database: that it is there and of this version, and what it says about directory and runs."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from app.access.contents import SourceState, current_revision, oldest_good_read, source_states
from app.commands.bootstrap.databases import open_to_look
from app.commands.doctor.finding import Finding, Findings, State, ok, problem, warning
from app.foundation.clock import epoch_ms, from_epoch_ms, utc_now
from app.foundation.configuration.showing import without_password
from app.foundation.database import errors
from app.foundation.database.compatibility import SchemaState
from app.foundation.database.engine import DatabaseUrlError, DriverMissingError, is_sqlite, parse_url, reading
from app.foundation.database.migrations import is_new, state_of
from app.foundation.database.programs import ForeignDatabaseError, Migrations, SchemaNewerError
from app.foundation.text import are, counted, printable
from app.monitoring.notify.concerns import Cause, Concern
from app.monitoring.notify.outbox import message_counts
from app.settings import Settings
from app.sync.ledger.ledger import is_another_workspace
from app.sync.runs.status import last_began, waiting_runs

_FREE_BYTES = 1024**3
_QUEUED_FOR = 60_000
"""Milliseconds after which a run that nobody executes is reported."""
_CLOCK_OFF = 30.0
"""Seconds by which two clocks may differ without anybody noticing."""


def open_database(url: str) -> tuple[Engine | None, Finding]:
    """The engine of a database that answers, and what was found; makes no file that is not there."""
    try:
        parsed = parse_url(url)
    except DatabaseUrlError as error:
        return None, problem("database", str(error), "mend database_url")
    if parsed.get_backend_name() == "sqlite":
        found = look_at_file(str(parsed.database))
        if found is not None and (found.state is State.PROBLEM or not Path(str(parsed.database)).exists()):
            return None, found
    try:
        engine = open_to_look(url)
        began = time.monotonic()
        with reading(engine) as connection:
            connection.execute(text("SELECT 1"))
            took = (time.monotonic() - began) * 1000
            finding = look_at_file(str(parsed.database)) if is_sqlite(engine) else _postgresql(connection)
    except DriverMissingError as error:
        return None, problem("database", str(error), "install it, or let database_url name a SQLite file")
    except (SQLAlchemyError, OSError) as error:
        return None, unusable(error)
    return engine, finding or ok("database", f"{engine.dialect.name} answered in {took:.1f} ms")


def unusable(error: SQLAlchemyError | OSError) -> Finding:
    """What is found when the database does not do what is asked of it."""
    says, advice = errors.cause_of(error), errors.remedy_of(error)
    otherwise = "see that it runs and that database_url is right (usher config show tells where it comes from)"
    return problem("database", without_password(printable(says, limit=300)), advice or otherwise)


def look_at_permissions(url: str, check: str) -> Findings:
    """Warns if other users of the machine can read or change a SQLite database. It holds URLs in clear."""
    with suppress(DatabaseUrlError):
        parsed = parse_url(url)
        if parsed.get_backend_name() != "sqlite":
            return
        path = Path(str(parsed.database))
        if open_files := [one for one in (path, *_beside(path)) if _others_may(one)]:
            names = " ".join(map(str, open_files))
            yield warning(check, f"every user of this machine can read or change {names}", f"chmod 600 {names}")


def _beside(path: Path) -> list[Path]:
    """The files that SQLite keeps beside the database."""
    return [Path(f"{path}{ending}") for ending in ("-wal", "-shm", "-journal")]


def _others_may(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o006)
    except OSError:
        return False


def look_at_file(file: str) -> Finding | None:
    """What can be seen of a SQLite database from outside; None when all is well. Opens and makes nothing."""
    path = Path(file)
    if path.is_dir():
        return problem("database", f"{file} is a directory", "let database_url name a file, as in it")
    if not path.exists():
        return _missing_file(path)
    if not path.is_file():
        return problem("database", f"{file} is not a regular file", "let database_url name Usher's own file")
    try:
        with path.open("rb") as opened:
            head = opened.read(len(_SQLITE))
    except OSError as error:
        return problem("database", f"{file} cannot be read: {error.strerror}", "give this user the right to read it")
    if head and head != _SQLITE:
        return problem(
            "database",
            f"{file} is not a SQLite database",
            "let database_url name Usher's own file, or one not there yet",
        )
    if not _is_writable(path) or not _is_writable(path.parent):
        return _unwritable(path)
    free = errors.room_left(path)
    if free < _ROOM_FOR_ANYTHING:
        return problem("database", f"the disk is full where {file} is", "make room there")
    if free < _FREE_BYTES:
        return warning("database", f"{free // 1024**2:,} MB are left where {file} is", "make room there")
    return None


_SQLITE = b"SQLite format 3\0"
_ROOM_FOR_ANYTHING = 1024**2


def _unwritable(path: Path) -> Finding:
    if errors.is_on_read_only_disk(path):
        return problem("database", f"{path} {errors.READ_ONLY}{errors.ON_READ_ONLY_DISK}", errors.MOUNT_IT)
    return problem("database", f"{path} cannot be written to", "give this user the right to write there")


def _missing_file(path: Path) -> Finding:
    if errors.is_on_read_only_disk(path):
        says = f"there is no {path} yet, and none can be made{errors.ON_READ_ONLY_DISK}"
        return problem("database", says, errors.MOUNT_IT)
    advice = "usher directory refresh makes it; if it should be there, database_url or the working directory is wrong"
    if path.parent.is_dir():
        if not _is_writable(path.parent):
            says = f"there is no {path} yet, and this user may not write to {path.parent}"
            return problem("database", says, "give it the right to, or mend database_url")
        return warning("database", f"there is no {path} yet", advice)
    nearest = next(one for one in path.parents if one.exists())
    if not nearest.is_dir() or not _is_writable(nearest):
        why = "is no directory" if not nearest.is_dir() else "cannot be written to"
        says = f"there is no directory {path.parent}, and none can be made: {nearest} {why}"
        return problem("database", says, "make it for this user, or mend database_url")
    says = f"there is no directory {path.parent}, and so no {path.name} in it"
    if path.is_absolute():
        return problem("database", says, "mend database_url, or make the directory if a new database is meant")
    # A new installation's own folder.
    return warning("database", f"{says} yet", advice)


def _is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and not os.statvfs(path).f_flag & os.ST_RDONLY


_MAY_NOT = text(
    "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND NOT"
    " (has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE')"
    " AND has_table_privilege(oid, 'DELETE')) ORDER BY 1"
)


def _postgresql(connection: Connection) -> Finding | None:
    if connection.execute(text("SELECT pg_is_in_recovery()")).scalar():
        return problem("database", "is a replica that can only be read", "let database_url name the primary server")
    role = printable(str(connection.execute(text("SELECT current_user")).scalar_one()), limit=80)
    if connection.execute(text("SELECT current_schema()")).scalar() is None:
        says = f"the role {role} may use no schema that its search_path names"
        return problem("database", says, "GRANT USAGE ON SCHEMA public to it, or let database_url name another role")
    default = text("SELECT reset_val FROM pg_settings WHERE name = 'default_transaction_read_only'")
    if connection.execute(default).scalar() == "on":
        return problem(
            "database",
            f"can only be read as the role {role}: default_transaction_read_only is on",
            "ALTER ROLE (or DATABASE) … RESET default_transaction_read_only, or let database_url name another role",
        )
    closed = [printable(str(name), limit=80) for name in connection.execute(_MAY_NOT).scalars()]
    if closed:
        named = ", ".join(closed[:3]) + (f" and {len(closed) - 3} more" if len(closed) > 3 else "")
        return problem(
            "database",
            f"the role {role} may not read and write all of its tables ({named})",
            "let database_url name the role that ran usher db upgrade, or GRANT ALL ON ALL TABLES and ON ALL"
            " SEQUENCES to this one",
        )
    now = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    off = abs((utc_now() - now).total_seconds())
    if off > _CLOCK_OFF:
        return warning("database", f"its clock and this machine's are {off:.0f} s apart", "let NTP set both")
    return None


def look_at_schema(engine: Engine, migrations: Migrations) -> Finding:
    """Whether the schema is that of this version."""
    try:
        state = state_of(engine, migrations)
    except SchemaNewerError as error:
        says, _, advice = str(error).partition(": ")
        return problem("schema", says, advice)
    except ForeignDatabaseError as error:
        return problem("schema", str(error), "usher config show tells where database_url comes from")
    if state is SchemaState.OLDER and is_new(engine):
        return problem("schema", "the database is empty: it has none of Usher's tables yet", "run usher db upgrade")
    if state is SchemaState.OLDER:
        return problem("schema", "is older than this version", "stop the workers and run usher db upgrade")
    if state is SchemaState.NEWER:
        return warning("schema", "is newer than this version, which can still use it", "install the newer version")
    return ok("schema", "is that of this version")


def look_at_directory(connection: Connection, now: datetime, max_age: float) -> Findings:
    """How old what decisions are made from is."""
    revision = current_revision(connection)
    read_at = oldest_good_read(source_states(connection))
    if revision == 0 or read_at is None:
        yield problem("access model", "the directory was never read: every answer is no", "run usher directory refresh")
        return
    age = max(0.0, now.timestamp() - read_at / 1000)
    says = f"revision {revision}, read {lasting(age)} ago"
    if max_age and age > max_age:
        yield problem(
            "access model", f"{says}; directory.max_age allows {lasting(max_age)}", "run usher directory check"
        )
    else:
        yield ok("access model", says)


def look_at_ledger(connection: Connection, settings: Settings) -> Findings:
    """Warns if the credentials are those of another workspace than the last run's."""
    api_key = settings.backend.api_key.get_secret_value()
    if api_key and is_another_workspace(connection, settings.backend.base_url, api_key):
        yield warning(
            "ledger",
            "backend.api_key is another one than that of the last run: perhaps that of another workspace",
            "restore the key if it is not meant; otherwise usher plan shows what the first sync would do there",
        )


def look_at_runs(connection: Connection, found: Sequence[Concern], now: datetime) -> Findings:
    """Whether runs begin, and how the last one ended."""
    for concern in found:
        # Sources are looked at as they are now, not as they were at the last run.
        if concern.cause is Cause.HELD:
            yield warning("runs", concern.says, concern.advice)
        elif concern.cause in {Cause.FAILED, Cause.MISSED}:
            yield problem("runs", concern.says, _advice(concern))
        elif concern.cause in {Cause.FAILING, Cause.PARKED}:
            yield warning("items", concern.says, concern.advice)
        elif concern.cause is Cause.WORKER:
            yield problem("worker", concern.says, concern.advice)
        elif concern.cause in {Cause.AMBIGUOUS, Cause.DISABLING}:
            yield warning("directory", concern.says, concern.advice)
    waiting, since = waiting_runs(connection)
    if since is not None and epoch_ms(now) - since > _QUEUED_FOR:
        says = f"{counted(waiting, 'run')} {are(waiting)} queued"
        first = f"the first since {from_epoch_ms(since):%Y-%m-%d %H:%M} UTC"
        yield warning("runs", f"{says}, {first}, and none is executed", "start usher worker, or run usher sync")
    began = last_began(connection)
    if began is None:
        yield warning("runs", "there was none yet", "run usher sync, or let usher worker run")
    elif not any(concern.cause in {Cause.HELD, Cause.FAILED, Cause.MISSED} for concern in found):
        yield ok("runs", f"the last one began at {from_epoch_ms(began):%Y-%m-%d %H:%M} UTC")
    given_up = message_counts(connection)["given_up"]
    if given_up:
        yield warning(
            "notifications", f"{given_up} could not be delivered and were given up", "see the worker's log for why"
        )


def kept_records(connection: Connection) -> dict[str, SourceState]:
    """What is in force of each source, by its name."""
    return {state.name: state for state in source_states(connection, by_kind=True)}


def lasting(seconds: float) -> str:
    """So many seconds, as people say it."""
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {word}" if count == 1 else f"{count} {word}s"
    return f"{int(seconds)} s"


def _advice(concern: Concern) -> str:
    if concern.cause is Cause.FAILED:
        return f"mend what it names, then usher sync; usher runs {concern.run_id} has more"
    return concern.advice
