"""Deletes feature data and editor data together with its document or organization.

What a user made stays when they are removed: it is part of the documents' history and names its author. What was
addressed to them goes.
"""

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, Table, delete, select

from app.backend.collaboration.tables import (
    ACTIVITY,
    COMMENT,
    COMMENT_ANNOTATION,
    NOTIFICATION,
    NOTIFICATION_USER,
    REACTION,
    RECORDING,
    THREAD_USER,
)
from app.backend.editor.tables import EDITOR_DATA
from app.backend.resources.tables import REMOVED_USER
from app.backend.scope import Scope, delete_within, within
from app.backend.storage.json_sets import among

OF_DOCUMENT: tuple[Table, ...] = (
    COMMENT_ANNOTATION,
    REACTION,
    RECORDING,
    NOTIFICATION,
    NOTIFICATION_USER,
    ACTIVITY,
)
"""The tables whose rows name a document (``document_id``). Comments and who takes part in threads hang on threads."""

_OF_ORGANIZATION: tuple[Table, ...] = (EDITOR_DATA, COMMENT, THREAD_USER, REMOVED_USER, *OF_DOCUMENT)


def delete_of_documents(connection: Connection, scope: Scope, document_ids: Sequence[str]) -> None:
    """Deletes the data of these documents."""
    for table, parent, key in (
        (COMMENT, COMMENT_ANNOTATION, "annotation_id"),
        (THREAD_USER, COMMENT_ANNOTATION, "annotation_id"),
        (NOTIFICATION_USER, NOTIFICATION, "notification_id"),
    ):
        gone = select(parent.c[key]).where(within(parent, scope), among(connection, parent.c.document_id, document_ids))
        connection.execute(delete(table).where(within(table, scope), table.c[key].in_(gone)))
    for table in (EDITOR_DATA, *OF_DOCUMENT):
        if table is not NOTIFICATION_USER:
            connection.execute(
                delete(table).where(within(table, scope), among(connection, table.c.document_id, document_ids))
            )


def delete_of_organizations(connection: Connection, api_key_id: str, organization_ids: Iterable[str]) -> None:
    """Deletes the data of these organizations."""
    for table in _OF_ORGANIZATION:
        delete_within(connection, table, api_key_id, organization_ids)


def delete_of_users(
    connection: Connection, scope: Scope, user_ids: Iterable[str], document_id: str | None = None
) -> None:
    """Takes away what was addressed to these users: in the organization, or about one document of it."""
    which = within(NOTIFICATION_USER, scope) & among(connection, NOTIFICATION_USER.c.user_id, user_ids)
    if document_id is not None:
        which &= NOTIFICATION_USER.c.document_id == document_id
    connection.execute(delete(NOTIFICATION_USER).where(which))
