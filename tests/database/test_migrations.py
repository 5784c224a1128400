"""Migrations lead from an empty database to exactly the tables in the code, on both databases."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import MetaData

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
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    for name in ("env.py", "script.py.mako"):
        (folder / name).write_text((source / name).read_text())
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
