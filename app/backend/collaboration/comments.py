"""Loads and stores the comments of threads and their reactions."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, Select, delete, func, select

from app.backend.collaboration.tables import COMMENT, REACTION
from app.backend.scope import Scope, delete_rows, existing, own_columns, within, within_ids
from app.backend.storage import json_columns
from app.backend.storage.rows import insert_rows, update_rows, where_given
from app.contract.comments import CommentInput, CommentUpdate, ReactionInput
from app.contract.errors import AlreadyExists
from app.foundation.batches import grouped

if TYPE_CHECKING:
    from app.backend.collaboration.import_records import CommentRecord

NO_COMMENT = "Comment does not exist."

COMMENT_ORDER = (COMMENT.c.created_at, COMMENT.c.number, COMMENT.c.comment_id)
"""The order of the comments in a thread."""


@dataclass(slots=True)
class StoredComment:
    """A row of ``COMMENT``. ``payload`` has wire names, and includes undeclared fields."""

    annotation_id: str
    comment_id: str
    number: int = 0
    author_id: str = ""
    payload: dict[str, object] = field(default_factory=dict)
    created_at: int = 0
    updated_at: int = 0

    def update(self, changes: "CommentInput | CommentUpdate | CommentRecord") -> None:
        """Sets the requested fields, except reactions."""
        self.payload |= changes.unknown_fields() | json_columns.without_none(
            commentText=changes.comment_text, commentHtml=changes.comment_html, agent=changes.agent
        )
        if changes.from_ is not None:
            self.author_id = changes.from_.user_id
            self.payload["from"] = changes.from_.to_wire()

    @property
    def size(self) -> int:
        """The length of the stored payload in characters."""
        return len(json_columns.dump(self.payload))

    def to_wire(self, reactions: Sequence["Reaction"] = ()) -> dict[str, object]:
        wire: dict[str, object] = {
            **self.payload,
            "commentId": self.comment_id,
            "createdAt": self.created_at,
            "lastUpdated": self.updated_at,
        }
        if reactions:
            wire["reactions"] = [reaction.to_wire() for reaction in reactions]
        return wire


@dataclass(frozen=True, slots=True)
class Reaction:
    """A row of ``REACTION``."""

    reaction_id: str
    document_id: str
    annotation_id: str
    comment_id: str
    user_id: str
    payload: Mapping[str, object]
    created_at: int

    def to_wire(self) -> dict[str, object]:
        return {**self.payload, "reactionId": self.reaction_id, "createdAt": self.created_at}


def stored_comments(scope: Scope) -> Select[Any]:
    """A query of an organization's comments, with the columns that ``comment_of`` needs."""
    return select(*own_columns(COMMENT)).where(within(COMMENT, scope))


def comment_of(row: Row[Any]) -> StoredComment:
    return StoredComment(**fields_of(row))


def fields_of(row: Row[Any]) -> dict[str, Any]:
    """The columns of a row by name, with the payload as an object."""
    return {**row._mapping, "payload": json_columns.load_object(row.payload)}  # noqa: SLF001 - public, despite its name


def load_comments(
    connection: Connection, scope: Scope, annotation_ids: Collection[str], comment_ids: Collection[str] | None = None
) -> list[StoredComment]:
    """The comments of threads in order, optionally only those with these ids."""
    filters = ((COMMENT.c.annotation_id, annotation_ids), (COMMENT.c.comment_id, comment_ids))
    query = where_given(connection, stored_comments(scope), *filters)
    return [comment_of(row) for row in connection.execute(query.order_by(*COMMENT_ORDER))]


def next_number(connection: Connection, scope: Scope, annotation_id: str, now: int) -> int:
    """The number of the next comment that is created at ``now``: numbers order a thread's comments of a millisecond."""
    query = select(func.max(COMMENT.c.number)).where(
        within(COMMENT, scope), COMMENT.c.annotation_id == annotation_id, COMMENT.c.created_at == now
    )
    last = connection.scalar(query)
    return 0 if last is None else int(last) + 1


def insert_comments(connection: Connection, scope: Scope, comments: Iterable[StoredComment]) -> None:
    insert_rows(connection, COMMENT, map(scope.row, comments))


def update_comments(connection: Connection, scope: Scope, comments: Iterable[StoredComment]) -> None:
    update_rows(connection, COMMENT, ("author_id", "payload", "updated_at"), map(scope.row, comments))


def delete_comments(connection: Connection, scope: Scope, annotation_id: str, comment_ids: Sequence[str]) -> None:
    """Deletes comments of one thread with their reactions."""
    for table in (REACTION, COMMENT):
        connection.execute(
            delete(table).where(
                within_ids(connection, scope, table.c.comment_id, comment_ids), table.c.annotation_id == annotation_id
            )
        )


def new_reaction(
    request: ReactionInput, reaction_id: str, document_id: str, comment: StoredComment, now: int
) -> Reaction:
    payload = request.unknown_fields() | {"icon": request.icon, "from": request.from_.to_wire()}
    user_id = request.from_.user_id
    return Reaction(reaction_id, document_id, comment.annotation_id, comment.comment_id, user_id, payload, now)


def insert_reactions(connection: Connection, scope: Scope, reactions: Sequence[Reaction]) -> None:
    """Raises ``AlreadyExists`` if the organization has a reaction with one of the ids, or an id occurs twice."""
    if not reactions:
        return
    ids = [reaction.reaction_id for reaction in reactions]
    repeated = [reaction_id for reaction_id, times in Counter(ids).items() if times > 1]
    conflicts = sorted(existing(connection, scope, REACTION.c.reaction_id, ids)) or repeated
    if conflicts:
        raise AlreadyExists(f"reactionId: Reaction already exists ({conflicts[0]}).")
    insert_rows(connection, REACTION, map(scope.row, reactions))


def delete_reactions(connection: Connection, scope: Scope, reaction_ids: Sequence[str]) -> None:
    if reaction_ids:
        delete_rows(connection, scope, REACTION.c.reaction_id, reaction_ids)


def load_reactions(
    connection: Connection, scope: Scope, annotation_ids: Collection[str], comment_ids: Collection[str] | None = None
) -> dict[tuple[str, str], list[Reaction]]:
    """The reactions in threads by thread and comment, optionally only those to these comments."""
    of_threads = within_ids(connection, scope, REACTION.c.annotation_id, annotation_ids)
    query = select(*own_columns(REACTION)).where(of_threads)
    query = where_given(connection, query, (REACTION.c.comment_id, comment_ids))
    rows = connection.execute(query.order_by(REACTION.c.created_at, REACTION.c.reaction_id))
    return grouped(((row.annotation_id, row.comment_id), Reaction(**fields_of(row))) for row in rows)
