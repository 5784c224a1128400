"""Comment annotations, that is threads: add, read by page, update, delete."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from app.backend.collaboration import comments, decisions, threads
from app.backend.collaboration.comments import Reaction, StoredComment
from app.backend.collaboration.tables import COMMENT_ANNOTATION
from app.backend.collaboration.thread_events import author_of, comment_event, reaction_events, user_of
from app.backend.collaboration.threads import NO_ANNOTATION, Thread
from app.backend.events import Event
from app.backend.http.call import Call, Reply
from app.backend.http.dispatch import exclusive_write
from app.backend.http.results import Results, done, failed, per_id
from app.backend.ids import new_id
from app.backend.judgments.store import PreparedJudgment, prepare_judgments, write_judgments
from app.backend.permissions.access_check import users_with_access
from app.backend.resources.containers import require_document
from app.backend.scope import Scope
from app.backend.storage.json_sets import among
from app.backend.storage.paging import where_equal
from app.contract.comments import (
    AddCommentAnnotationsRequest,
    AddCommentsRequest,
    CommentAnnotationInput,
    CommentInput,
    DeleteCommentAnnotationsRequest,
    GetCommentAnnotationsRequest,
    UpdateCommentAnnotationsRequest,
)
from app.foundation.database.engine import reading

NO_ACCESS = "User does not have access to the document."
_DELETED_AT_ONCE = 200
_CHANGES = {
    "status": "comment_annotation.status_change",
    "assignedTo": "comment_annotation.assign",
    "priority": "comment_annotation.priority_change",
}


def add_comment_annotations(call: Call[AddCommentAnnotationsRequest]) -> Reply:
    """A thread gets through only if every author in it does. Of two with one id the first stands."""
    request = call.request
    let_in = authors_let_in(call, [one for thread in request.comment_annotations for one in thread.comment_data])
    given: dict[str, tuple[int, CommentAnnotationInput]] = {}
    for number, thread in enumerate(request.comment_annotations):
        given.setdefault(thread.annotation_id or new_id(call.backend.entropy), (number, thread))
    scope = call.scope
    results: Results = {}
    new: list[NewThread] = []
    with exclusive_write(call) as connection:
        require_document(connection, scope, request.document_id)
        there = threads.load_threads(connection, scope, given)
        for annotation_id, (number, thread) in given.items():
            if annotation_id in there:
                results[annotation_id] = failed(annotation_id, "Annotation already exists.")
            elif let_in is not None and not {one.from_.user_id for one in thread.comment_data} <= let_in:
                results[annotation_id] = failed(annotation_id, NO_ACCESS)
            else:
                made = _new_thread(call, annotation_id, thread, f"data.commentAnnotations[{number}]")
                new.append(made)
                results[annotation_id] = {
                    **done(annotation_id, "Annotation added."),
                    "commentIds": [comment.comment_id for comment in made.comments],
                }
        _insert(connection, scope, new)
        call.emit(connection, [event for one in new for event in _events_of_new(scope, one)])
    return Reply("Comment annotations processed.", results)


def get_comment_annotations(call: Call[GetCommentAnnotationsRequest], connection: Connection) -> Reply:
    """Newest first. A page ends early where the comments in it weigh too much."""
    request = call.request
    scope = call.scope
    table = COMMENT_ANNOTATION.c
    query = where_equal(
        threads.stored(scope), (table.document_id, request.document_id), (table.location_id, request.location_id)
    )
    if request.annotation_ids is not None:
        query = query.where(among(connection, table.annotation_id, request.annotation_ids))
    rows, token = call.page(
        connection,
        query,
        (table.created_at, table.annotation_id),
        order=request.order or "desc",
        weight=lambda row: int(row.comment_bytes) + len(row.payload),
    )
    ids = [row.annotation_id for row in rows]
    in_thread: dict[str, list[StoredComment]] = {}
    for comment in comments.load_comments(connection, scope, ids):
        in_thread.setdefault(comment.annotation_id, []).append(comment)
    reactions = comments.load_reactions(connection, scope, ids)
    data = [
        threads.from_row(row).to_wire(scope)
        | {
            "comments": [
                comment.to_wire(reactions.get((row.annotation_id, comment.comment_id), ()))
                for comment in in_thread.get(row.annotation_id, ())
            ]
        }
        for row in rows
    ]
    return Reply("Comment annotations retrieved successfully.", data, token)


def update_comment_annotations(call: Call[UpdateCommentAnnotationsRequest]) -> Reply:
    """A decision on a suggestion leaves a judgment, whose vectors are made before the transaction begins."""
    request = call.request
    scope = call.scope
    prepared = _prepared_judgments(call, scope)
    events: list[Event] = []
    with exclusive_write(call) as connection:
        there = threads.load_threads(connection, scope, request.annotation_ids, request.document_id)
        reassigned: list[str] = []
        decided: list[Thread] = []
        for thread in there.values():
            before, assigned_to = thread.to_wire(scope), thread.assigned_to
            thread.take(request.updated_data, "data.updatedData")
            thread.updated_at = call.now
            if thread.assigned_to != assigned_to:
                reassigned.append(thread.annotation_id)
            happened = _events_of_change(call, scope, thread, threads.changes(before, thread.to_wire(scope)))
            if any(event.kind.decision for event in happened):
                decided.append(thread)
            events.extend(happened)
        threads.save_threads(connection, scope, there.values())
        threads.recount_users(connection, scope, reassigned)
        missing = [thread for thread in decided if thread.annotation_id not in prepared]
        prepared |= _prepare(call, connection, scope, missing)
        judgments = [prepared[thread.annotation_id] for thread in decided]
        write_judgments(connection, scope.api_key_id, judgments, call.now)
        call.emit(connection, events)
    results = per_id(request.annotation_ids, there, "Annotation updated.", NO_ANNOTATION)
    return Reply("Comment annotations processed.", results)


def delete_comment_annotations(call: Call[DeleteCommentAnnotationsRequest], connection: Connection) -> Reply:
    """A thread's comments count as deleted one by one."""
    request = call.request
    scope = call.scope
    results: Results = {one: failed(one, NO_ANNOTATION) for one in request.annotation_ids or ()}
    pending = list(results)
    while True:
        if request.annotation_ids is None:
            query = threads.stored(scope).where(COMMENT_ANNOTATION.c.document_id == request.document_id)
            rows = connection.execute(query.limit(_DELETED_AT_ONCE))
            there = {row.annotation_id: threads.from_row(row) for row in rows}
        else:
            part, pending = pending[:_DELETED_AT_ONCE], pending[_DELETED_AT_ONCE:]
            there = threads.load_threads(connection, scope, part, request.document_id)
        events = [
            comment_event(
                "comment.delete", scope, there[comment.annotation_id], comment, user=user_of(request.action_user)
            )
            for comment in comments.load_comments(connection, scope, there)
        ]
        call.emit(connection, events)
        threads.delete_threads(connection, scope, list(there))
        results |= {one: done(one, "Annotation deleted.") for one in there}
        if not (pending or (request.annotation_ids is None and there)):
            return Reply("Comment annotations processed.", results)


