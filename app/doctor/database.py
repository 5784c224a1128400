"""Is the database there, of this version, and what does it say about the directory and the runs?"""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from app.configuration.showing import without_password
from app.database.engine import DatabaseUrlError, is_sqlite, open_engine, parse_url, reading
from app.database.migrations import SchemaNewerError, pending
from app.doctor.finding import Finding, Findings, ok, problem, warning
from app.notify.concerns import Cause, Concern
from app.store.access_model import SourceState, current_revision, oldest_good_read, source_states
from app.store.notifications import message_counts
from app.store.standing import last_began
from app.text import printable

Clock = Callable[[], datetime]

_FREE_BYTES = 1024**3
_CLOCK_OFF = 30.0
"""Seconds by which two clocks may differ without anybody noticing."""


def open_database(url: str) -> tuple[Engine | None, Finding]:
    """The engine of a database that answers, and what was found; makes no file that is not there."""
    try:
        parsed = parse_url(url)
    except DatabaseUrlError as error:
        return None, problem("database", str(error), "mend database_url")
    if parsed.get_backend_name() == "sqlite" and not Path(str(parsed.database)).exists():
        advice = (
            "usher directory refresh makes it; if it should be there, database_url or the working directory is wrong"
        )
        return None, warning("database", f"there is no {parsed.database} yet", advice)
    try:
        engine = open_engine(url, pool_size=1)
        began = time.monotonic()
        with reading(engine) as connection:
            connection.execute(text("SELECT 1"))
            took = (time.monotonic() - began) * 1000
            finding = _sqlite(parsed.database or "") if is_sqlite(engine) else _postgresql(connection)
    except DatabaseUrlError as error:
        return None, problem("database", str(error), "install what is missing, or mend database_url")
    except (SQLAlchemyError, OSError) as error:
        advice = "see that it runs and that database_url is right (usher config show tells where it comes from)"
        return None, problem("database", cause_of(error), advice)
    return engine, finding or ok("database", f"{engine.dialect.name} answered in {took:.1f} ms")


def cause_of(error: Exception) -> str:
    """The first line of what a driver says, without passwords."""
    lines = str(error.orig).strip().splitlines() if isinstance(error, DBAPIError) else str(error).splitlines()
    return without_password(printable(lines[0] if lines else type(error).__name__, limit=300))


def _sqlite(file: str) -> Finding | None:
    place = Path(file)
    if not os.access(place, os.W_OK) or not os.access(place.parent, os.W_OK):
        return problem("database", f"{file} cannot be written to", "give this user the right to write there")
    free = shutil.disk_usage(place.parent).free
    if free < _FREE_BYTES:
        return warning("database", f"{free // 1024**2:,} MB are left where {file} is", "make room there")
    return None


def _postgresql(connection: Connection) -> Finding | None:
    if connection.execute(text("SELECT pg_is_in_recovery()")).scalar():
        return problem("database", "is a replica that can only be read", "let database_url name the primary server")
    now = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    off = abs((datetime.now(UTC) - now).total_seconds())
    if off > _CLOCK_OFF:
        return warning("database", f"its clock and this machine's are {off:.0f} s apart", "let NTP set both")
    return None


def look_at_schema(engine: Engine, migrations: Path) -> Finding:
    """Whether the schema is that of this version."""
    try:
        behind = pending(engine, migrations)
    except SchemaNewerError as error:
        return problem("schema", str(error), "install the version of Usher that runs elsewhere")
    if behind:
        return problem("schema", "is older than this version", "stop everything and run usher db upgrade")
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
            "access model", f"{says}; directory.max_age allows {lasting(max_age)}", "see what the sources say"
        )
    else:
        yield ok("access model", says)


def look_at_runs(connection: Connection, found: Sequence[Concern]) -> Findings:
    """Whether runs begin, and how the last one ended."""
    for concern in found:
        # Sources are looked at as they are now, not as they were at the last run.
        if concern.cause is Cause.HELD:
            yield warning("runs", concern.says, concern.advice)
        elif concern.cause in {Cause.FAILED, Cause.MISSED}:
            yield problem("runs", concern.says, _advice(concern))
    began = last_began(connection)
    if began is None:
        yield warning("runs", "there was none yet", "run usher sync, or let usher worker run")
    elif all(concern.cause is Cause.SOURCE for concern in found):
        yield ok("runs", f"the last one began at {datetime.fromtimestamp(began / 1000, UTC):%Y-%m-%d %H:%M} UTC")
    given_up = message_counts(connection)["given_up"]
    if given_up:
        yield warning(
            "notifications", f"{given_up} could not be delivered and were given up", "see the worker's log for why"
        )


def kept_records(connection: Connection) -> dict[str, SourceState]:
    """What is in force of each source, by its name."""
    return {state.name: state for state in source_states(connection)}


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
