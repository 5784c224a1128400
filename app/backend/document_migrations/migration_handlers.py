"""Handlers that start a migration of a document to another id, and report its progress."""

from sqlalchemy import Connection, Row, insert, or_, select, update

from app.backend.document_migrations.migrating import document_row
from app.backend.document_migrations.tables import DOCUMENT_MIGRATION
from app.backend.http.call import Call, Reply
from app.backend.ids import new_id
from app.backend.resources.containers import document_exists, require_document
from app.backend.resources.tables import DOCUMENT
from app.backend.scope import Scope, within
from app.contract.documents import MigrateDocumentsRequest, MigrateDocumentsStatusRequest
from app.contract.errors import AlreadyExists, InvalidArgument
from app.foundation.database.engine import reading

_TABLE = DOCUMENT_MIGRATION.c


def migrate_documents(call: Call[MigrateDocumentsRequest]) -> Reply:
    """Copies the document and stores the migration. A thread of the server moves the data.

    An open or failed migration with the same ids is continued instead.
    """
    scope, old, new = call.scope, call.request.document_id, call.request.new_document_id
    with call.exclusive_write() as connection:
        if old == new:
            raise InvalidArgument("data.newDocumentId: must differ from documentId")
        require_document(connection, scope, old)
        unfinished = _find_unfinished(connection, scope, old, new)
        if unfinished is None or not unfinished.open:
            _refuse_concurrent(connection, scope, old, new)
        has_copy = document_exists(connection, scope, new)
        if has_copy and unfinished is None:
            raise AlreadyExists("data.newDocumentId: Document already exists.")
        if not has_copy:
            document = connection.execute(document_row(scope, old)).mappings().one()
            connection.execute(insert(DOCUMENT).values({**document, "document_id": new}))
        begun = {"status": "pending", "open": True, "tries": 0, "updated_at": call.now}
        if unfinished is None:
            migration_id = f"mig_{new_id(call.backend.entropy)}"
            ids = {"migration_id": migration_id, "document_id": old, "new_document_id": new, "created_at": call.now}
            connection.execute(insert(DOCUMENT_MIGRATION).values(scope.columns() | ids | begun))
        else:
            migration_id = str(unfinished.migration_id)
            if not unfinished.open:
                is_unfinished = within(DOCUMENT_MIGRATION, scope) & (_TABLE.migration_id == migration_id)
                connection.execute(update(DOCUMENT_MIGRATION).where(is_unfinished).values(begun))
    call.backend.migrations_due.set()
    return Reply("Migration started.", {"migrationId": migration_id})


def migrate_documents_status(call: Call[MigrateDocumentsStatusRequest]) -> Reply:
    """Reports the status. Continues the migration if no process works on it."""
    migration_id = call.request.migration_id
    query = select(_TABLE.status).where(within(DOCUMENT_MIGRATION, call.scope), _TABLE.migration_id == migration_id)
    with reading(call.backend.engine) as connection:
        state = connection.scalar(query)
    if state is None:
        raise InvalidArgument("data.migrationId: there is no such migration in this organization")
    if state in {"pending", "in_progress"}:
        call.backend.migrations_due.set()
    return Reply("Migration status retrieved successfully.", {"migrationId": migration_id, "status": state})


def _find_unfinished(
    connection: Connection, scope: Scope, document_id: str, new_document_id: str
) -> Row[str, bool] | None:
    """The newest migration from and to these ids that is open or failed."""
    return connection.execute(
        select(_TABLE.migration_id, _TABLE.open)
        .where(
            within(DOCUMENT_MIGRATION, scope),
            _TABLE.document_id == document_id,
            _TABLE.new_document_id == new_document_id,
            _TABLE.status != "completed",
        )
        .order_by(_TABLE.created_at.desc())
        .limit(1)
    ).one_or_none()


def _refuse_concurrent(connection: Connection, scope: Scope, document_id: str, new_document_id: str) -> None:
    """Raises ``AlreadyExists`` if another migration of either id is open."""
    ids = (document_id, new_document_id)
    other = connection.scalar(
        select(_TABLE.migration_id)
        .where(
            within(DOCUMENT_MIGRATION, scope),
            or_(_TABLE.document_id.in_(ids), _TABLE.new_document_id.in_(ids)),
            _TABLE.open.is_(True),
        )
        .limit(1)
    )
    if other is not None:
        raise AlreadyExists(f"data.documentId: another migration of these documents is under way ({other})")
