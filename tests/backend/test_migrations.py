"""Migrations of documents to another id, also with crashes and concurrent changes."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import event, insert, select, update

from app.backend.app import backend_of
from app.backend.document_migrations import migrating
from app.backend.document_migrations.document_data import DEPENDENT_TABLES, move_batch
from app.backend.document_migrations.migrating import LEASE_MS, TRIES, migrate_all, step
from app.backend.document_migrations.tables import DOCUMENT_MIGRATION
from app.backend.http.call import Backend
from app.backend.resources.tables import DOCUMENT
from app.backend.schema import METADATA
from app.backend.scope import Scope
from app.foundation.database.engine import is_sqlite, reading, writing

from .conftest import BackendWorld, Caller

ORG = {"organizationId": "acme"}
MOVE = ORG | {"documentId": "old", "newDocumentId": "new"}
ROWS = 30
NOT_DEPENDENT = {"document", "document_migration"}
"""Tables with document ids whose rows do not move."""
SAMPLE: dict[str, Any] = {"int": 1, "bool": False, "bytes": b"x"}


def settled(tenant: Caller, migration_id: str) -> str:
    """Runs a migration to its end and returns its status."""
    migrate_all(backend_of(tenant.app))
    answer = tenant("migrate_documents_status", **ORG, migrationId=migration_id)
    assert answer["migrationId"] == migration_id
    return str(answer["status"])


def fill(world: BackendWorld, tenant: Caller, document_id: str, *, rows: int = ROWS, first: int = 0) -> None:
    """Inserts generated rows of the document into every dependent table."""
    with writing(world.engine) as connection:
        for dependent in DEPENDENT_TABLES:
            for table in (dependent.table, *dependent.companions):
                column = dependent.column if table is dependent.table else "document_id"
                values = []
                for number in range(first, first + rows):
                    row: dict[str, Any] = {
                        name: SAMPLE.get(one.type.python_type.__name__, "x")
                        for name, one in table.columns.items()
                        if not one.nullable
                    }
                    key = number + 1 if dependent.key == "seq" else f"k{number}"
                    row |= {"api_key_id": tenant.ids["api_key"], "organization_id": "acme", dependent.key: key}
                    row |= {column: document_id} | ({"payload": "{}"} if "payload" in table.columns else {})
                    row |= {"level": dependent.level} if dependent.level and table is dependent.table else {}
                    row |= {"record_id": f"r{number}"} if "record_id" in table.columns else {}
                    values.append(row)
                connection.execute(insert(table), values)


def rows_of(world: BackendWorld, document_id: str) -> dict[str, int]:
    """The number of the document's rows in each table, with the document itself."""
    counts: Counter[str] = Counter()
    with reading(world.engine) as connection:
        for dependent in DEPENDENT_TABLES:
            for table in (dependent.table, *dependent.companions):
                column = dependent.column if table is dependent.table else "document_id"
                counts[table.name] += len(connection.execute(select(table).where(table.c[column] == document_id)).all())
        counts["document"] += len(
            connection.execute(select(DOCUMENT).where(DOCUMENT.c.document_id == document_id)).all()
        )
    return {name: count for name, count in counts.items() if count}


def begun(tenant: Caller) -> str:
    """Creates a migration without a lease."""
    return str(tenant("migrate_documents", **ORG, documentId="old", newDocumentId="new")["migrationId"])


def now(world: BackendWorld) -> int:
    return int(world.clock().timestamp() * 1000)


@pytest.fixture
def documents(world: BackendWorld) -> Caller:
    """A tenant with a document that has data, and another one that must not change."""
    tenant = world.tenant()
    documents = [{"documentId": "old", "documentName": "Old"}, {"documentId": "other"}]
    tenant("add_documents", **ORG, documents=documents, createOrganization=True)
    fill(world, tenant, "old")
    fill(world, tenant, "other", first=ROWS)
    return tenant


def test_every_table_with_document_ids_is_declared() -> None:
    naming = {table.name for table in METADATA.tables.values() if "document_id" in table.columns}
    declared = {table.name for dependent in DEPENDENT_TABLES for table in (dependent.table, *dependent.companions)}

    assert naming - declared - NOT_DEPENDENT == set()
    for dependent in DEPENDENT_TABLES:
        key = {column.name for column in dependent.table.primary_key} - {"api_key_id", "organization_id", "level"}
        # A row whose key does not contain the document cannot conflict with another row.
        assert dependent.may_conflict == (dependent.column in key)
        assert dependent.key in key


