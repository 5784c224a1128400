"""New and upgraded databases have exactly the tables of the code, on both databases."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Boolean, Column, Engine, Integer, MetaData, Table, func, insert, inspect, select, text

from app.access.browse.sizes import ALL_ORGANIZATIONS, load_counts
from app.access.problem_list import ProblemList
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.access.search import search
from app.access.source_tables import SOURCE_TABLES
from app.backend.schema import METADATA as BACKEND
from app.commands.bootstrap.databases import BACKEND_MIGRATIONS, STORE_MIGRATIONS
from app.commands.schema import METADATA as STORE
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine, reading, writing
from app.foundation.database.migrations import pending, revision_of, state_of, upgrade
from app.foundation.database.programs import (
    ForeignDatabaseError,
    Migrations,
    SchemaGuard,
    SchemaNewerError,
    SchemaState,
    SchemaUnknownError,
)
from app.sync.ledger.failure_lists import FailureGroup, failures_page
from tests.foundation.database.first_release import copied, make_at, make_first_release
from tests.tables import differences

pytestmark = pytest.mark.slow

OWNERS = [
    pytest.param(STORE_MIGRATIONS, STORE, id="store"),
    pytest.param(BACKEND_MIGRATIONS, BACKEND, id="backend"),
]


@pytest.mark.parametrize(("migrations", "metadata"), OWNERS)
def test_new_database_gets_the_tables_of_the_code_and_the_newest_revision(
    database_url: str, migrations: Migrations, metadata: MetaData
) -> None:
    engine = open_engine(database_url)
    assert pending(engine, migrations)
    assert upgrade(engine, migrations)
    assert not pending(engine, migrations)
    assert not upgrade(engine, migrations)
    assert revision_of(engine, migrations) == migrations.revisions()[-1]
    assert differences(engine, migrations.program, metadata) == []
    engine.dispose()


@pytest.mark.parametrize("migrations", [STORE_MIGRATIONS, BACKEND_MIGRATIONS], ids=["store", "backend"])
def test_file_names_begin_with_the_revision(migrations: Migrations) -> None:
    scripts = ScriptDirectory(str(migrations.folder))
    assert scripts.get_heads() == migrations.revisions()[-1:]
    assert migrations.revisions() == [script.revision for script in scripts.walk_revisions()][::-1]
    assert all(Path(script.path).name.startswith(f"{script.revision}_") for script in scripts.walk_revisions())


def test_current_database_does_not_load_alembic(database_url: str) -> None:
    upgrade(open_engine(database_url), STORE_MIGRATIONS)
    look = f"""
import sys
from app.commands.bootstrap.databases import STORE_MIGRATIONS, pending
from app.foundation.database.engine import open_engine
assert not pending(open_engine({database_url!r}), STORE_MIGRATIONS)
assert "alembic" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


@pytest.mark.parametrize(("migrations", "metadata"), OWNERS)
def test_upgrade_from_each_revision_keeps_what_is_there(
    database_url: str, tmp_path: Path, migrations: Migrations, metadata: MetaData
) -> None:
    engine = open_engine(database_url)
    make_first_release(engine, migrations)
    numbers: list[int] = []
    for revision in migrations.revisions():
        assert upgrade(engine, copied(migrations, tmp_path, revision))
        with writing(engine) as connection:
            # The one table without which neither of them can be.
            (name,) = {"access_user", "model_user", "organization"} & set(inspect(connection).get_table_names())
            table = Table(name, MetaData(), autoload_with=connection)
            connection.execute(insert(table).values(filled(table, len(numbers))))
            numbers.append(len(numbers))
            assert connection.scalar(select(func.count()).select_from(table)) == len(numbers)
    assert not pending(engine, migrations)
    assert differences(engine, migrations.program, metadata) == []
    engine.dispose()


def filled(table: Table, number: int) -> dict[str, object]:
    """A row with a value in every column."""

    def value(column: Column[Any]) -> object:
        if isinstance(column.type, Boolean):
            return False
        text = "{}" if column.name == "payload" else f"value {number}"
        return number if isinstance(column.type, Integer) else text

    return {column.name: value(column) for column in table.columns}


def test_upgrade_by_several_processes_at_once_happens_once(database_url: str) -> None:
    engines = [open_engine(database_url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda engine: upgrade(engine, STORE_MIGRATIONS), engines))
    assert not pending(engines[0], STORE_MIGRATIONS)
    for engine in engines:
        engine.dispose()


