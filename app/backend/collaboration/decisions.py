"""Decisions on suggestions, and their judgments.

A thread of type ``suggestion`` is decided when its status changes to one of ``_EVENT_TYPES``, compared
case-insensitively. The content of the judgment is the first comment.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from app.backend.collaboration.comments import StoredComment, load_comments
from app.backend.collaboration.threads import Thread
from app.backend.events import EVENT_KINDS
from app.backend.http.call import Call
from app.backend.ids import new_id
from app.backend.judgments.record import JudgmentInput
from app.backend.judgments.store import PreparedJudgment, prepare_judgments
from app.backend.storage import json_columns
from app.contract.comments import UpdateCommentAnnotationsRequest

_ACCEPT = "comment_annotation.suggestion_accept"
_REJECT = "comment_annotation.suggestion_reject"
_EVENT_TYPES: Mapping[str, str] = {"accepted": _ACCEPT, "accept": _ACCEPT, "rejected": _REJECT, "reject": _REJECT}


def decision_event(status: object) -> str:
    """The event type of a suggestion's change to this status, or an empty string if it is not a decision."""
    name = status.get("id") if isinstance(status, dict) else status
    return _EVENT_TYPES.get(name.lower(), "") if isinstance(name, str) else ""


def prepare_decisions(
    call: Call[UpdateCommentAnnotationsRequest], connection: Connection, threads: Sequence[Thread]
) -> dict[str, PreparedJudgment]:
    """The judgments of decisions on these suggestions, by thread."""
    if not threads:
        return {}
    comments = load_comments(connection, call.scope, [thread.annotation_id for thread in threads])
    first = {comment.annotation_id: comment for comment in reversed(comments)}
    records = [_judgment(call, thread, first.get(thread.annotation_id)) for thread in threads]
    prepared = prepare_judgments(records, call.backend.embedder)
    return {thread.annotation_id: judgment for thread, judgment in zip(threads, prepared, strict=True)}


def _judgment(
    call: Call[UpdateCommentAnnotationsRequest], thread: Thread, first: StoredComment | None
) -> JudgmentInput:
    request = call.request
    record: dict[str, object] = {
        "recordId": new_id(call.backend.entropy),
        "organizationId": request.organization_id,
        "documentId": thread.document_id,
        "annotationId": thread.annotation_id,
        "decision": EVENT_KINDS[decision_event(request.updated_data.status)].decision,
        "contentType": "suggestion",
        "createdAt": call.now,
    }
    text = None if first is None else first.payload.get("commentText")
    action_user = None if request.action_user is None else request.action_user.to_wire()
    optional = json_columns.without_none(
        reasoning=request.reasoning, agent=request.agent, actionUser=action_user, content=text or None
    )
    return JudgmentInput.from_wire(record | optional)