def test_all_data_moves(world: BackendWorld, documents: Caller) -> None:
    before, other = rows_of(world, "old"), rows_of(world, "other")
    assert set(before.values()) == {ROWS, 1}

    migration = documents("migrate_documents", **MOVE)["migrationId"]

    assert settled(documents, migration) == "completed"
    assert rows_of(world, "new") == before
    assert rows_of(world, "old") == {}
    assert rows_of(world, "other") == other
    (moved,) = documents("get_documents", **ORG, documentIds=["old", "new"])
    assert (moved["id"], moved["documentName"]) == ("new", "Old")


def test_new_document_exists_at_once(world: BackendWorld, documents: Caller) -> None:
    begun(documents)

    assert {one["id"] for one in documents("get_documents", **ORG)} == {"old", "new", "other"}
    answer = documents("add_documents", **ORG, documents=[{"documentId": "new"}])
    assert answer["new"]["success"] is False


def test_rows_added_during_the_migration_move(world: BackendWorld, documents: Caller) -> None:
    migration_id = begun(documents)
    backend = backend_of(world.app)
    migration = claimed(backend)
    while not step(backend, migration, "me"):
        if rows_of(world, "old") == {"document": 1}:
            world.clock.move_on(seconds=1)
            documents("add_users", **ORG, documentId="old", users=[{"userId": "late"}])
            documents("update_document_access", **ORG, documentIds=["old"], accessType="restricted")
            break
    while not step(backend, migration, "me"):
        pass

    assert settled(documents, migration_id) == "completed"
    assert "late" in {user["userId"] for user in documents("get_users", **ORG, documentId="new")}
    # A restriction that was made on the way holds.
    assert documents("get_documents", **ORG, documentIds=["new"])[0]["accessType"] == "restricted"


def claimed(backend: Backend, owner: str = "me") -> Any:
    migration = migrating._claim(backend, owner)
    assert migration is not None
    return migration


@pytest.mark.parametrize("steps", range(0, 14, 3))
def test_another_process_continues_after_a_crash(world: BackendWorld, documents: Caller, steps: int) -> None:
    before = rows_of(world, "old")
    migration_id = begun(documents)
    dead, living = backend_of(world.app), backend_of(world.another_node())
    migration = claimed(dead)
    for _ in range(steps):
        if step(dead, migration, "me"):
            break

    migrate_all(living)
    if steps < 10:
        # Its lease holds until it ends, so that no two work on it.
        assert documents_state(world, migration_id) == "in_progress"
    world.clock.move_on(seconds=LEASE_MS / 1000)
    migrate_all(living)

    assert documents_state(world, migration_id) == "completed"
    assert rows_of(world, "new") == before
    # The one that was believed dead comes back, and does nothing.
    assert step(dead, migration, "me")
    assert rows_of(world, "new") == before


def documents_state(world: BackendWorld, migration_id: str) -> str:
    with reading(world.engine) as connection:
        query = select(DOCUMENT_MIGRATION.c.status).where(DOCUMENT_MIGRATION.c.migration_id == migration_id)
        return str(connection.scalar(query))


def test_completed_migrations_are_deleted_after_a_month(world: BackendWorld, documents: Caller) -> None:
    done = begun(documents)
    migrating.migrate_all(backend_of(world.app))
    with backend_of(world.app).writing() as connection:
        connection.execute(
            insert(DOCUMENT_MIGRATION).values(
                api_key_id=documents.ids["api_key"],
                migration_id="failed",
                organization_id="acme",
                document_id="a",
                new_document_id="b",
                status="failed",
                open=False,
                lease_owner="",
                lease_until=0,
                tries=0,
                created_at=0,
                updated_at=0,
            )
        )

    def known() -> set[str]:
        migrating.migrate_all(backend_of(world.app))
        with reading(world.engine) as connection:
            return set(connection.scalars(select(DOCUMENT_MIGRATION.c.migration_id)))

    world.clock.move_on(days=29)
    assert known() == {done, "failed"}
    world.clock.move_on(days=2)
    assert known() == {"failed"}


