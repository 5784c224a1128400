"""Copies of database contents that tests reuse as their initial state.

The state is created once per process with real calls, and then copied. SQLite copies its pages; PostgreSQL keeps the
rows in a separate schema of the database that the tests of a process share.
"""

import itertools
import sqlite3
from typing import Protocol, cast

from sqlalchemy import Engine, text

from app.foundation.database.engine import is_sqlite

_numbers = itertools.count(1)

_COPY = """
DO $$ DECLARE one text; is_empty boolean; BEGIN
    CREATE SCHEMA {schema};
    FOR one IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
        EXECUTE format('SELECT NOT EXISTS (SELECT FROM public.%I)', one) INTO is_empty;
        IF NOT is_empty THEN
            EXECUTE format('CREATE TABLE {schema}.%I AS SELECT * FROM public.%I', one, one);
        END IF;
    END LOOP;
    CREATE TABLE {schema}."sequences of public" AS
        SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL;
END $$
"""

_RESTORE = """
DO $$ DECLARE one text; BEGIN
    SET LOCAL session_replication_role = replica;  -- ignores foreign keys
    FOR one IN SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' AND tablename <> 'sequences of public' LOOP
        EXECUTE format('INSERT INTO public.%I OVERRIDING SYSTEM VALUE SELECT * FROM {schema}.%I', one, one);
    END LOOP;
    PERFORM setval(format('public.%I', sequencename)::regclass, last_value) FROM {schema}."sequences of public";
END $$
"""


class DatabaseCopy(Protocol):
    """The rows of a database at the time of the copy."""

    def restore_to(self, engine: Engine) -> None:
        """Inserts the rows into the empty tables of another database."""


def copy_database(engine: Engine) -> DatabaseCopy:
    """Copies all rows of a database."""
    return _Pages(engine) if is_sqlite(engine) else _Rows(engine)


class _Pages:
    def __init__(self, engine: Engine) -> None:
        self._pages = sqlite3.connect(":memory:", check_same_thread=False)
        with engine.connect() as connection:
            cast("sqlite3.Connection", connection.connection.driver_connection).backup(self._pages)

    def restore_to(self, engine: Engine) -> None:
        with engine.connect() as connection:
            self._pages.backup(cast("sqlite3.Connection", connection.connection.driver_connection))


class _Rows:
    def __init__(self, engine: Engine) -> None:
        self._schema = f"copy_{next(_numbers)}"
        self._run(engine, _COPY)

    def restore_to(self, engine: Engine) -> None:
        self._run(engine, _RESTORE)

    def _run(self, engine: Engine, block: str) -> None:
        with engine.begin() as connection:
            connection.execute(text(block.replace("{schema}", self._schema).replace(":", r"\:")))


class InPlaceCopy:
    """The rows of a SQLite database, restored after tests have changed them. Unlike a copy of the file, this keeps the
    connections with their statements and temporary tables."""

    def __init__(self, engine: Engine) -> None:
        with engine.connect() as connection:
            driver = cast("sqlite3.Connection", connection.connection.driver_connection)
            self._tables = [name for (name,) in driver.execute(_TABLES)]
            rows = {name: driver.execute(f"SELECT * FROM {name}").fetchall() for name in self._tables}
        self._rows = {name: content for name, content in rows.items() if content}

    def restore(self, engine: Engine) -> None:
        """Restores the rows in their own database."""
        with engine.connect() as connection:
            driver = cast("sqlite3.Connection", connection.connection.driver_connection)
            driver.execute("BEGIN IMMEDIATE")
            for name in self._tables:
                driver.execute(f"DELETE FROM {name}")
            for name, rows in self._rows.items():
                marks = ", ".join("?" for _ in rows[0])
                driver.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
            driver.execute("COMMIT")


_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_stat%' ORDER BY name"
