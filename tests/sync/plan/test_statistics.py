"""Plans of many items on PostgreSQL, whose temporary tables have no statistics unless planning collects them.

Without them, PostgreSQL compares all pairs in an organization: each of these plans takes minutes.
"""

from random import Random

import pytest
from psycopg import Connection
from sqlalchemy import event, text

from app.commands.schema import METADATA
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine
from app.sync.plan.planner import PlanRequest, make_plan

FOLDERS, DOCUMENTS, GRANTS = 1_000, 10_000, 20_000

_FILL = (
    "SET LOCAL synchronous_commit = off",
    "INSERT INTO access_revision (revision, created_at, changes) VALUES (1, 1, '{}')",
    """INSERT INTO ledger (ledger_id, base_url, api_key_digest, ledger_revision, created_at)
       VALUES (1, 'http://backend', 'digest', 0, 1)""",
    """INSERT INTO model_organization (organization_id, access_type, disabled, payload, digest, source_id)
       VALUES ('acme', 'organizationPrivate', FALSE, '{}', '1', 1)""",
    """INSERT INTO model_folder (organization_id, folder_id, parent_folder_id, access_type, payload, digest, source_id)
       SELECT 'acme', 'f' || i, '', '', '{}', '1', 1 FROM generate_series(1, :folders) i""",
    """INSERT INTO model_document (organization_id, document_id, folder_id, access_type, payload, digest, source_id)
       SELECT 'acme', 'd' || i, 'f' || 1 + i % :folders, '', '{}', '1', 1 FROM generate_series(1, :documents) i""",
    """INSERT INTO ledger_item (ledger_id, kind, organization_id, container_id, item_id, digest, parent_id, access_type,
         access_role, disabled, certain)
       SELECT 1, 'documentUser', 'acme', 'd' || 1 + i % :documents, 'u' || i, '1', '', '', 'viewer', FALSE, TRUE
       FROM generate_series(1, :grants) i""",
    """INSERT INTO ledger_item (ledger_id, kind, organization_id, container_id, item_id, digest, parent_id, access_type,
         access_role, disabled, certain)
       SELECT 1, 'folder', organization_id, '', folder_id, digest, '', '', '', FALSE, TRUE FROM model_folder""",
    """INSERT INTO ledger_item (ledger_id, kind, organization_id, container_id, item_id, digest, parent_id, access_type,
         access_role, disabled, certain)
       SELECT 1, 'document', organization_id, '', document_id, digest, folder_id, '', '', FALSE, TRUE
       FROM model_document""",
)


def limit_statements(connection: Connection, _: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '30s'")
    connection.commit()


@pytest.mark.extended
def test_planning_joins_items_by_their_keys(postgres: str) -> None:
    engine = open_engine(postgres)
    METADATA.create_all(engine)
    event.listen(engine, "connect", limit_statements)
    engine.dispose()
    sizes = {"folders": FOLDERS, "documents": DOCUMENTS, "grants": GRANTS}
    with engine.begin() as connection:
        for statement in _FILL:
            parameters = {name: value for name, value in sizes.items() if f":{name}" in statement}
            connection.execute(text(statement), parameters)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE model_folder, model_document, ledger_item"))
    request = PlanRequest(ledger_id=1, now=utc_now(), limits=None)

    kept = make_plan(engine, request, random=Random(1))
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM model_document"))
        connection.execute(text("DELETE FROM model_folder"))
    gone = make_plan(engine, request, random=Random(2))
    engine.dispose()

    assert kept.counts["documentUser"] == {"delete": {"planned": GRANTS}}
    assert gone.counts["document"] == {"delete": {"planned": DOCUMENTS}}
