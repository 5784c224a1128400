"""Creates the tables of a test quickly: creating them usually takes longer than the test.

Each process creates them once. A SQLite database gets a copy. In PostgreSQL their schema is renamed to ``public`` and
back, and emptied in between. Tables that a test has changed, or whose statistics cannot be reset, are dropped.
"""

import itertools
import sqlite3
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, MetaData, create_engine, text
from sqlalchemy.pool import StaticPool
from sqlalchemy.schema import SchemaItem

from app.foundation.database.engine import open_engine
from app.foundation.database.migrations import upgrade
from app.foundation.database.programs import Migrations, Program
from app.foundation.database.tables import ONLY_ON
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

# The planner assumes ten pages and no statistics for a new table. Otherwise the next test would have other plans. A
# table that was large stays slow after its rows are deleted.
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
    """Like ``metadata.create_all(engine)``."""
    if engine.dialect.name == "sqlite":
        _copy_to_sqlite(engine, metadata)
    else:
        _move_into_postgres(engine, metadata)


def make_migrated(engine: Engine, migrations: Migrations) -> None:
    """Like ``upgrade`` on a new database, for tests that are not about migrations."""
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
"""The rows that migrations insert, by database and name of the tables."""


def differences(engine: Engine, program: Program, metadata: MetaData) -> list[Any]:
    """How the tables of the database differ from those of the code, as Alembic compares them."""
    dialect = engine.dialect.name

    def is_included(item: SchemaItem, *_: object) -> bool:
        return bool(item.info.get(ONLY_ON, dialect) == dialect)

    options = {"version_table": program.version_table, "include_object": is_included}
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, metadata))


def copy_migrated(file: Path, migrations: Migrations) -> None:
    """Creates a migrated SQLite file."""
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
    """Empties the schema ``public`` of PostgreSQL, and keeps tables that can be used again."""
    if next(_cleared) % 50 == 0:
        # Each read of a directory creates sixty temporary tables. Without a vacuum, their dead rows in the catalogs
        # grow to a hundred megabytes, which slows down each such statement.
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
    """Resets the statistics of used tables if the user may. Returns whether all of them look new."""
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
    """Renames the schema with these tables to ``public``. Returns False if there is none."""
    with engine.begin() as connection:
        if not connection.scalar(text("SELECT to_regnamespace(:name) IS NOT NULL"), {"name": name}):
            return False
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text(f"ALTER SCHEMA {name} RENAME TO public"))
        return True


def _remember(engine: Engine, name: str) -> None:
    """Stores the shape of the created tables, and the name of their schema, in a comment."""
    with engine.begin() as connection:
        shape = connection.scalar(text(_SHAPE))
        connection.execute(text(f"COMMENT ON SCHEMA public IS '{name} {shape}'"))
