"""Query plans of editor data and judgments: every statement uses an index, whatever the amount of other data."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, event, insert, text

from app.backend.collaboration.deletion import delete_of_documents
from app.backend.editor.tables import EDITOR_DATA
from app.backend.embedders import open_embedder
from app.backend.judgments.record import parse_judgment
from app.backend.judgments.store import (
    delete_judgments_of_documents,
    delete_judgments_of_organizations,
    move_judgments,
)
from app.backend.scope import Scope, delete_of_organizations
from app.foundation.database.engine import is_sqlite, writing

from .conftest import BackendWorld, Caller
from .judgment_imports import import_judgments

TABLES = ("editor_data", "judgment", "judgment_vector", "judgment_state")
ROWS = 6000
EDITOR = {"organizationId": "acme", "documentId": "d1", "editorId": "e1"}


@contextmanager
def recorded(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """The statements that run in the block with their parameters, except inserts of many rows."""
    statements: list[tuple[str, Any]] = []

    def record(_: Connection, __: object, statement: str, parameters: Any, ___: object, many: bool) -> None:
        if not many and any(f" {table} " in f" {statement} ".replace("\n", " ") for table in TABLES):
            statements.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", record)
    yield statements
    event.remove(engine, "before_cursor_execute", record)


def fill(world: BackendWorld, *keys: str) -> None:
    for key, rows in zip(keys, (ROWS, 40), strict=True):
        records = (
            parse_judgment(
                {
                    "recordId": f"r{number}",
                    "organizationId": f"org{number % 10}",
                    "documentId": f"d{number % 50}",
                    "annotationId": f"t{number % 100}",
                    "decision": "approve",
                }
            )
            for number in range(rows)
        )
        assert list(import_judgments(world.engine, open_embedder("hashing"), key, records, 1))[-1] == rows
        with writing(world.engine) as connection:
            editor = {"type": "text", "content_key": "content", "state": b"\0\0", "created_at": 1, "updated_at": 1}
            connection.execute(
                insert(EDITOR_DATA),
                [
                    editor
                    | {"api_key_id": key, "organization_id": f"org{number % 10}"}
                    | {"document_id": f"d{number % 50}", "editor_id": f"e{number}"}
                    for number in range(rows)
                ],
            )
    with world.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


def plan(connection: Connection, statement: str, parameters: Any) -> str:
    explain = "EXPLAIN QUERY PLAN " if is_sqlite(connection) else "EXPLAIN "
    return "\n".join(str(row[-1]) for row in connection.exec_driver_sql(explain + statement, parameters))


def test_every_statement_uses_an_index(world: BackendWorld) -> None:
    """The statements of every operation, and of moves and deletions of documents and organizations."""
    tenant = world.tenant()
    key = tenant.ids["api_key"]
    fill(world, "another key", key)
    scope = Scope(key, "org1")

    def written(change: Callable[[Connection], object]) -> None:
        with writing(world.engine) as connection:
            change(connection)

    with recorded(world.engine) as statements:
        run_operations(tenant)
        list(
            import_judgments(
                world.engine,
                open_embedder("hashing"),
                key,
                [parse_judgment({"recordId": "r1", "organizationId": "org1", "decision": "reject"})],
                2,
            )
        )
        tenant.call("search_judgments", query="reject")
        written(lambda connection: move_judgments(connection, scope, "d11", "d77"))
        written(lambda connection: delete_judgments_of_documents(connection, scope, ["d77"]))
        written(lambda connection: delete_judgments_of_organizations(connection, key, ["org2"]))
        written(lambda connection: delete_of_documents(connection, scope, ["d77"]))
        written(lambda connection: delete_of_organizations(connection, key, ["org2"]))

    assert len({statement for statement, _ in statements}) > 15
    with world.engine.connect() as connection:
        for statement, parameters in statements:
            explained = plan(connection, statement, parameters)
            for table in TABLES:
                if table == "judgment_state":
                    continue  # One row per API key: there is nothing to look up in so small a table.
                assert f"SCAN {table} " not in f"{explained} ".replace("\n", " \n"), f"{statement}\n{explained}"
                assert f"Seq Scan on {table} " not in explained, f"{statement}\n{explained}"
                # All rows of one API key are too many as well.
                assert not re.search(rf"SEARCH {table} .*\(api_key_id=\?\)", explained), f"{statement}\n{explained}"


def run_operations(tenant: Caller) -> None:
    tenant("add_crdt_data", **EDITOR, data="x", type="text")
    tenant("update_crdt_data", **EDITOR, data="y", type="text")
    tenant("get_crdt_data", **EDITOR)
    tenant("get_crdt_data", organizationId="org1", documentId="d1")
    searches: list[dict[str, Any]] = [
        {},
        {"embeddingType": "content"},
        {"recencyDays": 3},
        {"organizationId": "org1", "filters": {"annotationId": "t1", "decision": "approve"}},
        {"organizationId": "org1", "documentId": "d1", "filters": {"reviewerId": "ada"}},
    ]
    for data in searches:
        assert tenant.call("search_judgments", query="approve", **data).status_code == 200
    tenant("query_judgments", filters={"decision": "approve"})
    tenant("query_judgments", organizationId="org1", filters={"annotationId": "t1"})


def test_editor_data_is_deleted_with_its_document(world: BackendWorld) -> None:
    tenant, other = world.tenant(), world.tenant()
    for caller in (tenant, other):
        for organization in ("acme", "beta"):
            for document in ("d1", "d2"):
                ids = {"organizationId": organization, "documentId": document, "editorId": "e1"}
                caller("add_crdt_data", **ids, data=document, type="text")
    scope = Scope(tenant.ids["api_key"], "acme")

    def held(caller: Caller) -> set[tuple[str, str, str]]:
        return {
            (organization, document, record["data"])
            for organization in ("acme", "beta")
            for document in ("d1", "d2", "d3")
            for record in caller("get_crdt_data", organizationId=organization, documentId=document)
        }

    everything = held(other)
    tenant("migrate_documents", organizationId="acme", documentId="d1", newDocumentId="d3")
    with writing(world.engine) as connection:
        delete_of_documents(connection, scope, ["d2", "nothing"])
    assert held(tenant) == {("acme", "d3", "d1"), ("beta", "d1", "d1"), ("beta", "d2", "d2")}
    with writing(world.engine) as connection:
        delete_of_organizations(connection, scope.api_key_id, ["beta"])
    assert held(tenant) == {("acme", "d3", "d1")}
    assert held(other) == everything
