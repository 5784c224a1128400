"""Handlers that move a document to another id, and report the status of such a migration."""

from sqlalchemy import Connection, delete, insert, select, update

from app.backend.collaboration.deletion import OF_DOCUMENT
from app.backend.collaboration.tables import DOCUMENT_MIGRATION, NOTIFICATION, NOTIFICATION_USER
from app.backend.http.call import Call, Reply
from app.backend.ids import new_id
from app.backend.judgments.store import move_judgments
from app.backend.resources.containers import document_exists, require_document
from app.backend.resources.tables import DOCUMENT, USER_ENTRY
from app.backend.resources.user_entries import EntryContainer, at
from app.backend.scope import Scope, within
from app.contract.documents import MigrateDocumentsRequest, MigrateDocumentsStatusRequest
from app.contract.errors import AlreadyExists, InvalidArgument

_RETENTION_MS = 30 * 24 * 3600 * 1000
"""How long the status of a migration is kept."""


def migrate_documents(call: Call[MigrateDocumentsRequest], connection: Connection) -> Reply:
    """Moves the document with its data in the transaction of the call, so that the migration is complete at once."""
    scope, old, new = call.scope, call.request.document_id, call.request.new_document_id
    if old == new:
        raise InvalidArgument("data.newDocumentId: must differ from documentId")
    require_document(connection, scope, old)
    if document_exists(connection, scope, new):
        raise AlreadyExists("data.newDocumentId: Document already exists.")
    _move(connection, scope, old, new)
    migration_id = f"mig_{new_id(call.backend.entropy)}"
    ids = {"migration_id": migration_id, "document_id": old, "new_document_id": new}
    row = scope.columns() | ids | {"status": "completed", "created_at": call.now}
    connection.execute(insert(DOCUMENT_MIGRATION).values(row))
    table = DOCUMENT_MIGRATION.c
    is_old = (table.api_key_id == scope.api_key_id) & (table.created_at < call.now - _RETENTION_MS)
    connection.execute(delete(DOCUMENT_MIGRATION).where(is_old))
    return Reply("Document migrated.", {"migrationId": migration_id})


def migrate_documents_status(call: Call[MigrateDocumentsStatusRequest], connection: Connection) -> Reply:
    """Reports ``completed``, or ``failed`` for a migration that an earlier version did not complete."""
    migration_id, table = call.request.migration_id, DOCUMENT_MIGRATION.c
    query = select(table.status).where(within(DOCUMENT_MIGRATION, call.scope), table.migration_id == migration_id)
    status = connection.scalar(query)
    if status is None:
        raise InvalidArgument("data.migrationId: there is no such migration in this organization")
    return Reply("Migration status retrieved successfully.", {"migrationId": migration_id, "status": status})


def _move(connection: Connection, scope: Scope, old: str, new: str) -> None:
    """Updates the id of a document in every table. The new document has no rows that could conflict: writes require a
    document, and its deletion deletes them."""
    # Recipients first: they have no index by document, so they are found by the notifications of the old document.
    of_document = select(NOTIFICATION.c.notification_id).where(
        within(NOTIFICATION, scope), NOTIFICATION.c.document_id == old
    )
    recipients = within(NOTIFICATION_USER, scope) & NOTIFICATION_USER.c.notification_id.in_(of_document)
    connection.execute(update(NOTIFICATION_USER).where(recipients).values(document_id=new))
    for table in (DOCUMENT, *OF_DOCUMENT):
        rows = within(table, scope) & (table.c.document_id == old)
        connection.execute(update(table).where(rows).values(document_id=new))
    entries = at(scope, EntryContainer("document", old))
    connection.execute(update(USER_ENTRY).where(entries).values(container_id=new))
    move_judgments(connection, scope, old, new)
