"""The contents of a database, kept for as long as the process lives, and given to databases of other tests.

What many tests begin with is made once, by the same calls, and copied from then on. SQLite copies its pages; PostgreSQL
keeps the rows in a schema beside ``public``, in the database that the tests of a process share.
"""

import itertools
import sqlite3
from typing import Protocol, cast

from sqlalchemy import Engine, text

from app.foundation.database.engine import is_sqlite

_numbers = itertools.count(1)

_KEEP = """
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

_GIVE = """
DO $$ DECLARE one text; BEGIN
    SET LOCAL session_replication_role = replica;  -- whatever refers to what
    FOR one IN SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' AND tablename <> 'sequences of public' LOOP
        EXECUTE format('INSERT INTO public.%I OVERRIDING SYSTEM VALUE SELECT * FROM {schema}.%I', one, one);
    END LOOP;
    PERFORM setval(format('public.%I', sequencename)::regclass, last_value) FROM {schema}."sequences of public";
END $$
"""


class KeptContents(Protocol):
    """The rows of a database at the moment when they were kept."""

    def give(self, engine: Engine) -> None:
        """Fills the same tables of another database, which are empty."""


def keep_contents(engine: Engine) -> KeptContents:
    """All that is in a database now."""
    return _KeptPages(engine) if is_sqlite(engine) else _KeptRows(engine)


class _KeptPages:
    def __init__(self, engine: Engine) -> None:
        self._pages = sqlite3.connect(":memory:", check_same_thread=False)
        with engine.connect() as connection:
            cast("sqlite3.Connection", connection.connection.driver_connection).backup(self._pages)

    def give(self, engine: Engine) -> None:
        with engine.connect() as connection:
            self._pages.backup(cast("sqlite3.Connection", connection.connection.driver_connection))


class _KeptRows:
    def __init__(self, engine: Engine) -> None:
        self._schema = f"kept_{next(_numbers)}"
        self._run(engine, _KEEP)

    def give(self, engine: Engine) -> None:
        self._run(engine, _GIVE)

    def _run(self, engine: Engine, block: str) -> None:
        with engine.begin() as connection:
            connection.execute(text(block.replace("{schema}", self._schema).replace(":", r"\:")))


class KeptInPlace:
    """The rows of a SQLite database, to be put back after tests have changed them: its connections, their statements
    and temporary tables outlive that, unlike a copy of the file."""

    def __init__(self, engine: Engine) -> None:
        with engine.connect() as connection:
            driver = cast("sqlite3.Connection", connection.connection.driver_connection)
            self._tables = [name for (name,) in driver.execute(_TABLES)]
            rows = {name: driver.execute(f"SELECT * FROM {name}").fetchall() for name in self._tables}
        self._rows = {name: kept for name, kept in rows.items() if kept}

    def put_back(self, engine: Engine) -> None:
        """Makes the database that these rows are from hold them, and no others."""
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
