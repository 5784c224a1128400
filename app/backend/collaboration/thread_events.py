"""The events of a thread: what happened to it and to the comments in it."""

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
    """An event of this thread, and of this comment in it."""
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
    event_type: str, scope: Scope, thread: Thread, in_it: Iterable[StoredComment], reactions: Iterable[Reaction]
) -> list[Event]:
    """An event for each reaction; it is the one who reacts, or did, who acts."""
    by_id = {comment.comment_id: comment for comment in in_it}
    return [
        comment_event(event_type, scope, thread, by_id[one.comment_id], user=author_of(one.payload), reaction=one)
        for one in reactions
    ]


def user_of(given: UserReference | None) -> dict[str, object]:
    """Who acts; empty when the request does not say."""
    return {} if given is None else given.to_wire()


def author_of(payload: Mapping[str, object]) -> dict[str, object]:
    """Who wrote a comment or reacted."""
    author = payload.get("from")
    return author if isinstance(author, dict) else {}
