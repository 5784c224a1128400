"""Creates databases of 1.0.0, and of revisions after it."""

import shutil
from dataclasses import replace
from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine

from app.foundation.database.engine import writing
from app.foundation.database.migrations import upgrade
from app.foundation.database.programs import USHER, Migrations
from tests.foundation.database import first_backend, first_store


def make_first_release(engine: Engine, migrations: Migrations) -> None:
    """Creates a database of 1.0.0, at its first revision."""
    tables = first_store if migrations.program == USHER else first_backend
    with writing(engine) as connection:
        with Operations.context(MigrationContext.configure(connection)):
            tables.create()
        connection.exec_driver_sql(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL,"
            " CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('0001')")


def make_at(engine: Engine, migrations: Migrations, revision: str, folder: Path) -> None:
    """Creates a database of 1.0.0 and upgrades it to this revision. ``folder`` is for the revisions until then."""
    make_first_release(engine, migrations)
    upgrade(engine, copied(migrations, folder, revision))


def copied(migrations: Migrations, folder: Path, last: str) -> Migrations:
    """A copy of the migrations until this revision."""
    versions = folder / "migrations" / "versions"
    versions.mkdir(parents=True, exist_ok=True)
    shutil.copy(migrations.folder / "env.py", versions.parent)
    for file in (migrations.folder / "versions").glob("[0-9]*.py"):
        if file.name.partition("_")[0] <= last:
            shutil.copy(file, versions)
    return replace(migrations, folder=versions.parent)
