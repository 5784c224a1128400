"""Documents that get another id: begin, and tell how far it is."""

from app.backend import document_migrations
from app.backend.call import Call, Reply, Scope
from app.backend.dispatch import writing_alone
from app.backend.registry import Registry
from app.contract import operations
from app.contract.documents import MigrateDocumentsRequest, MigrateDocumentsStatusRequest
from app.contract.errors import InvalidArgument
from app.database.engine import reading


def register(registry: Registry) -> None:
    registry.add_on_its_own(operations.MIGRATE_DOCUMENTS, migrate_documents)
    registry.add_on_its_own(operations.MIGRATE_DOCUMENTS_STATUS, migrate_documents_status)


def migrate_documents(call: Call[MigrateDocumentsRequest]) -> Reply:
    """The work is done in the background, once the request is stored."""
    request = call.request
    scope = Scope(call.caller.api_key_id, request.organization_id)
    with writing_alone(call) as connection:
        ids = (request.document_id, request.new_document_id)
        migration_id = document_migrations.begin(connection, call.backend, scope, ids, call.now)
    _go_on(call)
    return Reply("Migration started.", {"migrationId": migration_id})


def migrate_documents_status(call: Call[MigrateDocumentsStatusRequest]) -> Reply:
    """Whoever asks also sees to it that somebody works on it."""
    request = call.request
    with reading(call.backend.engine) as connection:
        scope = Scope(call.caller.api_key_id, request.organization_id)
        state = document_migrations.state_of(connection, scope, request.migration_id)
    if state is None:
        raise InvalidArgument("data.migrationId: there is no such migration in this organization")
    if state in {"pending", "in_progress"}:
        _go_on(call)
    return Reply("Migration status retrieved successfully.", {"migrationId": request.migration_id, "status": state})


def _go_on(call: Call[MigrateDocumentsRequest] | Call[MigrateDocumentsStatusRequest]) -> None:
    backend = call.backend
    backend.background.wake(lambda: document_migrations.migrate_all(backend))
