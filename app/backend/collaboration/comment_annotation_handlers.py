"""Handlers of comment annotations (threads): add, get, update, delete."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from app.backend.collaboration import comments, threads
from app.backend.collaboration.comment_handlers import NO_ACCESS, authors_with_access, comments_by_id, new_comments
from app.backend.collaboration.comments import Reaction, StoredComment
from app.backend.collaboration.decisions import decision_event, prepare_decisions
from app.backend.collaboration.tables import COMMENT_ANNOTATION
from app.backend.collaboration.threads import NO_ANNOTATION, Thread, author_of, comment_event, reaction_events, user_of
from app.backend.events import Event
from app.backend.http.call import Call, Reply
from app.backend.http.results import Results, all_failed, done, failed, per_id
from app.backend.ids import new_id
from app.backend.judgments.store import PreparedJudgment, write_judgments
from app.backend.resources.containers import require_document
from app.backend.scope import Scope
from app.backend.storage.rows import where_given
from app.contract.comments import (
    AddCommentAnnotationsRequest,
    CommentAnnotationInput,
    DeleteCommentAnnotationsRequest,
    GetCommentAnnotationsRequest,
    UpdateCommentAnnotationsRequest,
)
from app.foundation.batches import batches
from app.foundation.database.engine import reading

_DELETE_BATCH = 200
_EVENT_TYPES = {
    "status": "comment_annotation.status_change",
    "assignedTo": "comment_annotation.assign",
    "priority": "comment_annotation.priority_change",
}
"""The event of a change to a field."""


def add_comment_annotations(call: Call[AddCommentAnnotationsRequest]) -> Reply:
    """Adds a thread if all of its authors have access. The first of equal ids wins."""
    request, scope = call.request, call.scope
    comments_of_all = [comment for thread in request.comment_annotations for comment in thread.comment_data]
    permitted = authors_with_access(call, comments_of_all)
    requested: dict[str, tuple[int, CommentAnnotationInput]] = {}
    for number, thread in enumerate(request.comment_annotations):
        requested.setdefault(thread.annotation_id or new_id(call.backend.entropy), (number, thread))
    results: Results = {}
    new: list[NewThread] = []
    with call.exclusive_write() as connection:
        require_document(connection, scope, request.document_id)
        existing = threads.load_threads(connection, scope, requested)
        for annotation_id, (number, thread) in requested.items():
            authors = {comment.from_.user_id for comment in thread.comment_data}
            if annotation_id in existing:
                results[annotation_id] = failed(annotation_id, "Annotation already exists.")
            elif permitted is not None and not authors <= permitted:
                results[annotation_id] = failed(annotation_id, NO_ACCESS)
            else:
                new.append(_new_thread(call, annotation_id, thread, f"data.commentAnnotations[{number}]."))
                comment_ids = [comment.comment_id for comment in new[-1].comments]
                results[annotation_id] = done(annotation_id, "Annotation added.") | {"commentIds": comment_ids}
        _insert(connection, scope, new)
        call.emit(connection, [event for added in new for event in _events_of_new(scope, added)])
    return Reply("Comment annotations processed.", results)


def get_comment_annotations(call: Call[GetCommentAnnotationsRequest], connection: Connection) -> Reply:
    """Newest first by default. The comments count towards the size of a page."""
    request, scope = call.request, call.scope
    table = COMMENT_ANNOTATION.c
    query = where_given(
        connection,
        threads.stored_threads(scope),
        (table.document_id, request.document_id),
        (table.location_id, request.location_id),
        (table.annotation_id, request.annotation_ids),
    )
    rows, token = call.page(
        connection,
        query,
        (table.created_at, table.annotation_id),
        order=request.order or "desc",
        length=lambda row: int(row.comment_bytes) + len(row.payload),
    )
    ids = [row.annotation_id for row in rows]
    reactions = comments.load_reactions(connection, scope, ids)
    in_thread: dict[str, list[object]] = {annotation_id: [] for annotation_id in ids}
    for comment in comments.load_comments(connection, scope, ids):
        key = (comment.annotation_id, comment.comment_id)
        in_thread[comment.annotation_id].append(comment.to_wire(reactions.get(key, ())))
    data = [threads.thread_of(row).to_wire(scope) | {"comments": in_thread[row.annotation_id]} for row in rows]
    return Reply("Comment annotations retrieved successfully.", data, token)


def update_comment_annotations(call: Call[UpdateCommentAnnotationsRequest]) -> Reply:
    """A decision on a suggestion writes a judgment. Its vectors are computed before the transaction."""
    request, scope = call.request, call.scope
    prepared = _prepared_judgments(call)
    events: list[Event] = []
    with call.exclusive_write() as connection:
        stored = threads.load_threads(connection, scope, request.annotation_ids, request.document_id)
        reassigned: list[str] = []
        decided: list[Thread] = []
        for thread in stored.values():
            before, assigned_to = thread.to_wire(scope), thread.assigned_to
            thread.update(request.updated_data, "data.updatedData.")
            thread.updated_at = call.now
            if thread.assigned_to != assigned_to:
                reassigned.append(thread.annotation_id)
            of_thread = _events_of_change(call, thread, threads.changed_fields(before, thread.to_wire(scope)))
            if any(event.kind.decision for event in of_thread):
                decided.append(thread)
            events.extend(of_thread)
        threads.update_threads(connection, scope, stored.values())
        threads.refresh_participants(connection, scope, reassigned)
        # A thread may have become a suggestion after the preparation.
        missing = [thread for thread in decided if thread.annotation_id not in prepared]
        prepared |= prepare_decisions(call, connection, missing)
        judgments = [prepared[thread.annotation_id] for thread in decided]
        write_judgments(connection, scope.api_key_id, judgments, call.now)
        call.emit(connection, events)
    results = per_id(request.annotation_ids, stored, "Annotation updated.", NO_ANNOTATION)
    return Reply("Comment annotations processed.", results)


def delete_comment_annotations(call: Call[DeleteCommentAnnotationsRequest], connection: Connection) -> Reply:
    """Deletes in batches. Emits an event for each comment."""
    request, scope = call.request, call.scope
    results: Results = all_failed(request.annotation_ids or (), NO_ANNOTATION)
    user = user_of(request.action_user)
    for stored in _batches_to_delete(call, connection):
        events = [
            comment_event("comment.delete", scope, stored[comment.annotation_id], comment, user=user)
            for comment in comments.load_comments(connection, scope, stored)
        ]
        call.emit(connection, events)
        threads.delete_threads(connection, scope, list(stored))
        results |= {annotation_id: done(annotation_id, "Annotation deleted.") for annotation_id in stored}
    return Reply("Comment annotations processed.", results)


def _batches_to_delete(
    call: Call[DeleteCommentAnnotationsRequest], connection: Connection
) -> Iterator[dict[str, Thread]]:
    """The requested threads by id, in batches. The caller deletes each batch before the next is read."""
    request, scope = call.request, call.scope
    if request.annotation_ids is not None:
        for ids in batches(list(dict.fromkeys(request.annotation_ids)), _DELETE_BATCH):
            yield threads.load_threads(connection, scope, ids, request.document_id)
        return
    table = COMMENT_ANNOTATION.c
    query = threads.stored_threads(scope).where(table.document_id == request.document_id)
    query = query.order_by(table.created_at, table.annotation_id)
    while rows := connection.execute(query.limit(_DELETE_BATCH)).all():
        yield {row.annotation_id: threads.thread_of(row) for row in rows}


class NewThread(NamedTuple):
    """A thread to insert, with its comments and their reactions."""

    thread: Thread
    comments: Sequence[StoredComment]
    reactions: Sequence[Reaction]


def _new_thread(
    call: Call[AddCommentAnnotationsRequest], annotation_id: str, request: CommentAnnotationInput, prefix: str
) -> NewThread:
    thread = Thread(annotation_id, call.request.document_id, created_at=call.now, updated_at=call.now)
    thread.update(request, prefix)
    added, reactions = new_comments(call, annotation_id, comments_by_id(call, request.comment_data))
    thread.comment_bytes = sum(comment.size for comment in added)
    return NewThread(thread, added, reactions)


def _insert(connection: Connection, scope: Scope, new: Sequence[NewThread]) -> None:
    threads.insert_threads(connection, scope, [added.thread for added in new])
    comments.insert_comments(connection, scope, [comment for added in new for comment in added.comments])
    comments.insert_reactions(connection, scope, [reaction for added in new for reaction in added.reactions])
    participants = [(comment.annotation_id, comment.author_id) for added in new for comment in added.comments]
    participants += [(added.thread.annotation_id, added.thread.assigned_to) for added in new]
    threads.add_participants(connection, scope, participants)


def _events_of_new(scope: Scope, new: NewThread) -> list[Event]:
    """The first comment begins the thread. The others are added to it."""
    thread, (first, *others) = new.thread, new.comments
    events = [comment_event("comment_annotation.add", scope, thread, first, user=author_of(first.payload))]
    events += [comment_event("comment.add", scope, thread, other, user=author_of(other.payload)) for other in others]
    return events + reaction_events("comment.reaction_add", scope, thread, new.comments, new.reactions)


def _events_of_change(
    call: Call[UpdateCommentAnnotationsRequest], thread: Thread, changes: Mapping[str, object]
) -> list[Event]:
    types = [event_type for name, event_type in _EVENT_TYPES.items() if name in changes]
    if "status" in changes and thread.type == "suggestion" and (decision := decision_event(thread.payload["status"])):
        types.append(decision)
    user = user_of(call.request.action_user)
    return [comment_event(event_type, call.scope, thread, None, user=user, changes=changes) for event_type in types]


def _prepared_judgments(call: Call[UpdateCommentAnnotationsRequest]) -> dict[str, PreparedJudgment]:
    """The judgments of the decisions that the request is expected to make, by thread."""
    request = call.request
    if not decision_event(request.updated_data.status):
        return {}
    with reading(call.backend.engine) as connection:
        stored = threads.load_threads(connection, call.scope, request.annotation_ids, request.document_id).values()
        return prepare_decisions(call, connection, [thread for thread in stored if thread.type == "suggestion"])
