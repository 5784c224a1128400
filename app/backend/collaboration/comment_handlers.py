"""Comments of a thread: add, read by page, update, delete."""

from typing import TypeVar

from sqlalchemy import Connection

from app.backend.collaboration import comments, threads
from app.backend.collaboration.comment_annotation_handlers import NO_ACCESS, authors_let_in, new_comments
from app.backend.collaboration.comments import NO_COMMENT, Reaction, StoredComment
from app.backend.collaboration.tables import COMMENT
from app.backend.collaboration.thread_events import author_of, comment_event, reaction_events, user_of
from app.backend.collaboration.threads import NO_ANNOTATION, Thread
from app.backend.events import Event
from app.backend.http.call import Call, Reply
from app.backend.http.dispatch import exclusive_write
from app.backend.http.results import Results, done, failed, per_id
from app.backend.ids import new_id
from app.backend.scope import Scope
from app.backend.storage.json_sets import among
from app.contract.comments import (
    AddCommentsRequest,
    CommentInput,
    DeleteCommentsRequest,
    GetCommentsRequest,
    UpdateCommentsRequest,
)
from app.contract.errors import InvalidArgument, NotFound

_InThread = TypeVar("_InThread", AddCommentsRequest, GetCommentsRequest, UpdateCommentsRequest, DeleteCommentsRequest)


def add_comments(call: Call[AddCommentsRequest]) -> Reply:
    """Of two with one id the first stands."""
    request = call.request
    let_in = authors_let_in(call, request.comment_data)
    given: dict[str, CommentInput] = {}
    for one in request.comment_data:
        given.setdefault(one.comment_id or new_id(call.backend.entropy), one)
    results: Results = {}
    with exclusive_write(call) as connection:
        scope, thread = _thread(call, connection)
        there = {
            comment.comment_id for comment in comments.load_comments(connection, scope, [thread.annotation_id], given)
        }
        allowed: dict[str, CommentInput] = {}
        for comment_id, one in given.items():
            if comment_id in there:
                results[comment_id] = failed(comment_id, "Comment already exists.")
            elif let_in is not None and one.from_.user_id not in let_in:
                results[comment_id] = failed(comment_id, NO_ACCESS)
            else:
                results[comment_id] = done(comment_id, "Comment added.")
                allowed[comment_id] = one
        number = comments.next_number(connection, scope, thread.annotation_id, call.now)
        made, reactions = new_comments(call, thread.annotation_id, allowed.items(), number)
        if made:
            comments.insert_comments(connection, scope, made)
            comments.insert_reactions(connection, scope, reactions)
            threads.take_part(connection, scope, [(thread.annotation_id, comment.author_id) for comment in made])
            _grow(connection, call, scope, thread, sum(comment.size for comment in made))
        events = [comment_event("comment.add", scope, thread, one, user=author_of(one.payload)) for one in made]
        call.emit(connection, events + reaction_events("comment.reaction_add", scope, thread, made, reactions))
    return Reply("Comments processed.", results)


def get_comments(call: Call[GetCommentsRequest], connection: Connection) -> Reply:
    request = call.request
    scope, thread = _thread(call, connection)
    query = comments.stored(scope).where(COMMENT.c.annotation_id == thread.annotation_id)
    if request.comment_ids is not None:
        query = query.where(among(connection, COMMENT.c.comment_id, request.comment_ids))
    rows, token = call.page(connection, query, comments.KEYS)
    found = [comments.from_row(row) for row in rows]
    named = [comment.comment_id for comment in found]
    reactions = comments.load_reactions(connection, scope, [thread.annotation_id], named)
    data = [comment.to_wire(reactions.get((thread.annotation_id, comment.comment_id), ())) for comment in found]
    return Reply("Comments retrieved successfully.", data, token)