def test_a_database_of_a_newer_version_is_refused(database_url: str) -> None:
    engine = open_engine(database_url)
    upgrade(engine, STORE_MIGRATIONS)
    with writing(engine) as connection:
        connection.exec_driver_sql("UPDATE usher_version SET version_num = '9999'")
        connection.exec_driver_sql("UPDATE schema_compatibility SET oldest_revision = '9999'")
    with pytest.raises(SchemaNewerError, match="newer version"):
        upgrade(engine, STORE_MIGRATIONS)
    with writing(engine) as connection:
        connection.exec_driver_sql("DELETE FROM schema_compatibility")
    with pytest.raises(SchemaNewerError, match="newer version"):
        upgrade(engine, STORE_MIGRATIONS)
    engine.dispose()


def test_a_database_between_two_releases_is_refused(database_url: str) -> None:
    engine = open_engine(database_url)
    upgrade(engine, STORE_MIGRATIONS)
    with writing(engine) as connection:
        connection.exec_driver_sql("UPDATE usher_version SET version_num = '0021'")
    with pytest.raises(SchemaUnknownError, match="at revision 0021, which no released version has: restore a backup"):
        upgrade(engine, STORE_MIGRATIONS)
    engine.dispose()


def test_a_database_that_an_unreleased_version_upgraded_needs_no_step(database_url: str) -> None:
    """Its oldest compatible revision is one of the time between two releases."""
    engine = open_engine(database_url)
    upgrade(engine, STORE_MIGRATIONS)
    with writing(engine) as connection:
        connection.exec_driver_sql("UPDATE schema_compatibility SET oldest_revision = '0018'")
    assert state_of(engine, STORE_MIGRATIONS) is SchemaState.CURRENT
    SchemaGuard(engine, STORE_MIGRATIONS.revisions()[-1], lambda: 0.0).check()
    engine.dispose()


def test_a_newer_database_that_is_compatible_is_used_as_it_is(database_url: str) -> None:
    engine = open_engine(database_url)
    upgrade(engine, STORE_MIGRATIONS)
    with writing(engine) as connection:
        connection.exec_driver_sql("UPDATE usher_version SET version_num = '9999'")
    assert state_of(engine, STORE_MIGRATIONS) is SchemaState.NEWER
    assert not upgrade(engine, STORE_MIGRATIONS)
    engine.dispose()


def test_each_revision_states_which_versions_can_use_the_database() -> None:
    """Without the statement, an upgrade stops all older nodes."""
    scripts = list(ScriptDirectory(str(STORE_MIGRATIONS.folder)).iterate_revisions("head", "base"))[::-1]
    order = [script.revision for script in scripts]
    for script in scripts[order.index("0027") :]:
        stated = getattr(script.module, "oldest_compatible", None)
        assert stated in order[: order.index(script.revision) + 1], f"{script.revision} lacks oldest_compatible"


def test_guard_queries_at_most_once_a_second(database_url: str) -> None:
    engine, now = open_engine(database_url), [0.0]
    upgrade(engine, STORE_MIGRATIONS)
    guard = SchemaGuard(engine, STORE_MIGRATIONS.revisions()[-1], lambda: now[0])
    guard.check()
    with writing(engine) as connection:
        connection.exec_driver_sql("UPDATE schema_compatibility SET oldest_revision = '9999'")
    now[0] = 0.9
    guard.check()
    now[0] = 1.0
    for _ in range(2):
        with pytest.raises(SchemaNewerError):
            guard.check()
    engine.dispose()


def test_a_failed_upgrade_leaves_nothing_behind(database_url: str, tmp_path: Path) -> None:
    broken = copied(STORE_MIGRATIONS, tmp_path, "0001")
    (broken.folder / "versions" / "0002_broken.py").write_text(
        'import sqlalchemy as sa\nfrom alembic import op\nrevision = "0002"\ndown_revision = "0001"\n\n\n'
        'def upgrade():\n    op.create_table("half", sa.Column("id", sa.Integer()))\n    raise RuntimeError("broken")\n'
    )
    engine = open_engine(database_url)
    make_first_release(engine, STORE_MIGRATIONS)
    before = inspect(engine).get_table_names()
    with pytest.raises(RuntimeError, match="broken"):
        upgrade(engine, broken)
    assert inspect(engine).get_table_names() == before
    assert revision_of(engine, STORE_MIGRATIONS) == "0001"
    engine.dispose()


