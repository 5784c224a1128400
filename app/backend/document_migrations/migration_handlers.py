"""Handlers that start a migration and report its progress."""

from sqlalchemy import select

from app.backend.document_migrations import migrating
from app.backend.document_migrations.tables import DOCUMENT_MIGRATION
from app.backend.http.call import Call, Reply
from app.backend.scope import within
from app.contract.documents import MigrateDocumentsRequest, MigrateDocumentsStatusRequest
from app.contract.errors import InvalidArgument
from app.foundation.database.engine import reading


def migrate_documents(call: Call[MigrateDocumentsRequest]) -> Reply:
    """Stores the migration. A thread of the server does the work."""
    request = call.request
    with call.exclusive_write() as connection:
        migration_id = migrating.begin(
            connection, call.backend, call.scope, request.document_id, request.new_document_id, now=call.now
        )
    call.backend.migrations_due.set()
    return Reply("Migration started.", {"migrationId": migration_id})


def migrate_documents_status(call: Call[MigrateDocumentsStatusRequest]) -> Reply:
    """Reports the status. Continues the migration if no process works on it."""
    migration_id, table = call.request.migration_id, DOCUMENT_MIGRATION.c
    query = select(table.status).where(within(DOCUMENT_MIGRATION, call.scope), table.migration_id == migration_id)
    with reading(call.backend.engine) as connection:
        state = connection.scalar(query)
    if state is None:
        raise InvalidArgument("data.migrationId: there is no such migration in this organization")
    if state in {"pending", "in_progress"}:
        call.backend.migrations_due.set()
    return Reply("Migration status retrieved successfully.", {"migrationId": migration_id, "status": state})
