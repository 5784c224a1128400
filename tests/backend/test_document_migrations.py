"""Migrations of documents to another id."""

from collections import Counter
from typing import Any

import pytest
from sqlalchemy import Table, event, insert, select, update

from app.backend.collaboration.tables import DOCUMENT_MIGRATION
from app.backend.resources.tables import USER_ENTRY
from app.backend.schema import METADATA
from app.foundation.database.engine import is_sqlite, reading, writing

from .conftest import BackendWorld, Caller

ORG = {"organizationId": "acme"}
MOVE = ORG | {"documentId": "old", "newDocumentId": "new"}
ROWS = 30
NOT_DEPENDENT = {"document", "document_migration"}
"""Tables with document ids whose rows do not depend on the document."""
DEPENDENT: dict[Table, str] = {
    table: "document_id"
    for table in METADATA.sorted_tables
    if "document_id" in table.columns and table.name not in NOT_DEPENDENT
} | {USER_ENTRY: "container_id"}
"""The column with the document's id, by table."""
SAMPLE: dict[str, Any] = {"int": 1, "bool": False, "bytes": b"x"}


def fill(world: BackendWorld, tenant: Caller, document_id: str, *, rows: int = ROWS, first: int = 0) -> None:
    """Inserts generated rows of the document into every dependent table."""
    with writing(world.engine) as connection:
        for table, column in DEPENDENT.items():
            values = []
            for number in range(first, first + rows):
                row: dict[str, Any] = {
                    name: SAMPLE.get(one.type.python_type.__name__, "x")
                    for name, one in table.columns.items()
                    if not one.nullable
                }
                row |= {one.name: number + 1 if one.name == "seq" else f"k{number}" for one in table.primary_key}
                row |= {"api_key_id": tenant.ids["api_key"], "organization_id": "acme", column: document_id}
                row |= {"payload": "{}"} if "payload" in table.columns else {}
                row |= {"level": "document"} if table is USER_ENTRY else {}
                row |= {"record_id": f"r{number}"} if "record_id" in table.columns else {}
                values.append(row)
            connection.execute(insert(table), values)


def rows_of(world: BackendWorld, document_id: str) -> dict[str, int]:
    """The number of the document's rows in each table, with the document itself."""
    counts: Counter[str] = Counter()
    with reading(world.engine) as connection:
        for table, column in {**DEPENDENT, METADATA.tables["document"]: "document_id"}.items():
            counts[table.name] = len(connection.execute(select(table).where(table.c[column] == document_id)).all())
    return {name: count for name, count in counts.items() if count}


def status_of(tenant: Caller, migration_id: str) -> str:
    answer = tenant("migrate_documents_status", **ORG, migrationId=migration_id)
    assert answer["migrationId"] == migration_id
    return str(answer["status"])


@pytest.fixture
def documents(world: BackendWorld) -> Caller:
    """A tenant with a document that has data, and another one that must not change."""
    tenant = world.tenant()
    documents = [{"documentId": "old", "documentName": "Old"}, {"documentId": "other"}]
    tenant("add_documents", **ORG, documents=documents, createOrganization=True)
    fill(world, tenant, "old")
    fill(world, tenant, "other", first=ROWS)
    return tenant


def test_all_data_moves(world: BackendWorld, documents: Caller) -> None:
    before, other = rows_of(world, "old"), rows_of(world, "other")
    assert set(before.values()) == {ROWS, 1}
    assert len(before) == len(DEPENDENT) + 1

    migration = documents("migrate_documents", **MOVE)["migrationId"]

    assert status_of(documents, migration) == "completed"
    assert rows_of(world, "new") == before
    assert rows_of(world, "old") == {}
    assert rows_of(world, "other") == other
    (moved,) = documents("get_documents", **ORG, documentIds=["old", "new"])
    assert (moved["id"], moved["documentName"]) == ("new", "Old")