def put_into_shared_table(engine: Engine, migrations: Migrations) -> None:
    """The version table that both programs shared in 1.0.0."""
    own = migrations.program.version_table
    with writing(engine) as connection:
        connection.exec_driver_sql(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL,"
            " CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
        connection.exec_driver_sql(f"INSERT INTO alembic_version SELECT version_num FROM {own}")
        connection.exec_driver_sql(f"DROP TABLE {own}")


@pytest.mark.parametrize(("migrations", "metadata"), OWNERS)
def test_shared_version_table_is_migrated(database_url: str, migrations: Migrations, metadata: MetaData) -> None:
    engine = open_engine(database_url)
    make_first_release(engine, migrations)
    assert pending(engine, migrations)
    assert upgrade(engine, migrations)
    assert not pending(engine, migrations)
    assert differences(engine, migrations.program, metadata) == []
    assert "alembic_version" not in inspect(engine).get_table_names()
    version_table = migrations.program.version_table
    # SQLite cannot rename a constraint.
    named_after = "alembic_version" if engine.dialect.name == "sqlite" else version_table
    assert inspect(engine).get_pk_constraint(version_table)["name"] == f"{named_after}_pkc"
    engine.dispose()


def test_shared_version_table_is_migrated_once_by_concurrent_processes(database_url: str) -> None:
    engines = [open_engine(database_url) for _ in range(4)]
    upgrade(engines[0], STORE_MIGRATIONS)
    put_into_shared_table(engines[0], STORE_MIGRATIONS)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda engine: upgrade(engine, STORE_MIGRATIONS), engines))
    assert not pending(engines[0], STORE_MIGRATIONS)
    for engine in engines:
        engine.dispose()


@pytest.mark.parametrize("shared", [True, False], ids=["shared version table", "own version table"])
@pytest.mark.parametrize(
    ("owner", "other", "message"),
    [
        (STORE_MIGRATIONS, BACKEND_MIGRATIONS, "belongs to Usher itself: give the self-hosted backend one of its own"),
        (BACKEND_MIGRATIONS, STORE_MIGRATIONS, "belongs to the self-hosted backend: give Usher itself one of its own"),
    ],
    ids=["store", "backend"],
)
def test_the_other_programs_database_is_refused_and_left_alone(
    database_url: str, owner: Migrations, other: Migrations, message: str, *, shared: bool
) -> None:
    engine = open_engine(database_url)
    upgrade(engine, owner)
    if shared:
        put_into_shared_table(engine, owner)
    before = inspect(engine).get_table_names()
    for use in (pending, upgrade):
        with pytest.raises(ForeignDatabaseError, match=message) as caught:
            use(engine, other)
        assert f"({other.program.setting})" in str(caught.value)
    assert inspect(engine).get_table_names() == before
    upgrade(engine, owner)
    assert not pending(engine, owner)
    engine.dispose()


