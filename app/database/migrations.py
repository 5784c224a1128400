"""How does a database get from the schema it has to the one this version needs?

Each owner of tables keeps its Alembic revisions in a ``migrations`` folder beside them. ``upgrade`` brings a database
to the newest one in a single transaction, one process at a time; ``pending`` says whether there is anything to do.
"""

import io
from pathlib import Path
from typing import Literal

from alembic import command, context
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, MetaData
from sqlmodel.sql.sqltypes import AutoString

from app.database.engine import is_sqlite, reading, writing

_CONNECTION = "connection"
_UPGRADE_LOCK = 0x75736865725F7570
"""The key of PostgreSQL's advisory lock for upgrades: any constant that only we use ("usher_up")."""


class SchemaNewerError(RuntimeError):
    """The database was upgraded by a newer version of this software, which this version cannot read."""


def pending(engine: Engine, folder: Path) -> bool:
    """Whether the database lacks revisions of ``folder``; raises ``SchemaNewerError`` when it is ahead of them."""
    scripts = ScriptDirectory(str(folder))
    with reading(engine) as connection:
        found = MigrationContext.configure(connection).get_current_heads()
    known = {script.revision for script in scripts.walk_revisions()}
    if set(found) - known:
        raise SchemaNewerError(
            "the database was upgraded by a newer version of Usher; run that version, or restore a backup"
        )
    return set(found) != set(scripts.get_heads())


def upgrade(engine: Engine, folder: Path) -> bool:
    """Bring the database to the newest revision of ``folder``; whether there was anything to do."""
    if not pending(engine, folder):
        return False
    with writing(engine) as connection:
        if not is_sqlite(connection):
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (_UPGRADE_LOCK,))
        command.upgrade(_config(folder, connection), "head")
    return True


def new_revision(engine: Engine, folder: Path, message: str, revision: str) -> None:
    """Write the next revision file: the difference between the database and the tables in the code. For developers."""
    with writing(engine) as connection:
        command.revision(_config(folder, connection), message, autogenerate=True, rev_id=revision)


def run_environment(metadata: MetaData) -> None:
    """What an ``env.py`` does: run the migrations on the connection that ``upgrade`` opened."""
    connection = context.config.attributes[_CONNECTION]
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True, render_item=_render_item)
    context.run_migrations()


def _render_item(kind: str, item: object, _: object) -> str | Literal[False]:
    """SQLModel's own string type is written as the plain one it stands for, so that old migrations need no SQLModel."""
    return "sa.String()" if kind == "type" and isinstance(item, AutoString) else False


def _config(folder: Path, connection: Connection) -> Config:
    # Alembic would print its progress to standard output, where results belong.
    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes[_CONNECTION] = connection
    return config
