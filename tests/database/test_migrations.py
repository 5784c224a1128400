"""Migrations lead from an empty database to exactly the tables in the code, on both databases."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Boolean, Column, Integer, MetaData, Table, func, insert, select

import app.backend
import app.store
from app.backend.schema import METADATA as BACKEND
from app.database.engine import open_engine, writing
from app.database.migrations import SchemaNewerError, pending, upgrade
from app.store.schema import METADATA as STORE

OWNERS = [
    pytest.param(Path(app.store.__file__).parent / "migrations", STORE, id="store"),
    pytest.param(Path(app.backend.__file__).parent / "migrations", BACKEND, id="backend"),
]


@pytest.mark.parametrize(("folder", "metadata"), OWNERS)
def test_upgrade_from_empty_makes_the_tables_of_the_code(database_url: str, folder: Path, metadata: MetaData) -> None:
    engine = open_engine(database_url)
    assert pending(engine, folder)
    assert upgrade(engine, folder)
    assert not pending(engine, folder)
    assert not upgrade(engine, folder)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


@pytest.mark.parametrize(("folder", "metadata"), OWNERS)
def test_upgrade_from_each_revision_keeps_what_is_there(
    database_url: str, tmp_path: Path, folder: Path, metadata: MetaData
) -> None:
    old = copied(folder, tmp_path)
    engine = open_engine(database_url)
    numbers: list[int] = []
    for revision in sorted((folder / "versions").glob("*.py")):
        shutil.copy(revision, old / "versions")
        assert upgrade(engine, old)
        with writing(engine) as connection:
            # The one table without which neither of them can be.
            table = next(table for table in metadata.sorted_tables if table.name in {"access_user", "organization"})
            connection.execute(insert(table).values(filled(table, len(numbers))))
            numbers.append(len(numbers))
            assert connection.scalar(select(func.count()).select_from(table)) == len(numbers)
    assert not pending(engine, folder)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def copied(folder: Path, to: Path) -> Path:
    """The folder without its revisions."""
    (to / "migrations" / "versions").mkdir(parents=True)
    for name in ("env.py", "script.py.mako"):
        shutil.copy(folder / name, to / "migrations")
    return to / "migrations"


def filled(table: Table, number: int) -> dict[str, object]:
    """A row in which every column has something."""

    def value(column: Column[Any]) -> object:
        if isinstance(column.type, Boolean):
            return False
        return number if isinstance(column.type, Integer) else f"value {number}"

    return {column.name: value(column) for column in table.columns}


@pytest.mark.parametrize(
    ("owner", "digest"),
    [
        ("store", "6ffbdfa048bdf70854afee67709f30a65eb8a3bb34782b9a608089fa6b042fe9"),
        ("backend", "29ba51508756b2433f807d16aeefc4ac8ab959da7ebb338c98b8d92d70df61bd"),
    ],
)
def test_the_first_revision_stays_as_it_was_published(owner: str, digest: str) -> None:
    """A database that has run it never runs it again: a change belongs into a new one."""
    file = Path(app.__file__).parent / owner / "migrations" / "versions" / "0001_the_first_schema.py"
    assert sha256(file.read_bytes()).hexdigest() == digest


def test_upgrade_by_several_processes_at_once_happens_once(database_url: str) -> None:
    folder = Path(app.store.__file__).parent / "migrations"
    engines = [open_engine(database_url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda engine: upgrade(engine, folder), engines))
    assert not pending(engines[0], folder)
    for engine in engines:
        engine.dispose()


def test_a_database_of_a_newer_version_is_refused(database_url: str) -> None:
    folder = Path(app.store.__file__).parent / "migrations"
    engine = open_engine(database_url)
    upgrade(engine, folder)
    with writing(engine) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaNewerError, match="newer version"):
        upgrade(engine, folder)
    engine.dispose()


def test_a_failed_upgrade_leaves_nothing_behind(database_url: str, tmp_path: Path) -> None:
    source = Path(app.store.__file__).parent / "migrations"
    folder = copied(source, tmp_path)
    (folder / "versions" / "0001_broken.py").write_text(
        'import sqlalchemy as sa\nfrom alembic import op\nrevision = "0001"\ndown_revision = None\n\n\n'
        'def upgrade():\n    op.create_table("half", sa.Column("id", sa.Integer()))\n    raise RuntimeError("broken")\n'
    )
    engine = open_engine(database_url)
    with pytest.raises(RuntimeError, match="broken"):
        upgrade(engine, folder)
    with engine.connect() as connection:
        assert not engine.dialect.has_table(connection, "half")
    assert pending(engine, source)
    engine.dispose()
