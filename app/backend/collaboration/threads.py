"""Comment threads: loads and stores them and their participants, and builds their events."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, Select, insert, select, union

from app.backend.collaboration.comments import Reaction, StoredComment, fields_of
from app.backend.collaboration.tables import COMMENT, COMMENT_ANNOTATION, REACTION, THREAD_USER
from app.backend.events import Event
from app.backend.scope import Scope, delete_rows, own_columns, within, within_ids
from app.backend.storage import json_columns
from app.backend.storage.rows import insert_rows, update_rows, upsert, where_given
from app.contract import limits
from app.contract.base import UserReference
from app.contract.comments import CommentAnnotationInput, CommentAnnotationUpdate
from app.contract.errors import InvalidArgument

NO_ANNOTATION = "Annotation does not exist."

_TABLE = COMMENT_ANNOTATION.c


@dataclass(slots=True)
class Thread:
    """A row of ``COMMENT_ANNOTATION``. ``payload`` has wire names, and includes undeclared fields."""

    annotation_id: str
    document_id: str
    type: str = "comment"
    location_id: str = ""
    assigned_to: str = ""
    comment_bytes: int = 0
    payload: dict[str, object] = field(default_factory=dict)
    created_at: int = 0
    updated_at: int = 0

    def update(self, changes: CommentAnnotationInput | CommentAnnotationUpdate, prefix: str) -> None:
        """Sets the requested fields. ``prefix`` precedes their names in errors. Raises ``InvalidArgument``."""
        names = ("location", "status", "priority", "context", "visibility")
        self.payload |= changes.unknown_fields()
        self.payload |= json_columns.without_none(**{name: getattr(changes, name) for name in names})
        if changes.location is not None:
            self.location_id = _location_id(changes.location, prefix)
        if changes.type is not None:
            self.type = changes.type
        if changes.assigned_to is not None:
            self.assigned_to = changes.assigned_to.user_id
            self.payload["assignedTo"] = changes.assigned_to.to_wire()

    def to_wire(self, scope: Scope) -> dict[str, object]:
        return {
            **self.payload,
            "annotationId": self.annotation_id,
            "organizationId": scope.organization_id,
            "documentId": self.document_id,
            "type": self.type,
            "createdAt": self.created_at,
            "lastUpdated": self.updated_at,
        }


def stored_threads(scope: Scope) -> Select[Any]:
    """A query of an organization's threads, with the columns that ``thread_of`` needs."""
    return select(*own_columns(COMMENT_ANNOTATION)).where(within(COMMENT_ANNOTATION, scope))


def thread_of(row: Row[Any]) -> Thread:
    """The thread in a row of ``stored_threads``."""
    return Thread(**fields_of(row))


def load_threads(
    connection: Connection, scope: Scope, annotation_ids: Collection[str], document_id: str | None = None
) -> dict[str, Thread]:
    """The existing ones of these threads by id, oldest first, optionally only those in the document."""
    filters = ((_TABLE.annotation_id, annotation_ids), (_TABLE.document_id, document_id))
    query = where_given(connection, stored_threads(scope), *filters).order_by(_TABLE.created_at, _TABLE.annotation_id)
    return {row.annotation_id: thread_of(row) for row in connection.execute(query)}


def insert_threads(connection: Connection, scope: Scope, threads: Iterable[Thread]) -> None:
    insert_rows(connection, COMMENT_ANNOTATION, map(scope.row, threads))


def update_threads(connection: Connection, scope: Scope, threads: Iterable[Thread]) -> None:
    columns = ("location_id", "type", "assigned_to", "comment_bytes", "payload", "updated_at")
    update_rows(connection, COMMENT_ANNOTATION, columns, map(scope.row, threads))


def delete_threads(connection: Connection, scope: Scope, annotation_ids: Sequence[str]) -> None:
    """Deletes threads with their comments, reactions and participants."""
    for table in (REACTION, COMMENT, THREAD_USER, COMMENT_ANNOTATION):
        delete_rows(connection, scope, table.c.annotation_id, annotation_ids)


def add_participants(connection: Connection, scope: Scope, pairs: Iterable[tuple[str, str]]) -> None:
    """Adds users to the participants of threads. A pair is a thread and a user, which may be empty."""
    rows = [
        scope.columns() | {"annotation_id": annotation_id, "user_id": user_id}
        for annotation_id, user_id in dict.fromkeys(pairs)
        if user_id
    ]
    if rows:
        connection.execute(upsert(connection, THREAD_USER).on_conflict_do_nothing(), rows)


def refresh_participants(connection: Connection, scope: Scope, annotation_ids: Sequence[str]) -> None:
    """Replaces the participants of threads by their authors and assignees, after one of these was removed."""
    if not annotation_ids:
        return
    delete_rows(connection, scope, THREAD_USER.c.annotation_id, annotation_ids)
    queries = [
        select(table.c.api_key_id, table.c.organization_id, user, table.c.annotation_id).where(
            within_ids(connection, scope, table.c.annotation_id, annotation_ids), user != ""
        )
        for table, user in ((COMMENT, COMMENT.c.author_id), (COMMENT_ANNOTATION, _TABLE.assigned_to))
    ]
    columns = ["api_key_id", "organization_id", "user_id", "annotation_id"]
    connection.execute(insert(THREAD_USER).from_select(columns, union(*queries)))


def changed_fields(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """The fields that differ, each as ``{"from": …, "to": …}``, without ``lastUpdated``."""
    names = [name for name in after if name != "lastUpdated" and before.get(name) != after[name]]
    return {name: {"from": before.get(name), "to": after[name]} for name in names}


def _location_id(location: Mapping[str, object], prefix: str) -> str:
    """The ``id`` of a location, or an empty string."""
    value = location.get("id")
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if len(text.encode()) > limits.ID_BYTES:
        raise InvalidArgument(f"{prefix}location.id: must be at most {limits.ID_BYTES} bytes long in UTF-8")
    return text


def comment_event(
    event_type: str,
    scope: Scope,
    thread: Thread,
    comment: StoredComment | None,
    *,
    user: Mapping[str, object],
    reaction: Reaction | None = None,
    changes: Mapping[str, object] | None = None,
) -> Event:
    """An event about a thread, or about a comment in it."""
    return Event(
        type=event_type,
        organization_id=scope.organization_id,
        document_id=thread.document_id,
        target_id=thread.annotation_id,
        location_id=thread.location_id,
        action_user=user,
        annotation=thread.to_wire(scope),
        comment=None if comment is None else comment.to_wire(),
        reaction=None if reaction is None else reaction.to_wire(),
        changes=changes or {},
    )


def reaction_events(
    event_type: str, scope: Scope, thread: Thread, comments: Iterable[StoredComment], reactions: Iterable[Reaction]
) -> list[Event]:
    """An event for each reaction. The acting user is its author, also when it is deleted."""
    by_id = {comment.comment_id: comment for comment in comments}
    events = []
    for reaction in reactions:
        comment, user = by_id[reaction.comment_id], author_of(reaction.payload)
        events.append(comment_event(event_type, scope, thread, comment, user=user, reaction=reaction))
    return events


def user_of(reference: UserReference | None) -> dict[str, object]:
    """The requested acting user, or an empty object."""
    return {} if reference is None else reference.to_wire()


def author_of(payload: Mapping[str, object]) -> dict[str, object]:
    """The author of a comment or reaction."""
    author = payload.get("from")
    return author if isinstance(author, dict) else {}
