"""Deletes feature data and editor data with its document.

Data that a user created stays when the user is removed, because it is part of the history of documents. Notifications
for the user are deleted.
"""

from collections.abc import Collection, Iterable

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
from app.backend.scope import Scope, delete_rows, within, within_ids

OF_DOCUMENT: tuple[Table, ...] = (COMMENT_ANNOTATION, REACTION, RECORDING, NOTIFICATION, ACTIVITY, EDITOR_DATA)
"""The tables with an index by document."""

_CHILDREN = (
    (COMMENT, COMMENT_ANNOTATION, "annotation_id"),
    (THREAD_USER, COMMENT_ANNOTATION, "annotation_id"),
    (NOTIFICATION_USER, NOTIFICATION, "notification_id"),
)
"""Table, parent table, and the id of the parent."""


def delete_of_documents(connection: Connection, scope: Scope, document_ids: Collection[str]) -> None:
    for table, parent, key in _CHILDREN:
        ids = select(parent.c[key]).where(within_ids(connection, scope, parent.c.document_id, document_ids))
        connection.execute(delete(table).where(within(table, scope), table.c[key].in_(ids)))
    for table in OF_DOCUMENT:
        delete_rows(connection, scope, table.c.document_id, document_ids)


def delete_of_users(connection: Connection, scope: Scope, user_ids: Iterable[str], document_id: str | None) -> None:
    """Deletes these users' notifications in the organization, or those about one document."""
    where = within_ids(connection, scope, NOTIFICATION_USER.c.user_id, user_ids)
    if document_id is not None:
        where &= NOTIFICATION_USER.c.document_id == document_id
    connection.execute(delete(NOTIFICATION_USER).where(where))
