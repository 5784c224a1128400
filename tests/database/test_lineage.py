"""Databases of every state that the first revision was in, and ones that somebody has changed."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from sqlalchemy import Engine, MetaData, inspect, text

from app.backend.schema import METADATA as BACKEND
from app.bootstrap.databases import BACKEND_MIGRATIONS, STORE_MIGRATIONS
from app.database.alembic_revisions import context_of
from app.database.engine import open_engine, writing
from app.database.lineage import SchemaUnknownError
from app.database.migrations import pending, upgrade
from app.database.programs import SHARED_VERSION_TABLE, Migrations
from app.store.schema import METADATA as STORE
from tests.database.test_migrations import copied

BY_KIND = "CREATE INDEX ix_deleted_item_ledger_id_kind_item_id ON deleted_item (ledger_id, kind, item_id)"
KEPT = "INSERT INTO deleted_item VALUES (1, 'document', 'acme', '', 'kept')"
REMOVED = """
CREATE TABLE removed_user (
  api_key_id VARCHAR NOT NULL, organization_id VARCHAR NOT NULL, user_id VARCHAR NOT NULL,
  CONSTRAINT pk_removed_user PRIMARY KEY (api_key_id, organization_id, user_id))
"""
ENDED = "CREATE INDEX ix_document_migration_ended ON document_migration (status, updated_at)"

STATES = [
    pytest.param(STORE_MIGRATIONS, STORE, ["DROP TABLE deleted_item"], "", id="before deleted items"),
    pytest.param(STORE_MIGRATIONS, STORE, [KEPT], "SELECT item_id FROM deleted_item", id="as it is"),
    pytest.param(
        STORE_MIGRATIONS, STORE, [KEPT, BY_KIND], "SELECT item_id FROM deleted_item", id="with an index on them"
    ),
    pytest.param(
        BACKEND_MIGRATIONS,
        BACKEND,
        [REMOVED, ENDED, "INSERT INTO removed_user VALUES ('key', 'acme', 'kept')"],
        "SELECT user_id FROM removed_user",
        id="with removed users",
    ),
]
"""What the first revision made at some time, beside what it makes now."""


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_engine(database_url)
    yield opened
    opened.dispose()


def at_first_revision(engine: Engine, migrations: Migrations, folder: Path, changes: list[str]) -> None:
    """As it was made when both programs kept their revisions in one table."""
    old = copied(migrations, folder)
    old = replace(old, program=replace(migrations.program, version_table=SHARED_VERSION_TABLE))
    (first,) = (migrations.folder / "versions").glob("0001_*.py")
    shutil.copy(first, old.folder / "versions")
    upgrade(engine, old)
    with writing(engine) as connection:
        for change in changes:
            connection.execute(text(change))


@pytest.mark.parametrize(("migrations", "metadata", "changes", "kept"), STATES)
def test_databases_of_every_state_of_the_first_revision_are_upgraded(  # noqa: PLR0917 - one for each parameter
    engine: Engine, tmp_path: Path, migrations: Migrations, metadata: MetaData, changes: list[str], kept: str
) -> None:
    at_first_revision(engine, migrations, tmp_path, changes)
    assert pending(engine, migrations)
    assert upgrade(engine, migrations)
    assert not pending(engine, migrations)
    with engine.connect() as connection:
        assert compare_metadata(context_of(connection, migrations.program), metadata) == []
        if kept:
            assert connection.scalar(text(kept)) == "kept"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("DROP TABLE access_grant", "the database lacks the table access_grant, which its revision 0001 makes: "),
        ("DROP INDEX ix_ledger_item_gone", "lacks the index on ledger_id, gone_at of table ledger_item, which"),
        ("ALTER TABLE run DROP COLUMN worker", "lacks the column worker of table run, which its revision 0001 makes"),
        (
            "ALTER TABLE item_failure ADD COLUMN failing_since BIGINT",
            "has the column failing_since of table item_failure already, which revision 0003 makes: ",
        ),
    ],
)
def test_what_somebody_changed_is_refused_in_one_line_and_stays_as_it_is(
    engine: Engine, tmp_path: Path, change: str, complaint: str
) -> None:
    at_first_revision(engine, STORE_MIGRATIONS, tmp_path, [change])
    tables = inspect(engine).get_table_names()
    with pytest.raises(SchemaUnknownError) as refused:
        upgrade(engine, STORE_MIGRATIONS)
    assert complaint in str(refused.value)
    assert str(refused.value).endswith("restore a whole backup, or use a new one (database_url)")
    assert "\n" not in str(refused.value)
    assert inspect(engine).get_table_names() == tables
