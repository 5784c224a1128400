"""The part of ``migrations.py`` that needs Alembic: databases that lack a revision, are newer, or are not Usher's."""

import io
from collections.abc import Callable

from alembic import command, context
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, delete, insert, inspect, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import SchemaItem

from app.foundation.database.engine import is_sqlite, reading, writing
from app.foundation.database.errors import cause_of, contradicts_schema
from app.foundation.database.programs import (
    COMPATIBILITY,
    COMPATIBILITY_TABLE,
    SHARED_VERSION_TABLE,
    ForeignDatabaseError,
    Migrations,
    Program,
    SchemaNewerError,
    SchemaState,
    SchemaUnknownError,
    oldest_compatible,
    owner_of,
)
from app.foundation.database.tables import ONLY_ON

_UPGRADE_LOCK = 0x75736865725F7570
"""The key of PostgreSQL's advisory lock for upgrades: an arbitrary constant ("usher_up")."""


def context_of(connection: Connection, program: Program) -> MigrationContext:
    """Alembic's context of a program's database."""
    dialect = connection.dialect.name

    def is_included(item: SchemaItem, *_: object) -> bool:
        return str(item.info.get(ONLY_ON, dialect)) == dialect

    options = {"version_table": program.version_table, "include_object": is_included}
    return MigrationContext.configure(connection, opts=options)


def state_of(engine: Engine, migrations: Migrations) -> SchemaState:
    """Compares the revisions with Alembic. Raises ``SchemaNewerError`` if a newer schema is not compatible."""
    scripts = ScriptDirectory(str(migrations.folder))
    with reading(engine) as connection:
        if _has_shared_version_table(connection, migrations.program):
            # The table is not read: a concurrent upgrade may drop it.
            return SchemaState.OLDER
        revisions = set(context_of(connection, migrations.program).get_current_heads())
        known = {script.revision for script in scripts.walk_revisions()}
        if revisions - known:
            if oldest_compatible(connection) not in known:
                raise SchemaNewerError
            return SchemaState.NEWER
    return SchemaState.CURRENT if revisions == set(scripts.get_heads()) else SchemaState.OLDER


def upgrade(engine: Engine, migrations: Migrations, on_change: Callable[[Connection], None] | None) -> None:
    """Applies the pending revisions. As ``migrations.upgrade``."""
    with writing(engine) as connection:
        if not is_sqlite(connection):
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (_UPGRADE_LOCK,))
        # Checked under the lock: another process may have done it.
        if _has_shared_version_table(connection, migrations.program):
            _move_to_own_version_table(connection, migrations.program)
        before = context_of(connection, migrations.program).get_current_heads()
        try:
            command.upgrade(_config(migrations, connection), "head")
        except DBAPIError as error:
            if not contradicts_schema(error):
                raise
            raise SchemaUnknownError(
                f"the tables of the database do not match its revision {', '.join(before)} ({cause_of(error)}): it was"
                " changed by hand, partly restored, or created before 1.0.0; restore a complete backup, or use a new"
                f" one ({migrations.program.setting})"
            ) from error
        _store_compatibility(connection, migrations)
        if on_change is not None and before != context_of(connection, migrations.program).get_current_heads():
            on_change(connection)


def _store_compatibility(connection: Connection, migrations: Migrations) -> None:
    """Stores the oldest revision whose software can use the database: the newest ``oldest_compatible`` of all
    revisions. A revision without one is compatible only with itself."""
    if not inspect(connection).has_table(COMPATIBILITY_TABLE):
        return
    scripts = list(ScriptDirectory(str(migrations.folder)).walk_revisions())[::-1]
    order = [script.revision for script in scripts]
    stated = [getattr(script.module, "oldest_compatible", script.revision) for script in scripts]
    connection.execute(delete(COMPATIBILITY))
    connection.execute(insert(COMPATIBILITY).values(oldest_revision=max(stated, key=order.index)))


def run_environment() -> None:
    """The content of an ``env.py``: runs the migrations on the connection of ``upgrade``."""
    attributes = context.config.attributes
    context.configure(connection=attributes["connection"], version_table=attributes["version_table"])
    context.run_migrations()


def _has_shared_version_table(connection: Connection, program: Program) -> bool:
    """Whether the database is the program's and has the version table that 1.0.0 used for both programs.

    Raises ``ForeignDatabaseError``.
    """
    tables = frozenset(inspect(connection).get_table_names())
    owner = owner_of(tables)
    if owner is not None and owner != program:
        raise ForeignDatabaseError(_refusal(f"belongs to {owner.name}", program))
    if program.version_table in tables or SHARED_VERSION_TABLE not in tables:
        return False
    if owner is None and MigrationContext.configure(connection).get_current_heads():
        raise ForeignDatabaseError(_refusal("holds the tables of other software", program))
    return owner == program


def _refusal(owner: str, program: Program) -> str:
    return f"the database {owner}: give {program.name} one of its own ({program.setting})"


def _move_to_own_version_table(connection: Connection, program: Program) -> None:
    shared, own = (_version_table(name) for name in (SHARED_VERSION_TABLE, program.version_table))
    own.create(connection)
    connection.execute(insert(own).from_select(["version_num"], select(shared.c.version_num)))
    shared.drop(connection)


def _version_table(name: str) -> Table:
    """The table as Alembic creates it."""
    table = Table(name, MetaData(), Column("version_num", String(32), primary_key=True))
    table.primary_key.name = f"{name}_pkc"
    return table


def _config(migrations: Migrations, connection: Connection) -> Config:
    # Alembic would print its progress to standard output, which is for results.
    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(migrations.folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes.update(connection=connection, version_table=migrations.program.version_table)
    return config
