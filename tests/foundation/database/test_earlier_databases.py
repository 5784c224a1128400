"""Upgrades of databases of 1.0.0, and of databases whose tables do not match their revision."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, MetaData, inspect, text

from app.backend.schema import METADATA as BACKEND
from app.commands.bootstrap.databases import BACKEND_MIGRATIONS, STORE_MIGRATIONS
from app.commands.schema import METADATA as STORE
from app.foundation.database.engine import open_engine, writing
from app.foundation.database.migrations import pending, revision_of, upgrade
from app.foundation.database.programs import Migrations, SchemaUnknownError
from tests.foundation.database.first_release import make_at, make_first_release
from tests.foundation.database.test_migrations import put_into_shared_table
from tests.tables import differences


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_engine(database_url)
    yield opened
    opened.dispose()


def execute(engine: Engine, statement: str) -> None:
    with writing(engine) as connection:
        connection.execute(text(statement))


@pytest.mark.parametrize("revision", ["0001", "0002"])
@pytest.mark.parametrize(
    ("migrations", "metadata", "row", "kept"),
    [
        pytest.param(
            STORE_MIGRATIONS,
            STORE,
            "INSERT INTO deleted_item VALUES (1, 'document', 'acme', '', 'kept')",
            "SELECT item_id FROM deleted_item",
            id="store",
        ),
        pytest.param(
            BACKEND_MIGRATIONS,
            BACKEND,
            "INSERT INTO workspace_attempt VALUES ('127.0.0.1', 1, 1)",
            "SELECT COUNT(*) FROM workspace_attempt",
            id="backend",
        ),
        pytest.param(
            BACKEND_MIGRATIONS,
            BACKEND,
            "INSERT INTO document_migration (api_key_id, migration_id, organization_id, document_id, new_document_id,"
            " status, open, lease_owner, lease_until, tries, created_at, updated_at)"
            " VALUES ('key', 'm', 'acme', 'old', 'new', 'in_progress', true, '', 0, 0, 0, 0)",
            "SELECT COUNT(*) FROM document_migration WHERE status = 'failed'",
            id="unfinished migration of a document",
        ),
    ],
)
def test_databases_of_the_first_release_are_upgraded(  # noqa: PLR0917 - one for each parameter
    engine: Engine,
    tmp_path: Path,
    migrations: Migrations,
    metadata: MetaData,
    row: str,
    kept: str,
    revision: str,
) -> None:
    make_at(engine, migrations, revision, tmp_path)
    put_into_shared_table(engine, migrations)
    execute(engine, row)
    assert pending(engine, migrations)
    assert revision_of(engine, migrations) == revision
    assert upgrade(engine, migrations)
    assert not pending(engine, migrations)
    assert differences(engine, migrations.program, metadata) == []
    with engine.connect() as connection:
        assert connection.scalar(text(kept)) in {"kept", 1}


@pytest.mark.parametrize(
    ("migrations", "change"),
    [
        pytest.param(STORE_MIGRATIONS, "DROP TABLE deleted_item", id="without deleted items"),
        pytest.param(
            STORE_MIGRATIONS,
            "CREATE INDEX ix_deleted_item_ledger_id_kind_item_id ON deleted_item (ledger_id, kind, item_id)",
            id="with an index of the second revision",
        ),
        pytest.param(
            STORE_MIGRATIONS,
            "ALTER TABLE item_failure ADD COLUMN failing_since BIGINT",
            id="with a column of the third revision",
        ),
        pytest.param(
            BACKEND_MIGRATIONS,
            "CREATE TABLE removed_user (api_key_id VARCHAR NOT NULL)",
            id="with a table of the second revision",
        ),
    ],
)
def test_database_whose_tables_do_not_match_its_revision_is_refused_unchanged(
    engine: Engine, migrations: Migrations, change: str
) -> None:
    make_first_release(engine, migrations)
    execute(engine, change)
    tables = inspect(engine).get_table_names()
    with pytest.raises(SchemaUnknownError) as refused:
        upgrade(engine, migrations)
    assert str(refused.value).startswith("the tables of the database do not match its revision 0001 (")
    assert str(refused.value).endswith(f"restore a complete backup, or use a new one ({migrations.program.setting})")
    assert "\n" not in str(refused.value)
    assert inspect(engine).get_table_names() == tables


def test_database_with_tables_and_without_a_revision_is_refused(engine: Engine) -> None:
    execute(engine, "CREATE TABLE run (run_id VARCHAR)")
    with pytest.raises(SchemaUnknownError, match="the tables of the database have no revision "):
        upgrade(engine, STORE_MIGRATIONS)
    assert inspect(engine).get_table_names() == ["run"]
