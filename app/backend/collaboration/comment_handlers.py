"""Handlers of the comments in a thread: add, get, update, delete. Adding threads shares what builds new comments."""

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection

from app.backend.collaboration import comments, threads
from app.backend.collaboration.comments import NO_COMMENT, Reaction, StoredComment
from app.backend.collaboration.tables import COMMENT
from app.backend.collaboration.threads import NO_ANNOTATION, Thread, author_of, comment_event, reaction_events, user_of
from app.backend.events import Event
from app.backend.http.call import Call, Reply
from app.backend.http.results import Results, done, failed, per_id
from app.backend.ids import new_id
from app.backend.permissions.access_check import users_with_access
from app.backend.resources.containers import require_document
from app.backend.storage.rows import where_given
from app.contract.comments import (
    AddCommentAnnotationsRequest,
    AddCommentsRequest,
    CommentInput,
    DeleteCommentsRequest,
    GetCommentsRequest,
    UpdateCommentsRequest,
)
from app.contract.errors import InvalidArgument, NotFound
from app.foundation.database.engine import reading

NO_ACCESS = "User does not have access to the document."

_AddCall = Call[AddCommentAnnotationsRequest] | Call[AddCommentsRequest]
_AnyWrite = Call[AddCommentsRequest] | Call[UpdateCommentsRequest] | Call[DeleteCommentsRequest]


def add_comments(call: Call[AddCommentsRequest]) -> Reply:
    """Adds comments whose authors have access. The first of equal ids wins."""
    scope = call.scope
    permitted = authors_with_access(call, call.request.comment_data)
    requested = comments_by_id(call, call.request.comment_data)
    results: Results = {}
    with call.exclusive_write() as connection:
        thread = _thread(call, connection)
        existing = {
            comment.comment_id
            for comment in comments.load_comments(connection, scope, [thread.annotation_id], requested)
        }
        allowed: dict[str, CommentInput] = {}
        for comment_id, comment in requested.items():
            if comment_id in existing:
                results[comment_id] = failed(comment_id, "Comment already exists.")
            elif permitted is not None and comment.from_.user_id not in permitted:
                results[comment_id] = failed(comment_id, NO_ACCESS)
            else:
                results[comment_id] = done(comment_id, "Comment added.")
                allowed[comment_id] = comment
        number = comments.next_number(connection, scope, thread.annotation_id, call.now)
        added, reactions = new_comments(call, thread.annotation_id, allowed, number)
        if added:
            comments.insert_comments(connection, scope, added)
            comments.insert_reactions(connection, scope, reactions)
            threads.add_participants(
                connection, scope, [(thread.annotation_id, comment.author_id) for comment in added]
            )
            _update_size(call, connection, thread, sum(comment.size for comment in added))
        events = [
            comment_event("comment.add", scope, thread, comment, user=author_of(comment.payload)) for comment in added
        ]
        call.emit(connection, events + reaction_events("comment.reaction_add", scope, thread, added, reactions))
    return Reply("Comments processed.", results)


def get_comments(call: Call[GetCommentsRequest], connection: Connection) -> Reply:
    request, scope = call.request, call.scope
    thread = _thread(call, connection)
    query = comments.stored_comments(scope).where(COMMENT.c.annotation_id == thread.annotation_id)
    query = where_given(connection, query, (COMMENT.c.comment_id, request.comment_ids))
    rows, token = call.page(connection, query, comments.COMMENT_ORDER)
    ids = [row.comment_id for row in rows]
    reactions = comments.load_reactions(connection, scope, [thread.annotation_id], ids)
    data = [comments.comment_of(row).to_wire(reactions.get((row.annotation_id, row.comment_id), ())) for row in rows]
    return Reply("Comments retrieved successfully.", data, token)


def update_comments(call: Call[UpdateCommentsRequest], connection: Connection) -> Reply:
    request, scope = call.request, call.scope
    ids = list(dict.fromkeys(request.comment_ids))
    if request.updated_data.reactions is not None and len(ids) > 1:
        raise InvalidArgument("data.updatedData.reactions: give the reactions of one comment at a time")
    thread = _thread(call, connection)
    stored = comments.load_comments(connection, scope, [thread.annotation_id], ids)
    events: list[Event] = []
    size = sum(comment.size for comment in stored)
    authors = {comment.author_id for comment in stored}
    for comment in stored:
        before = comment.to_wire()
        comment.update(request.updated_data)
        comment.updated_at = call.now
        changes = threads.changed_fields(before, comment.to_wire())
        if changes:
            user = user_of(request.action_user)
            events.append(comment_event("comment.update", scope, thread, comment, user=user, changes=changes))
    comments.update_comments(connection, scope, stored)
    if authors != {comment.author_id for comment in stored}:
        threads.refresh_participants(connection, scope, [thread.annotation_id])
    if stored:
        _update_size(call, connection, thread, sum(comment.size for comment in stored) - size)
        events += _update_reactions(call, connection, thread, stored[0])
    call.emit(connection, events)
    updated = {comment.comment_id for comment in stored}
    return Reply("Comments processed.", per_id(ids, updated, "Comment updated.", NO_COMMENT))


