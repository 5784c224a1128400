"""What becomes of editor data when what it lies in goes away?"""

from collections.abc import Iterable

from sqlalchemy import Connection, delete

from app.backend import json_sets
from app.backend.call import Scope
from app.backend.containers import within
from app.backend.schema import EDITOR_DATA


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
