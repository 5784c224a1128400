"""The part of ``migrations.py`` that needs Alembic: it creates new databases, and applies revisions to others."""

import io
from collections.abc import Callable

from alembic import command, context
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, delete, insert, inspect
from sqlalchemy.exc import DBAPIError

from app.foundation.database.engine import is_sqlite, writing
from app.foundation.database.errors import cause_of, contradicts_schema
from app.foundation.database.programs import (
    COMPATIBILITY,
    COMPATIBILITY_TABLE,
    SHARED_VERSION_TABLE,
    Migrations,
    SchemaUnknownError,
    has_shared_version_table,
    other_software,
    revision_in,
)

_UPGRADE_LOCK = 0x75736865725F7570
"""The key of PostgreSQL's advisory lock for upgrades: an arbitrary constant ("usher_up")."""


def upgrade(engine: Engine, migrations: Migrations, on_change: Callable[[Connection], None] | None) -> None:
    """Creates the tables of a new database, or applies the pending revisions. As ``migrations.upgrade``."""
    with writing(engine) as connection:
        if not is_sqlite(connection):
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (_UPGRADE_LOCK,))
        # Checked under the lock: another process may have done it.
        if has_shared_version_table(connection, migrations.program):
            table = migrations.program.version_table
            connection.exec_driver_sql(f"ALTER TABLE {SHARED_VERSION_TABLE} RENAME TO {table}")
            # SQLite cannot rename a constraint, and ignores its name: two tables may have constraints of one name.
            if not is_sqlite(connection):
                key = f"{SHARED_VERSION_TABLE}_pkc TO {table}_pkc"
                connection.exec_driver_sql(f"ALTER TABLE {table} RENAME CONSTRAINT {key}")
        before = revision_in(connection, migrations.program.version_table)
        tables = set(inspect(connection).get_table_names()) - {SHARED_VERSION_TABLE}
        # A database of PostgreSQL may be shared.
        if before is None and is_sqlite(connection) and tables and tables.isdisjoint(migrations.metadata().tables):
            raise other_software(migrations.program)
        config = _config(migrations, connection)
        try:
            if before is None:
                # Not only the missing tables: some of them without a revision are another database's, or damaged.
                migrations.metadata().create_all(connection, checkfirst=False)
                command.stamp(config, "head")
            else:
                command.upgrade(config, "head")
        except DBAPIError as error:
            if not contradicts_schema(error):
                raise
            revision = "have no revision" if before is None else f"do not match its revision {before}"
            raise SchemaUnknownError(
                f"the tables of the database {revision} ({cause_of(error)}): it was"
                " changed by hand, partly restored, or created before 1.0.0; restore a complete backup, or use a new"
                f" one ({migrations.program.setting})"
            ) from error
        _store_compatibility(connection, migrations)
        if on_change is not None and before != revision_in(connection, migrations.program.version_table):
            on_change(connection)


def _store_compatibility(connection: Connection, migrations: Migrations) -> None:
    """Stores the oldest revision whose software can use the database: the newest ``oldest_compatible`` of all
    revisions. A revision without one is compatible only with itself."""
    if not inspect(connection).has_table(COMPATIBILITY_TABLE):
        return
    scripts = ScriptDirectory(str(migrations.folder)).walk_revisions()
    compatible = {getattr(script.module, "oldest_compatible", script.revision) for script in scripts}
    connection.execute(delete(COMPATIBILITY))
    connection.execute(insert(COMPATIBILITY).values(oldest_revision=max(compatible)))


def run_environment() -> None:
    """The content of an ``env.py``: runs the migrations on the connection of ``upgrade``."""
    attributes = context.config.attributes
    context.configure(connection=attributes["connection"], version_table=attributes["version_table"])
    context.run_migrations()


def _config(migrations: Migrations, connection: Connection) -> Config:
    # Alembic would print its progress to standard output, which is for results.
    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(migrations.folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes.update(connection=connection, version_table=migrations.program.version_table)
    return config
