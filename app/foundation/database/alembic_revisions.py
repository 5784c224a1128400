"""Alembic at work for ``migrations.py``: loaded only for databases that lack a revision, or are not ours."""

import io
from collections.abc import Callable
from typing import Literal

from alembic import command, context
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, delete, insert, inspect, select
from sqlalchemy.exc import DBAPIError
from sqlmodel.sql.sqltypes import AutoString

from app.foundation.database.compatibility import COMPATIBILITY, SchemaState, oldest_compatible
from app.foundation.database.engine import is_sqlite, reading, writing
from app.foundation.database.errors import cause_of, contradicts_schema
from app.foundation.database.programs import (
    COMPATIBILITY_TABLE,
    SHARED_VERSION_TABLE,
    ForeignDatabaseError,
    Migrations,
    Program,
    SchemaNewerError,
    SchemaUnknownError,
    owner_of,
)

_CONNECTION = "connection"
_VERSION_TABLE = "version_table"
_UPGRADE_LOCK = 0x75736865725F7570
"""The key of PostgreSQL's advisory lock for upgrades: any constant that only we use ("usher_up")."""


def context_of(connection: Connection, program: Program) -> MigrationContext:
    """What Alembic knows of the database of a program."""
    return MigrationContext.configure(connection, opts={_VERSION_TABLE: program.version_table})


def state_of(engine: Engine, migrations: Migrations) -> SchemaState:
    """As ``migrations.state_of``, whatever the database holds."""
    scripts = ScriptDirectory(str(migrations.folder))
    with reading(engine) as connection:
        if _is_to_be_carried_over(connection, migrations.program):
            # Not read here: who is about to carry it over may take the table away in between.
            return SchemaState.OLDER
        found = context_of(connection, migrations.program).get_current_heads()
        known = {script.revision for script in scripts.walk_revisions()}
        if set(found) - known:
            if oldest_compatible(connection) not in known:
                raise SchemaNewerError
            return SchemaState.NEWER
    return SchemaState.CURRENT if set(found) == set(scripts.get_heads()) else SchemaState.OLDER


def upgrade(engine: Engine, migrations: Migrations, witness: Callable[[Connection], None] | None) -> None:
    """As ``migrations.upgrade``, where something is pending."""
    with writing(engine) as connection:
        if not is_sqlite(connection):
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (_UPGRADE_LOCK,))
        # Looked at again: somebody may have been faster.
        if _is_to_be_carried_over(connection, migrations.program):
            _carry_over(connection, migrations.program)
        before = context_of(connection, migrations.program).get_current_heads()
        try:
            command.upgrade(_config(migrations, connection), "head")
        except DBAPIError as error:
            if not contradicts_schema(error):
                raise
            raise SchemaUnknownError(
                f"the database does not hold what its revision {', '.join(before)} makes ({cause_of(error)}): it was"
                " changed by hand, restored in part, or made before 1.0.0; restore a whole backup, or use a new one"
                f" ({migrations.program.setting})"
            ) from error
        _state_compatibility(connection, migrations)
        if witness is not None and before != context_of(connection, migrations.program).get_current_heads():
            witness(connection)


def _state_compatibility(connection: Connection, migrations: Migrations) -> None:
    """Writes down the oldest revision whose software can use the database. Each revision states it as
    ``oldest_compatible``; one that does not is compatible with itself alone."""
    if not inspect(connection).has_table(COMPATIBILITY_TABLE):
        return
    scripts = list(ScriptDirectory(str(migrations.folder)).walk_revisions())[::-1]
    order = [script.revision for script in scripts]
    stated = [getattr(script.module, "oldest_compatible", script.revision) for script in scripts]
    connection.execute(delete(COMPATIBILITY))
    connection.execute(insert(COMPATIBILITY).values(oldest_revision=max(stated, key=order.index)))


def run_environment(metadata: MetaData) -> None:
    """What an ``env.py`` does: run the migrations on the connection that ``upgrade`` opened."""
    attributes = context.config.attributes
    context.configure(
        connection=attributes[_CONNECTION],
        version_table=attributes[_VERSION_TABLE],
        target_metadata=metadata,
        render_as_batch=True,
        render_item=_render_item,
    )
    context.run_migrations()


def _is_to_be_carried_over(connection: Connection, ours: Program) -> bool:
    """Whether the database is ours and keeps its revision in the table that 1.0.0 used for both programs.

    Raises ``ForeignDatabaseError``.
    """
    tables = frozenset(inspect(connection).get_table_names())
    owner = owner_of(tables)
    if owner is not None and owner != ours:
        raise ForeignDatabaseError(_refusal(f"belongs to {owner.name}", ours))
    if ours.version_table in tables or SHARED_VERSION_TABLE not in tables:
        return False
    if owner is None and MigrationContext.configure(connection).get_current_heads():
        raise ForeignDatabaseError(_refusal("holds the tables of other software", ours))
    return owner == ours


def _refusal(whose: str, ours: Program) -> str:
    return f"the database {whose}: give {ours.name} one of its own ({ours.setting})"


def _carry_over(connection: Connection, program: Program) -> None:
    shared, own = (_version_table(name) for name in (SHARED_VERSION_TABLE, program.version_table))
    own.create(connection)
    connection.execute(insert(own).from_select(["version_num"], select(shared.c.version_num)))
    shared.drop(connection)


def _version_table(name: str) -> Table:
    """As Alembic makes it."""
    table = Table(name, MetaData(), Column("version_num", String(32), primary_key=True))
    table.primary_key.name = f"{name}_pkc"
    return table


def _render_item(kind: str, item: object, _: object) -> str | Literal[False]:
    """SQLModel's own string type is written as the plain one it stands for, so that old migrations need no SQLModel."""
    return "sa.String()" if kind == "type" and isinstance(item, AutoString) else False


def _config(migrations: Migrations, connection: Connection) -> Config:
    # Alembic would print its progress to standard output, where results belong.
    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(migrations.folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes[_CONNECTION] = connection
    config.attributes[_VERSION_TABLE] = migrations.program.version_table
    return config
