"""Organizations, folders and documents as containers: is it there, and if not, may it come into being?"""

from sqlalchemy import Connection, Select, Table, bindparam, insert, select

from app.backend.resources.tables import DOCUMENT, FOLDER, ORGANIZATION
from app.backend.scope import Scope, within_bound
from app.backend.settings import SelfHostedBackendSettings
from app.contract.errors import NotFound

NO_ORGANIZATION = "Organization does not exist."
NO_FOLDER = "Folder does not exist."
NO_DOCUMENT = "Document does not exist."


def _one(table: Table, *ids: str) -> Select[str]:
    """Asks for one row by API key, organization and these ids. Put together once: most calls ask it."""
    return select(table.c.organization_id).where(within_bound(table), *(table.c[key] == bindparam(key) for key in ids))


_ONE_ORGANIZATION = _one(ORGANIZATION)
_ONE_FOLDER = _one(FOLDER, "folder_id")
_ONE_DOCUMENT = _one(DOCUMENT, "document_id")


def organization_exists(connection: Connection, scope: Scope) -> bool:
    return connection.scalar(_ONE_ORGANIZATION, scope.columns()) is not None


def folder_exists(connection: Connection, scope: Scope, folder_id: str) -> bool:
    return connection.scalar(_ONE_FOLDER, scope.columns() | {"folder_id": folder_id}) is not None


def document_exists(connection: Connection, scope: Scope, document_id: str) -> bool:
    return connection.scalar(_ONE_DOCUMENT, scope.columns() | {"document_id": document_id}) is not None


def require_document(connection: Connection, scope: Scope, document_id: str) -> None:
    """Raises ``NotFound`` unless the organization and the document are there."""
    if not organization_exists(connection, scope):
        raise NotFound(f"data.organizationId: {NO_ORGANIZATION}")
    if not document_exists(connection, scope, document_id):
        raise NotFound(f"data.documentId: {NO_DOCUMENT}")


def ensure_organization(connection: Connection, scope: Scope, now: int) -> None:
    """Makes the organization if it is not there. It goes by its id until someone names it."""
    if not organization_exists(connection, scope):
        connection.execute(
            insert(ORGANIZATION).values(**scope.columns(), disabled=False, payload="{}", created_at=now, updated_at=now)
        )


def ensure_folder(
    connection: Connection, scope: Scope, folder_id: str, settings: SelfHostedBackendSettings, now: int
) -> None:
    """Makes the folder at the top of the tree if it is not there."""
    if not folder_exists(connection, scope, folder_id):
        connection.execute(insert(FOLDER).values(new_top_folder(scope, folder_id, settings, now)))


def new_top_folder(scope: Scope, folder_id: str, settings: SelfHostedBackendSettings, now: int) -> dict[str, object]:
    """The row of a nameless folder at the top of the tree that inherits its access type."""
    return scope.columns() | {
        "folder_id": folder_id,
        "parent_folder_id": "",
        "ancestors": "[]",
        "depth": 0,
        "own_access_type": None,
        "access_type": settings.default_access_type,
        "payload": "{}",
        "created_at": now,
        "updated_at": now,
    }


def ensure_document(connection: Connection, scope: Scope, document_id: str, now: int) -> None:
    """Makes the document at the top of the tree if it is not there."""
    if not document_exists(connection, scope, document_id):
        connection.execute(
            insert(DOCUMENT).values(
                **scope.columns(),
                document_id=document_id,
                folder_id="",
                own_access_type=None,
                payload="{}",
                created_at=now,
                updated_at=now,
            )
        )