def update_comments(call: Call[UpdateCommentsRequest], connection: Connection) -> Reply:
    request = call.request
    wanted = list(dict.fromkeys(request.comment_ids))
    if request.updated_data.reactions is not None and len(wanted) > 1:
        raise InvalidArgument("data.updatedData.reactions: give the reactions of one comment at a time")
    scope, thread = _thread(call, connection)
    there = comments.load_comments(connection, scope, [thread.annotation_id], wanted)
    events: list[Event] = []
    grown = 0
    authors = {comment.author_id for comment in there}
    for comment in there:
        before, size = comment.to_wire(), comment.size
        comment.take(request.updated_data)
        comment.updated_at = call.now
        grown += comment.size - size
        changes = threads.changes(before, comment.to_wire())
        if changes:
            user = user_of(request.action_user)
            events.append(comment_event("comment.update", scope, thread, comment, user=user, changes=changes))
    comments.save_comments(connection, scope, there)
    if there and authors != {comment.author_id for comment in there}:
        threads.recount_users(connection, scope, [thread.annotation_id])
    if there:
        _grow(connection, call, scope, thread, grown)
        events += _react(call, connection, scope, thread, there[0])
    call.emit(connection, events)
    found = {comment.comment_id for comment in there}
    return Reply("Comments processed.", per_id(wanted, found, "Comment updated.", NO_COMMENT))


def delete_comments(call: Call[DeleteCommentsRequest], connection: Connection) -> Reply:
    """A thread goes with its last comment."""
    request = call.request
    scope, thread = _thread(call, connection)
    there = comments.load_comments(connection, scope, [thread.annotation_id], request.comment_ids)
    user = user_of(request.action_user)
    call.emit(connection, [comment_event("comment.delete", scope, thread, one, user=user) for one in there])
    comments.delete_comments(connection, scope, thread.annotation_id, [one.comment_id for one in there])
    left = connection.scalar(
        comments.stored(scope)
        .with_only_columns(COMMENT.c.comment_id)
        .where(COMMENT.c.annotation_id == thread.annotation_id)
        .limit(1)
    )
    if left is None:
        threads.delete_threads(connection, scope, [thread.annotation_id])
    elif there:
        _grow(connection, call, scope, thread, -sum(one.size for one in there))
        threads.recount_users(connection, scope, [thread.annotation_id])
    found = [one.comment_id for one in there]
    wanted = found if request.comment_ids is None else request.comment_ids
    return Reply("Comments processed.", per_id(wanted, found, "Comment deleted.", NO_COMMENT))


def _thread(call: Call[_InThread], connection: Connection) -> tuple[Scope, Thread]:
    """The thread that the request names, in the document that it names. Raises ``NotFound``."""
    request = call.request
    scope = call.scope
    found = threads.load_threads(connection, scope, [request.annotation_id], request.document_id)
    if not found:
        raise NotFound(f"data.annotationId: {NO_ANNOTATION}")
    return scope, found[request.annotation_id]


def _grow(
    connection: Connection,
    call: Call[AddCommentsRequest] | Call[UpdateCommentsRequest] | Call[DeleteCommentsRequest],
    scope: Scope,
    thread: Thread,
    size: int,
) -> None:
    """Notes that the thread's comments are longer now, or shorter."""
    thread.comment_bytes += size
    thread.updated_at = call.now
    threads.save_threads(connection, scope, [thread])


def _react(
    call: Call[UpdateCommentsRequest], connection: Connection, scope: Scope, thread: Thread, comment: StoredComment
) -> list[Event]:
    """Makes the reactions to the comment those of the request, if it says which, and tells what happened."""
    given = call.request.updated_data.reactions
    if given is None:
        return []
    ids = [thread.annotation_id], [comment.comment_id]
    there = {
        one.reaction_id: one
        for one in comments.load_reactions(connection, scope, *ids).get((thread.annotation_id, comment.comment_id), ())
    }
    new: list[Reaction] = []
    kept: set[str] = set()
    for one in given:
        if one.reaction_id is not None and one.reaction_id in there:
            kept.add(one.reaction_id)
        else:
            reaction_id = one.reaction_id or new_id(call.backend.entropy)
            new.append(comments.reaction(one, reaction_id, thread.document_id, comment, call.now))
    gone = [one for reaction_id, one in there.items() if reaction_id not in kept]
    comments.delete_reactions(connection, scope, [one.reaction_id for one in gone])
    comments.insert_reactions(connection, scope, new)
    return [
        *reaction_events("comment.reaction_delete", scope, thread, [comment], gone),
        *reaction_events("comment.reaction_add", scope, thread, [comment], new),
    ]