def test_document_moves_back(world: BackendWorld, documents: Caller) -> None:
    before = rows_of(world, "old")
    documents("migrate_documents", **MOVE)
    documents("migrate_documents", **ORG, documentId="new", newDocumentId="old")

    assert rows_of(world, "old") == before


def test_deleted_document_leaves_no_rows_that_conflict(world: BackendWorld, documents: Caller) -> None:
    documents("migrate_documents", **MOVE)
    documents("delete_documents", **ORG, documentIds=["new"])
    documents("migrate_documents", **ORG, documentId="other", newDocumentId="new")

    assert set(rows_of(world, "new").values()) == {ROWS, 1}


def test_status_is_deleted_after_a_month(world: BackendWorld, documents: Caller) -> None:
    first = documents("migrate_documents", **MOVE)["migrationId"]
    for days, is_known in ((29, True), (2, False)):
        world.clock.move_on(days=days)
        names = documents("get_documents", **ORG)
        old = next(one["id"] for one in names if one["id"] != "other")
        documents("migrate_documents", **ORG, documentId=old, newDocumentId=f"new{days}")
        with reading(world.engine) as connection:
            assert (first in set(connection.scalars(select(DOCUMENT_MIGRATION.c.migration_id)))) == is_known


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


def test_status_of_an_unknown_migration(world: BackendWorld, documents: Caller) -> None:
    migration_id = documents("migrate_documents", **MOVE)["migrationId"]
    message = "data.migrationId: there is no such migration in this organization"

    for tenant, ids in (
        (documents, ORG | {"migrationId": "none"}),
        (documents, {"organizationId": "other", "migrationId": migration_id}),
        (world.tenant(), ORG | {"migrationId": migration_id}),
    ):
        assert tenant.refused("migrate_documents_status", **ids) == (400, "INVALID_ARGUMENT", message)


def test_failed_migration_of_an_earlier_version(world: BackendWorld, documents: Caller) -> None:
    migration_id = documents("migrate_documents", **MOVE)["migrationId"]
    with writing(world.engine) as connection:
        connection.execute(update(DOCUMENT_MIGRATION).values(status="failed"))

    assert status_of(documents, migration_id) == "failed"


def test_migration_reads_only_the_document(world: BackendWorld) -> None:
    tenant = world.tenant()
    documents = [{"documentId": f"d{number}"} for number in range(20)]
    tenant("add_documents", **ORG, documents=documents, createOrganization=True)
    for number in range(20):
        fill(world, tenant, f"d{number}", rows=200, first=number * 200)
    with world.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    statements: dict[str, Any] = {}

    def record(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        statements[statement] = parameters

    event.listen(world.engine, "before_cursor_execute", record)
    tenant("migrate_documents", **ORG, documentId="d7", newDocumentId="new")
    event.remove(world.engine, "before_cursor_execute", record)

    names = {table.name for table in DEPENDENT}
    checked = {
        name: plan for statement, plan in plans(world, statements).items() for name in names if name in statement
    }
    assert set(checked) == names
    for plan in plans(world, statements).values():
        for name in names:
            assert f"SCAN {name}" not in plan.replace("SCAN judgment_state", ""), plan
            assert f"Seq Scan on {name} " not in plan, plan
        assert "(api_key_id=? AND organization_id=?)" not in plan.replace("judgment_state", ""), plan


def plans(world: BackendWorld, statements: dict[str, Any]) -> dict[str, str]:
    with world.engine.connect() as connection:
        explain = "EXPLAIN QUERY PLAN " if is_sqlite(connection) else "EXPLAIN "
        if not is_sqlite(connection):
            # In tables as small as these a scan is quick; whether there is a better way in large ones is the question.
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        return {
            statement: "\n".join(str(row[-1]) for row in connection.exec_driver_sql(explain + statement, parameters))
            for statement, parameters in statements.items()
            if statement.split()[0] == "UPDATE"
        }
