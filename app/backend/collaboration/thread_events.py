"""Builds the events of threads and comments."""

from collections.abc import Iterable, Mapping

from app.backend.collaboration.comments import Reaction, StoredComment
from app.backend.collaboration.threads import Thread
from app.backend.events import Event
from app.backend.scope import Scope
from app.contract.base import UserReference


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