class NewThread(NamedTuple):
    """A thread with its comments and the reactions to them, before it is written."""

    thread: Thread
    comments: Sequence[StoredComment]
    reactions: Sequence[Reaction]


def authors_let_in(
    call: Call[AddCommentAnnotationsRequest] | Call[AddCommentsRequest], given: Iterable[CommentInput]
) -> frozenset[str] | None:
    """Those of the comments' authors who have access to the document; None when nobody asks."""
    request = call.request
    if not request.verify_user_permissions:
        return None
    scope = call.scope
    with reading(call.backend.engine) as connection:
        require_document(connection, scope, request.document_id)
    authors = [comment.from_.user_id for comment in given]
    return users_with_access(call.backend, scope, request.document_id, authors, call.now)


def new_comments(
    call: Call[AddCommentAnnotationsRequest] | Call[AddCommentsRequest],
    annotation_id: str,
    given: Iterable[tuple[str, CommentInput]],
    first_number: int = 0,
) -> tuple[list[StoredComment], list[Reaction]]:
    """Comments of one thread with their ids, and the reactions to them."""
    made: list[StoredComment] = []
    reactions: list[Reaction] = []
    for number, (comment_id, one) in enumerate(given, first_number):
        comment = StoredComment(annotation_id, comment_id, number, created_at=call.now, updated_at=call.now)
        comment.take(one)
        made.append(comment)
        for reaction in one.reactions or ():
            reaction_id = reaction.reaction_id or new_id(call.backend.entropy)
            reactions.append(comments.reaction(reaction, reaction_id, call.request.document_id, comment, call.now))
    return made, reactions


