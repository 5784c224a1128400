"""Comment threads as they are stored and shown, and those who take part."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, insert, literal, select, union

from app.backend.collaboration.tables import COMMENT, COMMENT_ANNOTATION, REACTION, THREAD_USER
from app.backend.scope import Scope, own_columns, within
from app.backend.storage import json_sets
from app.backend.storage.json_sets import among
from app.backend.storage.paging import where_equal
from app.backend.storage.rows import insert_rows, update_rows, upsert
from app.contract import limits
from app.contract.comments import CommentAnnotationInput, CommentAnnotationUpdate
from app.contract.errors import InvalidArgument

NO_ANNOTATION = "Annotation does not exist."

_TABLE = COMMENT_ANNOTATION.c


@dataclass(slots=True)
class Thread:
    """A thread, without its comments; its fields are named as columns. ``payload`` has the fields by their wire names,
    undeclared ones included.
    """

    annotation_id: str
    document_id: str
    type: str = "comment"
    location_id: str = ""
    assigned_to: str = ""
    comment_bytes: int = 0
    payload: dict[str, object] = field(default_factory=dict)
    created_at: int = 0
    updated_at: int = 0

    def take(self, given: CommentAnnotationInput | CommentAnnotationUpdate, path: str) -> None:
        """Takes over the fields that were given; ``path`` is where they stand in the request."""
        self.payload |= given.unknown_fields()
        names = ("location", "status", "priority", "context", "visibility")
        self.payload |= json_sets.without_none(**{name: getattr(given, name) for name in names})
        if given.location is not None:
            self.location_id = _location_id(given.location, path)
        if given.type is not None:
            self.type = given.type
        if given.assigned_to is not None:
            self.assigned_to = given.assigned_to.user_id
            self.payload["assignedTo"] = given.assigned_to.to_wire()

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


def stored(scope: Scope) -> Select[Any]:
    """The threads of an organization, with the columns that ``from_row`` needs."""
    return select(*own_columns(COMMENT_ANNOTATION)).where(within(COMMENT_ANNOTATION, scope))


def from_row(row: Row[Any]) -> Thread:
    return Thread(**{**row._mapping, "payload": json_sets.load_object(row.payload)})  # noqa: SLF001 - public, for all its underscore


def load_threads(
    connection: Connection, scope: Scope, annotation_ids: Iterable[str], document_id: str | None = None
) -> dict[str, Thread]:
    """Those of the threads that are there (and lie in this document), by id."""
    query = stored(scope).where(among(connection, _TABLE.annotation_id, annotation_ids))
    query = where_equal(query, (_TABLE.document_id, document_id))
    return {row.annotation_id: from_row(row) for row in connection.execute(query)}


def insert_threads(connection: Connection, scope: Scope, threads: Iterable[Thread]) -> None:
    insert_rows(connection, COMMENT_ANNOTATION, map(scope.row, threads))


def save_threads(connection: Connection, scope: Scope, threads: Iterable[Thread]) -> None:
    """Writes what may change in threads that are there."""
    changing = ("location_id", "type", "assigned_to", "comment_bytes", "payload", "updated_at")
    update_rows(connection, COMMENT_ANNOTATION, changing, map(scope.row, threads))


def delete_threads(connection: Connection, scope: Scope, annotation_ids: Sequence[str]) -> None:
    """Deletes threads with all that is in them."""
    for table in (REACTION, COMMENT, THREAD_USER, COMMENT_ANNOTATION):
        connection.execute(
            delete(table).where(within(table, scope), among(connection, table.c.annotation_id, annotation_ids))
        )


def take_part(connection: Connection, scope: Scope, pairs: Iterable[tuple[str, str]]) -> None:
    """Notes that users take part in threads; ``pairs`` are of thread and user."""
    rows = [
        scope.columns() | {"annotation_id": annotation_id, "user_id": user_id}
        for annotation_id, user_id in dict.fromkeys(pairs)
        if user_id
    ]
    if rows:
        connection.execute(upsert(connection, THREAD_USER).on_conflict_do_nothing(), rows)


def recount_users(connection: Connection, scope: Scope, annotation_ids: Sequence[str]) -> None:
    """Finds out anew who takes part in these threads: after a comment went, or changed its author, or a thread its
    assignee.
    """
    if not annotation_ids:
        return
    connection.execute(
        delete(THREAD_USER).where(
            within(THREAD_USER, scope), among(connection, THREAD_USER.c.annotation_id, annotation_ids)
        )
    )
    authors = select(
        COMMENT.c.api_key_id, COMMENT.c.organization_id, COMMENT.c.author_id, COMMENT.c.annotation_id
    ).where(within(COMMENT, scope), among(connection, COMMENT.c.annotation_id, annotation_ids))
    assignees = select(_TABLE.api_key_id, _TABLE.organization_id, _TABLE.assigned_to, _TABLE.annotation_id).where(
        within(COMMENT_ANNOTATION, scope),
        among(connection, _TABLE.annotation_id, annotation_ids),
        _TABLE.assigned_to != literal(""),
    )
    columns = ["api_key_id", "organization_id", "user_id", "annotation_id"]
    connection.execute(insert(THREAD_USER).from_select(columns, union(authors, assignees)))


def changes(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """What became of each field that differs: ``{"from": …, "to": …}``; times aside."""
    names = [name for name in after if name != "lastUpdated" and before.get(name) != after[name]]
    return {name: {"from": before.get(name), "to": after[name]} for name in names}


def _location_id(location: Mapping[str, object], path: str) -> str:
    """The ``id`` of a location, by which threads can be found; empty for one without."""
    value = location.get("id")
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if len(text.encode()) > limits.ID_BYTES:
        raise InvalidArgument(f"{path}.location.id: must be at most {limits.ID_BYTES} bytes long in UTF-8")
    return text