def test_a_database_of_other_software_is_refused(database_url: str) -> None:
    engine = open_engine(database_url)
    with writing(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    assert pending(engine, STORE_MIGRATIONS), "an empty table is nobody's"
    with writing(engine) as connection:
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('0001')")
    with pytest.raises(ForeignDatabaseError, match="holds the tables of other software"):
        upgrade(engine, STORE_MIGRATIONS)
    engine.dispose()


def test_a_sqlite_file_of_other_software_is_refused_and_left_alone(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/other.db")
    with writing(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE bookmarks (id INTEGER)")
    for migrations in (STORE_MIGRATIONS, BACKEND_MIGRATIONS):
        with pytest.raises(ForeignDatabaseError, match="holds the tables of other software"):
            upgrade(engine, migrations)
    assert inspect(engine).get_table_names() == ["bookmarks"]
    engine.dispose()


def test_upgrade_keeps_source_rows_when_it_adds_origins(database_url: str, tmp_path: Path) -> None:
    engine = open_engine(database_url)
    make_at(engine, STORE_MIGRATIONS, "0002", tmp_path)
    with writing(engine) as connection:
        for name in [table.name for table in SOURCE_TABLES.values() if table.name != "source_fill"]:
            table = Table(name, MetaData(), autoload_with=connection)
            connection.execute(insert(table), [filled(table, number) for number in range(3)])
    upgrade(engine, STORE_MIGRATIONS)
    with writing(engine) as connection:
        for table in SOURCE_TABLES.values():
            rows = connection.execute(select(table).order_by(table.c.source_id)).mappings().all()
            assert [row["place"] for row in rows] == (
                [] if table.name == "source_fill" else ["value 0", "value 1", "value 2"]
            )
            added = [{name: row[name] for name in ("origin", "rule", "user_alias") if name in row} for row in rows]
            assert all(set(values.values()) == {""} for values in added)
            assert all(row.get("aliases", "[]") == "[]" for row in rows)
            if engine.dialect.name == "sqlite":
                definition = connection.exec_driver_sql(
                    f"SELECT sql FROM sqlite_master WHERE name = '{table.name}'"
                ).scalar_one()
                assert "WITHOUT ROWID" in definition
    engine.dispose()


def test_upgrade_leaves_records_without_a_searchable_name_out_of_the_search(database_url: str, tmp_path: Path) -> None:
    engine = open_engine(database_url)
    make_at(engine, STORE_MIGRATIONS, "0002", tmp_path)
    with writing(engine) as connection:
        table = Table("access_user", MetaData(), autoload_with=connection)
        connection.execute(insert(table).values(filled(table, 0) | {"user_id": "7", "payload": '{"name": "A"}'}))
    upgrade(engine, STORE_MIGRATIONS)
    with reading(engine) as connection:
        assert connection.scalar(text("SELECT user_id FROM model_user")) == "7"
        assert connection.scalar(text("SELECT COUNT(*) FROM access_name")) == 0
    engine.dispose()


def test_upgrade_fills_the_search_for_failures(database_url: str, tmp_path: Path) -> None:
    engine = open_engine(database_url)
    make_at(engine, STORE_MIGRATIONS, "0002", tmp_path)
    messages = ["too long", "zu lang für Zürich \U0001f4da", "", "too long"]
    with writing(engine) as connection:
        table = Table("item_failure", MetaData(), autoload_with=connection)
        key = {"ledger_id": 1, "kind": "document", "parked": True}
        rows = [filled(table, number) | key | {"message": output} for number, output in enumerate(messages)]
        connection.execute(insert(table), rows)
    upgrade(engine, STORE_MIGRATIONS)
    with reading(engine) as connection:
        for output in messages:
            found = failures_page(connection, 1, parked=True, like=FailureGroup(message=output))
            expected = [f"value {number}" for number, message in enumerate(messages) if message == output]
            assert [failure.item_id for failure in found] == expected
    engine.dispose()


def test_upgrade_moves_the_access_model_and_the_next_refresh_merges_all_keys(database_url: str, tmp_path: Path) -> None:
    engine = open_engine(database_url)
    make_at(engine, STORE_MIGRATIONS, "0002", tmp_path)
    user: dict[str, object] = {"user_id": "ada", "disabled": False, "payload": '{"name":"Ada Lovelace"}', "digest": "d"}
    grant: dict[str, object] = {
        "organization_id": "o",
        "document_id": "nowhere",
        "user_id": "ada",
        "access_role": "viewer",
    }
    created: dict[str, object] = {"source_id": 1, "place": "1"}
    rows: dict[str, dict[str, object]] = {
        "directory_source": {"source_id": 1, "name": "people", "position": 0, "records": 2, "read_in_force": 1},
        "directory_state": {"state_id": 1},
        "access_revision": {"revision": 1, "created_at": 0, "changes": "{}"},
        "access_user": user,
        "source_user": {**user, **created},
        "source_grant": {**grant, **created, "folder_id": "", "organization_user_group_id": ""},
    }
    with writing(engine) as connection:
        for name, row in rows.items():
            table = Table(name, MetaData(), autoload_with=connection)
            needed: dict[str, object] = {
                column.name: 0 if isinstance(column.type, Integer) else ""
                for column in table.columns
                if not column.nullable and column.server_default is None
            }
            connection.execute(insert(table).values(needed | row))
    upgrade(engine, STORE_MIGRATIONS)
    with reading(engine) as connection:
        # Until then it is what it was.
        assert [tuple(row) for row in connection.execute(text("SELECT user_id, source_id FROM model_user"))] == [
            ("ada", 0)
        ]
        assert connection.execute(text("SELECT COUNT(*) FROM model_grant")).scalar_one() == 0
        assert [hit.label for hit in search(connection, "lovelace", "user")] == ["Ada Lovelace"]
        assert load_counts(connection, [ALL_ORGANIZATIONS])[ALL_ORGANIZATIONS]["user"] == 1
    with Refresh(engine, clock=utc_now, problems=ProblemList()) as refresh:
        refresh.begin(["people"])
        refresh.staging.end(ReadResult(records=0, verdict="failed", reason="it is away"))
        replaced = refresh.finish().change
    assert (replaced.revision, replaced.changes["grant"].added, replaced.changes["user"].any) == (2, 1, False)
    with reading(engine) as connection:
        assert connection.execute(text("SELECT source_id FROM model_user")).scalars().all() == [1]
        assert connection.execute(text("SELECT document_id, source_id FROM model_grant")).one() == ("nowhere", 1)
        assert not connection.execute(text("SELECT merge_all FROM directory_state")).scalar_one()
    engine.dispose()
