"""Decisions on suggestions, and the judgments that come of them.

A thread of type ``suggestion`` is decided when its status becomes one whose id (``id`` of a status object, or the
status itself) is ``accepted`` or ``rejected``, in upper or lower case. The judgment's content is the suggestion's first
comment.
"""

from collections.abc import Mapping

from app.backend.collaboration.comments import StoredComment
from app.backend.collaboration.threads import Thread
from app.backend.events import EVENT_KINDS
from app.backend.http.call import Call
from app.backend.ids import new_id
from app.backend.judgments.record import JudgmentInput
from app.backend.scope import Scope
from app.backend.storage import json_sets
from app.contract.comments import UpdateCommentAnnotationsRequest

ACCEPT = "comment_annotation.suggestion_accept"
REJECT = "comment_annotation.suggestion_reject"

_OUTCOMES: Mapping[str, str] = {"accepted": ACCEPT, "accept": ACCEPT, "rejected": REJECT, "reject": REJECT}


def outcome(status: object) -> str:
    """The type of event that a suggestion's change to this status is; empty where it decides nothing."""
    name = status.get("id") if isinstance(status, dict) else status
    return _OUTCOMES.get(name.lower(), "") if isinstance(name, str) else ""


def judgment(
    call: Call[UpdateCommentAnnotationsRequest],
    scope: Scope,
    thread: Thread,
    first: StoredComment | None,
    event_type: str,
) -> JudgmentInput:
    """The record of a decision on a suggestion."""
    request = call.request
    record: dict[str, object] = {
        "recordId": new_id(call.backend.entropy),
        "organizationId": scope.organization_id,
        "documentId": thread.document_id,
        "annotationId": thread.annotation_id,
        "decision": EVENT_KINDS[event_type].decision,
        "contentType": "suggestion",
        "createdAt": call.now,
    }
    text = first.payload.get("commentText") if first is not None else None
    action_user = None if request.action_user is None else request.action_user.to_wire()
    optional = json_sets.without_none(
        reasoning=request.reasoning, agent=request.agent, actionUser=action_user, content=text or None
    )
    return JudgmentInput.from_wire(record | optional)
