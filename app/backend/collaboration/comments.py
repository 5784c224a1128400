"""The comments of threads and reactions to them, as they are stored and shown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, select

from app.backend.collaboration.tables import COMMENT, REACTION
from app.backend.scope import Scope, own_columns, within
from app.backend.storage import json_sets
from app.backend.storage.json_sets import among
from app.backend.storage.rows import insert_rows, update_rows
from app.contract.comments import CommentInput, CommentUpdate, ReactionInput
from app.contract.errors import AlreadyExists

NO_COMMENT = "Comment does not exist."

_TABLE = COMMENT.c
KEYS = (_TABLE.created_at, _TABLE.number, _TABLE.comment_id)
"""The order of a thread: by time, then as they were written."""


@dataclass(slots=True)
class StoredComment:
    """A comment; its fields are named as columns. ``payload`` has the fields by their wire names, undeclared ones
    included.
    """

    annotation_id: str
    comment_id: str
    number: int = 0
    author_id: str = ""
    payload: dict[str, object] = field(default_factory=dict)
    created_at: int = 0
    updated_at: int = 0

    def take(self, given: CommentInput | CommentUpdate) -> None:
        """Takes over the fields that were given, reactions aside."""
        self.payload |= given.unknown_fields()
        self.payload |= json_sets.without_none(
            commentText=given.comment_text, commentHtml=given.comment_html, agent=given.agent
        )
        if given.from_ is not None:
            self.author_id = given.from_.user_id
            self.payload["from"] = given.from_.to_wire()

    @property
    def size(self) -> int:
        """How long the payload is when stored, in characters."""
        return len(json_sets.dump(self.payload))

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
    """A reaction, to a comment as a rule; its fields are named as columns."""

    reaction_id: str
    document_id: str
    annotation_id: str
    comment_id: str
    user_id: str
    payload: Mapping[str, object]
    created_at: int

    def to_wire(self) -> dict[str, object]:
        return {**self.payload, "reactionId": self.reaction_id, "createdAt": self.created_at}


def stored(scope: Scope) -> Select[Any]:
    """The comments of an organization, with the columns that ``from_row`` needs."""
    return select(*own_columns(COMMENT)).where(within(COMMENT, scope))


def from_row(row: Row[Any]) -> StoredComment:
    return StoredComment(**{**row._mapping, "payload": json_sets.load_object(row.payload)})  # noqa: SLF001 - public, for all its underscore


def load_comments(
    connection: Connection, scope: Scope, annotation_ids: Iterable[str], comment_ids: Iterable[str] | None = None
) -> list[StoredComment]:
    """The comments of threads, or those of them that are named, in order."""
    query = stored(scope).where(among(connection, _TABLE.annotation_id, annotation_ids))
    if comment_ids is not None:
        query = query.where(among(connection, _TABLE.comment_id, comment_ids))
    return [from_row(row) for row in connection.execute(query.order_by(*KEYS))]


def next_number(connection: Connection, scope: Scope, annotation_id: str, now: int) -> int:
    """The number of the next comment that is written to a thread at this moment."""
    query = select(func.max(_TABLE.number)).where(
        within(COMMENT, scope), _TABLE.annotation_id == annotation_id, _TABLE.created_at == now
    )
    last = connection.scalar(query)
    return 0 if last is None else int(last) + 1


def insert_comments(connection: Connection, scope: Scope, comments: Iterable[StoredComment]) -> None:
    insert_rows(connection, COMMENT, map(scope.row, comments))


def save_comments(connection: Connection, scope: Scope, comments: Iterable[StoredComment]) -> None:
    """Writes what may change in comments that are there."""
    update_rows(connection, COMMENT, ("author_id", "payload", "updated_at"), map(scope.row, comments))


def delete_comments(connection: Connection, scope: Scope, annotation_id: str, comment_ids: Sequence[str]) -> None:
    """Deletes comments of one thread with the reactions to them."""
    for table in (REACTION, COMMENT):
        connection.execute(
            delete(table).where(
                within(table, scope),
                table.c.annotation_id == annotation_id,
                among(connection, table.c.comment_id, comment_ids),
            )
        )


def reaction(given: ReactionInput, reaction_id: str, document_id: str, comment: StoredComment, now: int) -> Reaction:
    """A new reaction to this comment."""
    payload = given.unknown_fields() | {"icon": given.icon, "from": given.from_.to_wire()}
    return Reaction(
        reaction_id, document_id, comment.annotation_id, comment.comment_id, given.from_.user_id, payload, now
    )


def insert_reactions(connection: Connection, scope: Scope, reactions: Sequence[Reaction]) -> None:
    """Raises ``AlreadyExists`` when the organization has a reaction of one of these ids."""
    if not reactions:
        return
    ids = [one.reaction_id for one in reactions]
    there = select(REACTION.c.reaction_id).where(
        within(REACTION, scope), among(connection, REACTION.c.reaction_id, ids)
    )
    taken = connection.scalars(there).all() or [one for one in ids if ids.count(one) > 1]
    if taken:
        raise AlreadyExists(f"reactionId: Reaction already exists ({taken[0]}).")
    insert_rows(connection, REACTION, map(scope.row, reactions))


def delete_reactions(connection: Connection, scope: Scope, reaction_ids: Sequence[str]) -> None:
    if reaction_ids:
        connection.execute(
            delete(REACTION).where(within(REACTION, scope), among(connection, REACTION.c.reaction_id, reaction_ids))
        )


def load_reactions(
    connection: Connection, scope: Scope, annotation_ids: Iterable[str], comment_ids: Iterable[str] | None = None
) -> dict[tuple[str, str], list[Reaction]]:
    """The reactions to the comments of threads, or to those that are named, by thread and comment."""
    query = select(*own_columns(REACTION)).where(
        within(REACTION, scope), among(connection, REACTION.c.annotation_id, annotation_ids)
    )
    if comment_ids is not None:
        query = query.where(among(connection, REACTION.c.comment_id, comment_ids))
    found: dict[tuple[str, str], list[Reaction]] = {}
    for row in connection.execute(query.order_by(REACTION.c.created_at, REACTION.c.reaction_id)):
        one = Reaction(**{**row._mapping, "payload": json_sets.load_object(row.payload)})  # noqa: SLF001 - as above
        found.setdefault((one.annotation_id, one.comment_id), []).append(one)
    return found