def _new_thread(
    call: Call[AddCommentAnnotationsRequest], annotation_id: str, given: CommentAnnotationInput, path: str
) -> NewThread:
    thread = Thread(annotation_id, call.request.document_id, created_at=call.now, updated_at=call.now)
    thread.take(given, path)
    by_id: dict[str, CommentInput] = {}
    for one in given.comment_data:
        by_id.setdefault(one.comment_id or new_id(call.backend.entropy), one)
    made, reactions = new_comments(call, annotation_id, by_id.items())
    thread.comment_bytes = sum(comment.size for comment in made)
    return NewThread(thread, made, reactions)


def _insert(connection: Connection, scope: Scope, new: Sequence[NewThread]) -> None:
    threads.insert_threads(connection, scope, [one.thread for one in new])
    comments.insert_comments(connection, scope, [comment for one in new for comment in one.comments])
    comments.insert_reactions(connection, scope, [reaction for one in new for reaction in one.reactions])
    pairs = [(one.thread.annotation_id, comment.author_id) for one in new for comment in one.comments]
    pairs += [(one.thread.annotation_id, one.thread.assigned_to) for one in new]
    threads.take_part(connection, scope, pairs)


def _events_of_new(scope: Scope, new: NewThread) -> list[Event]:
    """The first comment makes the thread; those after it are added to it."""
    thread, (first, *others) = new.thread, new.comments
    events = [comment_event("comment_annotation.add", scope, thread, first, user=author_of(first.payload))]
    events += [comment_event("comment.add", scope, thread, one, user=author_of(one.payload)) for one in others]
    return events + reaction_events("comment.reaction_add", scope, thread, new.comments, new.reactions)


def _events_of_change(
    call: Call[UpdateCommentAnnotationsRequest], scope: Scope, thread: Thread, changes: Mapping[str, object]
) -> list[Event]:
    types = [event_type for name, event_type in _CHANGES.items() if name in changes]
    if "status" in changes and thread.type == "suggestion":
        types += [decided] if (decided := decisions.outcome(thread.payload["status"])) else []
    user = user_of(call.request.action_user)
    return [comment_event(event_type, scope, thread, None, user=user, changes=changes) for event_type in types]


def _prepared_judgments(call: Call[UpdateCommentAnnotationsRequest], scope: Scope) -> dict[str, PreparedJudgment]:
    """Of the decisions that this request will make as far as anyone can tell before its transaction."""
    request = call.request
    if not decisions.outcome(request.updated_data.status):
        return {}
    with reading(call.backend.engine) as connection:
        there = threads.load_threads(connection, scope, request.annotation_ids, request.document_id).values()
        return _prepare(call, connection, scope, [thread for thread in there if thread.type == "suggestion"])


def _prepare(
    call: Call[UpdateCommentAnnotationsRequest], connection: Connection, scope: Scope, decided: Sequence[Thread]
) -> dict[str, PreparedJudgment]:
    if not decided:
        return {}
    first: dict[str, StoredComment] = {}
    for comment in comments.load_comments(connection, scope, [thread.annotation_id for thread in decided]):
        first.setdefault(comment.annotation_id, comment)
    event_type = decisions.outcome(call.request.updated_data.status)
    records = [
        decisions.judgment(call, scope, thread, first.get(thread.annotation_id), event_type) for thread in decided
    ]
    prepared = prepare_judgments(records, call.backend.embedder)
    return {thread.annotation_id: one for thread, one in zip(decided, prepared, strict=True)}