def test_failed_step_is_rolled_back(world: BackendWorld, documents: Caller) -> None:
    before = rows_of(world, "old")
    scope = Scope(documents.ids["api_key"], "acme")

    with pytest.raises(RuntimeError), writing(world.engine) as connection:
        assert move_batch(connection, scope, "old", "new") == ROWS
        raise RuntimeError

    assert rows_of(world, "old") == before


def test_size_of_a_step(world: BackendWorld) -> None:
    tenant = world.tenant()
    tenant("add_documents", **ORG, documents=[{"documentId": "old"}], createOrganization=True)
    fill(world, tenant, "old", rows=600)
    scope = Scope(tenant.ids["api_key"], "acme")
    sizes = []
    with writing(world.engine) as connection:
        while moved := move_batch(connection, scope, "old", "new"):
            sizes.append(moved)

    assert sum(sizes) == 600 * len(DEPENDENT_TABLES)
    assert max(sizes) == 500
    assert rows_of(world, "old") == {"document": 1}


def test_migration_fails_after_too_many_crashes(world: BackendWorld, documents: Caller) -> None:
    migration_id = begun(documents)
    backend = backend_of(world.app)
    for number in range(TRIES):
        claimed(backend, f"p{number}")
        world.clock.move_on(seconds=LEASE_MS / 1000)

    migrate_all(backend)

    assert documents_state(world, migration_id) == "failed"
    again = documents("migrate_documents", **MOVE)["migrationId"]
    assert again == migration_id
    assert settled(documents, again) == "completed"


def test_entry_on_the_new_document_wins(world: BackendWorld, documents: Caller) -> None:
    begun(documents)
    documents("add_users", **ORG, documentId="new", users=[{"userId": "k0", "accessRole": "viewer"}])

    migrate_all(backend_of(world.app))

    users = {one["userId"]: one["accessRole"] for one in documents("get_users", **ORG, documentId="new")}
    assert users["k0"] == "viewer"
    assert len(users) == ROWS


def test_migration_with_conflicting_editors_fails(world: BackendWorld, documents: Caller) -> None:
    migration_id = begun(documents)
    documents("add_crdt_data", **ORG, documentId="new", editorId="k0", type="text", data="mine")

    migrate_all(backend_of(world.app))

    assert settled(documents, migration_id) == "failed"
    assert rows_of(world, "old") == {"document": 1, "editor_data": 1}
    (mine,) = documents("get_crdt_data", **ORG, documentId="new", editorId="k0")
    assert mine["data"] == "mine"
    # Put in order, it is gone on with under the same id.
    with writing(world.engine) as connection:
        table = METADATA.tables["editor_data"]
        connection.execute(update(table).where(table.c.document_id == "old").values(editor_id="free"))
    assert documents("migrate_documents", **MOVE)["migrationId"] == migration_id
    assert settled(documents, migration_id) == "completed"


def test_migration_fails_if_the_new_document_is_deleted(world: BackendWorld, documents: Caller) -> None:
    migration_id = begun(documents)
    documents("delete_documents", **ORG, documentIds=["new"])

    migrate_all(backend_of(world.app))

    assert settled(documents, migration_id) == "failed"
    assert rows_of(world, "old")["document"] == 1


def test_migration_completes_if_the_old_document_is_deleted(world: BackendWorld, documents: Caller) -> None:
    migration_id = begun(documents)
    documents("delete_documents", **ORG, documentIds=["old"])

    migrate_all(backend_of(world.app))

    assert settled(documents, migration_id) == "completed"
    assert rows_of(world, "old") == {}


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"newDocumentId": "old"}, (400, "INVALID_ARGUMENT", "data.newDocumentId: must differ from documentId")),
        ({"newDocumentId": "other"}, (409, "ALREADY_EXISTS", "data.newDocumentId: Document already exists.")),
        ({"documentId": "none"}, (404, "NOT_FOUND", "data.documentId: Document does not exist.")),
        ({"organizationId": "none"}, (404, "NOT_FOUND", "data.organizationId: Organization does not exist.")),
    ],
)
def test_migrate_refuses(documents: Caller, changed: dict[str, str], refusal: tuple[int, str, str]) -> None:
    assert documents.refused("migrate_documents", **MOVE | changed) == refusal


