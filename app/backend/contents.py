"""What else goes away with a document or an organization?

All that hangs on it by its id, whatever room keeps it: each room has a line here.
"""

from collections.abc import Collection

from sqlalchemy import Connection

from app.backend.call import Scope
from app.backend.editor_data_store import delete_editor_data_of_documents, delete_editor_data_of_organizations
from app.backend.features.deletion import delete_of_documents, delete_of_organizations
from app.backend.judgments.store import delete_judgments_of_documents, delete_judgments_of_organizations


def forget_documents(connection: Connection, scope: Scope, document_ids: Collection[str]) -> None:
    """Deletes what hangs on these documents of one organization."""
    if document_ids:
        delete_editor_data_of_documents(connection, scope, document_ids)
        delete_judgments_of_documents(connection, scope, document_ids)
        delete_of_documents(connection, scope, list(document_ids))


def forget_organizations(connection: Connection, api_key_id: str, organization_ids: Collection[str]) -> None:
    """Deletes what hangs on these organizations of one API key."""
    if organization_ids:
        delete_editor_data_of_organizations(connection, api_key_id, organization_ids)
        delete_judgments_of_organizations(connection, api_key_id, organization_ids)
        delete_of_organizations(connection, api_key_id, organization_ids)
