"""The deletion of editor data, with what it lies in."""

from collections.abc import Iterable

from sqlalchemy import Connection, delete

from app.backend.editor.tables import EDITOR_DATA
from app.backend.scope import Scope, within
from app.backend.storage import json_sets


def delete_editor_data_of_documents(connection: Connection, scope: Scope, document_ids: Iterable[str]) -> None:
    """Deletes the data of all editors of these documents."""
    named = EDITOR_DATA.c.document_id.in_(json_sets.texts(connection, document_ids))
    connection.execute(delete(EDITOR_DATA).where(within(EDITOR_DATA, scope), named))


def delete_editor_data_of_organizations(
    connection: Connection, api_key_id: str, organization_ids: Iterable[str]
) -> None:
    """Deletes the data of all editors in these organizations."""
    named = EDITOR_DATA.c.organization_id.in_(json_sets.texts(connection, organization_ids))
    connection.execute(delete(EDITOR_DATA).where(EDITOR_DATA.c.api_key_id == api_key_id, named))
