"""Checks whether organizations, folders and documents exist, and creates missing ones."""

from sqlalchemy import Connection, select

from app.backend.resources.folder_tree import TOP, FolderTree
from app.backend.resources.tables import DOCUMENT, FOLDER, ORGANIZATION
from app.backend.scope import Scope, existing, within
from app.backend.settings import SelfHostedBackendSettings
from app.backend.storage.rows import insert_rows
from app.contract.errors import NotFound

NO_ORGANIZATION = "Organization does not exist."
NO_FOLDER = "Folder does not exist."
NO_DOCUMENT = "Document does not exist."


def organization_exists(connection: Connection, scope: Scope) -> bool:
    query = select(ORGANIZATION.c.organization_id).where(within(ORGANIZATION, scope))
    return connection.scalar(query) is not None


def folder_exists(connection: Connection, scope: Scope, folder_id: str) -> bool:
    return folder_id in existing(connection, scope, FOLDER.c.folder_id, [folder_id])


def document_exists(connection: Connection, scope: Scope, document_id: str) -> bool:
    return document_id in existing(connection, scope, DOCUMENT.c.document_id, [document_id])


def require_document(connection: Connection, scope: Scope, document_id: str) -> None:
    """Raises ``NotFound`` unless the organization and the document exist."""
    if not organization_exists(connection, scope):
        raise NotFound(f"data.organizationId: {NO_ORGANIZATION}")
    if not document_exists(connection, scope, document_id):
        raise NotFound(f"data.documentId: {NO_DOCUMENT}")


def ensure_organization(connection: Connection, scope: Scope, now: int) -> None:
    """Creates the organization, without a name, unless it exists."""
    if not organization_exists(connection, scope):
        insert_rows(connection, ORGANIZATION, [scope.payload_row({}, now, disabled=False)])


def ensure_folder(
    connection: Connection, scope: Scope, folder_id: str, settings: SelfHostedBackendSettings, now: int
) -> None:
    """Creates the folder at the top of the tree, unless it exists."""
    if not folder_exists(connection, scope, folder_id):
        tree = FolderTree(connection, scope, settings.default_access_type)
        tree.add(folder_id, TOP)
        tree.save(now)


def ensure_document(connection: Connection, scope: Scope, document_id: str, now: int) -> None:
    """Creates the document at the top of the tree, unless it exists."""
    if not document_exists(connection, scope, document_id):
        insert_rows(connection, DOCUMENT, [scope.payload_row({}, now, document_id=document_id, folder_id=TOP)])