def test_one_migration_of_a_document_at_a_time(world: BackendWorld, documents: Caller) -> None:
    migration_id = begun(documents)

    for ids in ({"newDocumentId": "third"}, {"documentId": "new", "newDocumentId": "third"}, {"documentId": "other"}):
        code, status, message = documents.refused("migrate_documents", **MOVE | ids)
        assert (code, status) == (409, "ALREADY_EXISTS")
        assert migration_id in message
    # The same request again returns the same migration.
    assert documents("migrate_documents", **MOVE)["migrationId"] == migration_id
    assert settled(documents, migration_id) == "completed"


def test_status_of_an_unknown_migration(world: BackendWorld, documents: Caller) -> None:
    migration_id = begun(documents)
    message = "data.migrationId: there is no such migration in this organization"

    for tenant, ids in (
        (documents, ORG | {"migrationId": "none"}),
        (documents, {"organizationId": "other", "migrationId": migration_id}),
        (world.tenant(), ORG | {"migrationId": migration_id}),
    ):
        assert tenant.refused("migrate_documents_status", **ids) == (400, "INVALID_ARGUMENT", message)


def test_database_outage_during_a_migration(world: BackendWorld, documents: Caller) -> None:
    migration_id = begun(documents)
    backend = backend_of(world.app)
    migration = claimed(backend)
    step(backend, migration, "me")
    with writing(world.engine) as connection:
        connection.exec_driver_sql("ALTER TABLE reaction RENAME TO elsewhere")
    world.clock.move_on(seconds=LEASE_MS / 1000)
    migrate_all(backend)
    assert documents_state(world, migration_id) == "in_progress"

    with writing(world.engine) as connection:
        connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO reaction")
    world.clock.move_on(seconds=LEASE_MS / 1000)
    migrate_all(backend)
    assert documents_state(world, migration_id) == "completed"


def test_step_reads_only_the_document(world: BackendWorld) -> None:
    tenant = world.tenant()
    tenant("add_organizations", organizations=[ORG])
    for number in range(20):
        fill(world, tenant, f"d{number}", rows=200, first=number * 200)
    with world.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    scope = Scope(tenant.ids["api_key"], "acme")
    statements: dict[str, Any] = {}

    def record(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        statements[statement] = parameters

    event.listen(world.engine, "before_cursor_execute", record)
    with writing(world.engine) as connection:
        while move_batch(connection, scope, "d7", "new"):
            pass
    event.remove(world.engine, "before_cursor_execute", record)

    assert len(statements) > 2 * len(DEPENDENT_TABLES)
    with world.engine.connect() as connection:
        explain = "EXPLAIN QUERY PLAN " if is_sqlite(connection) else "EXPLAIN "
        if not is_sqlite(connection):
            # In tables as small as these a scan is quick; whether there is a better way in large ones is the question.
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        for statement, parameters in statements.items():
            if statement.split()[0] not in {"SELECT", "UPDATE", "DELETE"} or "FROM sqlite_master" in statement:
                continue
            plan = "\n".join(str(row[-1]) for row in connection.exec_driver_sql(explain + statement, parameters))
            for dependent in DEPENDENT_TABLES:
                name = dependent.table.name
                assert f"SCAN {name}" not in plan.replace("SCAN judgment_state", ""), f"{statement}\n{plan}"
                assert f"Seq Scan on {name} " not in plan, f"{statement}\n{plan}"
            assert "(api_key_id=? AND organization_id=?)" not in plan.replace("judgment_state", ""), (
                f"{statement}\n{plan}"
            )


def test_several_processes_share_the_work(world: BackendWorld) -> None:
    tenants = [world.tenant() for _ in range(4)]
    for tenant in tenants:
        tenant("add_documents", **ORG, documents=[{"documentId": "old"}], createOrganization=True)
        fill(world, tenant, "old", rows=10)
        begun(tenant)
    before = rows_of(world, "old")
    nodes = [backend_of(world.another_node()) for _ in range(3)]
    barrier = Barrier(len(nodes))

    def work(backend: Backend) -> None:
        barrier.wait()
        migrate_all(backend)

    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(work, nodes))

    with reading(world.engine) as connection:
        assert set(connection.scalars(select(DOCUMENT_MIGRATION.c.status))) == {"completed"}
    assert rows_of(world, "new") == before
    assert rows_of(world, "old") == {}
