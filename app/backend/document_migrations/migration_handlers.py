"""Migrations of documents to another id: start one, and ask for its progress."""

from app.backend.document_migrations import migrating
from app.backend.http.call import Call, Reply
from app.backend.http.dispatch import exclusive_write
from app.contract.documents import MigrateDocumentsRequest, MigrateDocumentsStatusRequest
from app.contract.errors import InvalidArgument
from app.foundation.database.engine import reading


def migrate_documents(call: Call[MigrateDocumentsRequest]) -> Reply:
    """The work is done in the background, once the request is stored."""
    request = call.request
    scope = call.scope
    with exclusive_write(call) as connection:
        ids = (request.document_id, request.new_document_id)
        migration_id = migrating.begin(connection, call.backend, scope, ids, call.now)
    _go_on(call)
    return Reply("Migration started.", {"migrationId": migration_id})


def migrate_documents_status(call: Call[MigrateDocumentsStatusRequest]) -> Reply:
    """Whoever asks also sees to it that somebody works on it."""
    request = call.request
    with reading(call.backend.engine) as connection:
        scope = call.scope
        state = migrating.state_of(connection, scope, request.migration_id)
    if state is None:
        raise InvalidArgument("data.migrationId: there is no such migration in this organization")
    if state in {"pending", "in_progress"}:
        _go_on(call)
    return Reply("Migration status retrieved successfully.", {"migrationId": request.migration_id, "status": state})


def _go_on(call: Call[MigrateDocumentsRequest] | Call[MigrateDocumentsStatusRequest]) -> None:
    backend = call.backend
    backend.background.wake(lambda: migrating.migrate_all(backend))