def delete_comments(call: Call[DeleteCommentsRequest], connection: Connection) -> Reply:
    """Deletes the thread with its last comment."""
    request, scope = call.request, call.scope
    thread = _thread(call, connection)
    stored = comments.load_comments(connection, scope, [thread.annotation_id], request.comment_ids)
    ids = [comment.comment_id for comment in stored]
    user = user_of(request.action_user)
    call.emit(connection, [comment_event("comment.delete", scope, thread, comment, user=user) for comment in stored])
    comments.delete_comments(connection, scope, thread.annotation_id, ids)
    remaining = connection.scalar(
        comments.stored_comments(scope)
        .with_only_columns(COMMENT.c.comment_id)
        .where(COMMENT.c.annotation_id == thread.annotation_id)
        .limit(1)
    )
    if remaining is None:
        threads.delete_threads(connection, scope, [thread.annotation_id])
    elif stored:
        _update_size(call, connection, thread, -sum(comment.size for comment in stored))
        threads.refresh_participants(connection, scope, [thread.annotation_id])
    requested = ids if request.comment_ids is None else request.comment_ids
    return Reply("Comments processed.", per_id(requested, ids, "Comment deleted.", NO_COMMENT))


def _thread(call: _AnyWrite | Call[GetCommentsRequest], connection: Connection) -> Thread:
    """The requested thread. Raises ``NotFound`` unless it is in the requested document."""
    request = call.request
    stored = threads.load_threads(connection, call.scope, [request.annotation_id], request.document_id)
    if not stored:
        raise NotFound(f"data.annotationId: {NO_ANNOTATION}")
    return stored[request.annotation_id]


def _update_size(call: _AnyWrite, connection: Connection, thread: Thread, difference: int) -> None:
    """Adds to the stored size of the thread's comments."""
    thread.comment_bytes += difference
    thread.updated_at = call.now
    threads.update_threads(connection, call.scope, [thread])


def _update_reactions(
    call: Call[UpdateCommentsRequest], connection: Connection, thread: Thread, comment: StoredComment
) -> list[Event]:
    """Replaces the reactions to the comment, if the request contains any. Returns the events."""
    requested, scope = call.request.updated_data.reactions, call.scope
    if requested is None:
        return []
    key = (thread.annotation_id, comment.comment_id)
    stored = comments.load_reactions(connection, scope, [thread.annotation_id], [comment.comment_id]).get(key, ())
    stored_ids = {reaction.reaction_id for reaction in stored}
    added: list[Reaction] = []
    kept: set[str] = set()
    for reaction in requested:
        if reaction.reaction_id is not None and reaction.reaction_id in stored_ids:
            kept.add(reaction.reaction_id)
        else:
            reaction_id = reaction.reaction_id or new_id(call.backend.entropy)
            added.append(comments.new_reaction(reaction, reaction_id, thread.document_id, comment, call.now))
    removed = [reaction for reaction in stored if reaction.reaction_id not in kept]
    comments.delete_reactions(connection, scope, [reaction.reaction_id for reaction in removed])
    comments.insert_reactions(connection, scope, added)
    return [
        *reaction_events("comment.reaction_delete", scope, thread, [comment], removed),
        *reaction_events("comment.reaction_add", scope, thread, [comment], added),
    ]


def authors_with_access(call: _AddCall, requested: Iterable[CommentInput]) -> frozenset[str] | None:
    """The authors with access to the document. None if the request does not verify permissions."""
    request, scope = call.request, call.scope
    if not request.verify_user_permissions:
        return None
    with reading(call.backend.engine) as connection:
        require_document(connection, scope, request.document_id)
    authors = [comment.from_.user_id for comment in requested]
    return users_with_access(call.backend, scope, request.document_id, authors, call.now)


def new_comments(
    call: _AddCall, annotation_id: str, requested: Mapping[str, CommentInput], first_number: int = 0
) -> tuple[list[StoredComment], list[Reaction]]:
    """The new comments of a thread by id, and their reactions."""
    added: list[StoredComment] = []
    reactions: list[Reaction] = []
    for number, (comment_id, item) in enumerate(requested.items(), first_number):
        comment = StoredComment(annotation_id, comment_id, number, created_at=call.now, updated_at=call.now)
        comment.update(item)
        added.append(comment)
        for reaction in item.reactions or ():
            reaction_id = reaction.reaction_id or new_id(call.backend.entropy)
            reactions.append(comments.new_reaction(reaction, reaction_id, call.request.document_id, comment, call.now))
    return added, reactions


def comments_by_id(call: _AddCall, requested: Iterable[CommentInput]) -> dict[str, CommentInput]:
    """The requested comments by id. The first of equal ids wins."""
    by_id: dict[str, CommentInput] = {}
    for comment in requested:
        by_id.setdefault(comment.comment_id or new_id(call.backend.entropy), comment)
    return by_id
