"""Tables for a test, quickly: making them takes longer than most tests do.

They are made once in each process. A SQLite database gets a copy of them; in PostgreSQL they move in and out with the
schema that holds them, emptied in between. Those that a test has changed, or that cannot be made to look new to the
planner again, are thrown away.
"""

import itertools
import sqlite3
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import cast

from sqlalchemy import Connection, Engine, MetaData, create_engine, text
from sqlalchemy.pool import StaticPool

from app.foundation.database.engine import open_engine
from app.foundation.database.migrations import upgrade
from app.foundation.database.programs import Migrations
from app.foundation.files import make_file
from tests.worlds.database_copies import DatabaseCopy, copy_database

_SHAPE = """
SELECT md5(string_agg(part, ',' ORDER BY part)) FROM (
    SELECT concat_ws(' ', c.relname, c.relkind, a.attname, a.atttypid, a.attnotnull)
    FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    WHERE c.relnamespace = 'public'::regnamespace
    UNION ALL SELECT tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = 'public'::regnamespace
    UNION ALL SELECT conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
) AS parts (part)
"""

# To the planner a new table has ten pages and no statistics. With what differs from that the next test would have other
# plans, and a table that was large stays large, and slow, when its rows are gone.
_LARGE = """
SELECT string_agg(format('%I', relname), ', ') FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
AND pg_relation_size(oid) > 10 * current_setting('block_size')::int
"""

_ANALYZED = """
SELECT EXISTS (SELECT 1 FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND reltuples >= 0)
"""

_IS_SUPERUSER = "SELECT current_setting('is_superuser')::boolean"

_FORGET_STATISTICS = """
DELETE FROM pg_statistic WHERE starelid IN (
    SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace);
UPDATE pg_class SET reltuples = -1, relpages = 0, relallvisible = 0
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND reltuples >= 0;
UPDATE pg_class SET reltuples = 0, relpages = 1
WHERE relnamespace = 'public'::regnamespace AND relkind = 'i' AND (reltuples <> 0 OR relpages <> 1)
"""

_DELETE_ALL = """
DO $$ DECLARE one text; BEGIN
    SET LOCAL session_replication_role = replica;  -- whatever refers to what
    FOR one IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = 'public' LOOP
        EXECUTE 'DELETE FROM ' || one;
    END LOOP;
    PERFORM setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
    FROM pg_sequences WHERE schemaname = 'public';
END $$
"""


def make_tables(engine: Engine, metadata: MetaData) -> None:
    """As ``metadata.create_all(engine)``."""
    if engine.dialect.name == "sqlite":
        _copy_to_sqlite(engine, metadata)
    else:
        _move_into_postgres(engine, metadata)


def make_migrated(engine: Engine, migrations: Migrations) -> None:
    """As ``upgrade`` on a new database, for tests that are not about how its tables come to be."""
    if engine.dialect.name == "sqlite":
        copy_migrated(Path(str(engine.url.database)), migrations)
        return
    name = "made_by_" + migrations.program.version_table
    key = str(engine.url.database), name
    if _moved_into_postgres(engine, name):
        _MIGRATED[key].restore_to(engine)
        return
    upgrade(engine, migrations)
    _remember(engine, name)
    _MIGRATED[key] = copy_database(engine)


_MIGRATED: dict[tuple[str, str], DatabaseCopy] = {}
"""What migrations write into a new PostgreSQL database, by its name and that of its tables."""


def copy_migrated(file: Path, migrations: Migrations) -> None:
    """The same as a new SQLite file."""
    make_file(file)
    file.write_bytes(_migrated(migrations))


@cache
def _migrated(migrations: Migrations) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "new.db"
        engine = open_engine(f"sqlite:///{file}")
        upgrade(engine, migrations)
        engine.dispose()
        return file.read_bytes()


_cleared = itertools.count(1)

_VACUUM = "VACUUM pg_attribute, pg_class, pg_depend, pg_index, pg_type"


def clear_public_schema(connection: Connection) -> None:
    """Leaves nothing in PostgreSQL's schema ``public``, and puts tables aside that can be used again."""
    if next(_cleared) % 50 == 0:
        # Each read of a directory makes sixty temporary tables. What is left of them in the catalogs, which are read
        # here and by every statement that makes one, comes to a hundred megabytes where nothing vacuums meanwhile.
        connection.execute(text(_VACUUM))
    comment = connection.scalar(text("SELECT obj_description('public'::regnamespace, 'pg_namespace')"))
    name, _, shape = str(comment or "").partition(" ")
    is_as_made = name.startswith("made_") and connection.scalar(text(_SHAPE)) == shape and _look_new(connection)
    if is_as_made:
        connection.execute(text(_DELETE_ALL))
        connection.execute(text(f"ALTER SCHEMA public RENAME TO {name}"))
    else:
        connection.execute(text("DROP SCHEMA public CASCADE"))
    connection.execute(text("CREATE SCHEMA public"))


def _look_new(connection: Connection) -> bool:
    """Makes tables that were used look new to the planner again, where the user may; whether all of them do."""
    large = connection.scalar(text(_LARGE))
    if not large and not connection.scalar(text(_ANALYZED)):
        return True
    if not connection.scalar(text(_IS_SUPERUSER)):
        return False
    if large:
        connection.execute(text(f"TRUNCATE {large} CASCADE"))
    connection.execute(text(_FORGET_STATISTICS))
    return True


def _copy_to_sqlite(engine: Engine, metadata: MetaData) -> None:
    with engine.connect() as connection:
        is_empty = connection.scalar(text("SELECT count(*) FROM sqlite_master")) == 0
        connection.rollback()
        if is_empty:
            _in_memory(metadata).backup(cast("sqlite3.Connection", connection.connection.driver_connection))
            return
    metadata.create_all(engine)


@cache
def _in_memory(metadata: MetaData) -> sqlite3.Connection:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    metadata.create_all(engine)
    return cast("sqlite3.Connection", engine.raw_connection().driver_connection)


def _move_into_postgres(engine: Engine, metadata: MetaData) -> None:
    name = "made_" + sha256(" ".join(metadata.tables).encode()).hexdigest()[:16]
    with engine.connect() as connection:
        is_empty = _is_empty(connection)
    if is_empty and _moved_into_postgres(engine, name):
        return
    metadata.create_all(engine)
    if is_empty:
        _remember(engine, name)


def _is_empty(connection: Connection) -> bool:
    return bool(connection.scalar(text("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")) == 0)


def _moved_into_postgres(engine: Engine, name: str) -> bool:
    """Whether there are tables of that name, which are in the place of an empty schema now."""
    with engine.begin() as connection:
        if not connection.scalar(text("SELECT to_regnamespace(:name) IS NOT NULL"), {"name": name}):
            return False
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text(f"ALTER SCHEMA {name} RENAME TO public"))
        return True


def _remember(engine: Engine, name: str) -> None:
    """Says of the tables that were made how they look, and what they will be called when they move out."""
    with engine.begin() as connection:
        shape = connection.scalar(text(_SHAPE))
        connection.execute(text(f"COMMENT ON SCHEMA public IS '{name} {shape}'"))
