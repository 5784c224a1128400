"""The kinds of events, and the activity records, notifications, judgments and webhook events that they create.

``EVENT_KINDS`` has a row for each kind. Handlers pass events to ``Call.emit`` in the transaction that causes them, and
the event sinks write their consequences in the same transaction. Judgments are an exception: their handler writes them,
because it computes their embeddings before the transaction begins.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sqlalchemy import Connection

from app.backend.security.vault import Vault
from app.contract.activities import FeatureType

Notified = Literal["nobody", "participants", "assignee", "author"]
"""The recipients of an event's notification: the participants of the thread, its assignee, or the author of the
comment. The acting user is never notified."""


@dataclass(frozen=True, slots=True)
class EventKind:
    """A kind of event and its consequences."""

    type: str
    """The name in activity records (``actionType``), webhook triggers and webhook events."""
    operations: tuple[str, ...]
    """The names of the operations that cause it."""
    template: str
    """The text of the activity and the notification."""
    notified: Notified = "nobody"
    decision: str = ""
    """The decision of its judgment. Empty if it creates none."""
    feature_type: FeatureType = "comment"


_USER = "{{actionUser.name}}"

_ADD, _UPDATE = "add_comment_annotations", "update_comment_annotations"

# fmt: off
# One row for each kind.
_KINDS = (
    EventKind("comment_annotation.add", (_ADD,), f"{_USER} began a comment thread.", "assignee"),
    EventKind("comment.add", (_ADD, "add_comments"), f"{_USER} added a comment.", "participants"),
    EventKind("comment.update", ("update_comments",), f"{_USER} changed a comment."),
    EventKind("comment.delete", ("delete_comments", "delete_comment_annotations"), f"{_USER} deleted a comment."),
    EventKind("comment_annotation.status_change", (_UPDATE,), f"{_USER} changed the status.", "participants"),
    EventKind("comment_annotation.assign", (_UPDATE,), f"{_USER} assigned a thread.", "assignee"),
    EventKind("comment_annotation.priority_change", (_UPDATE,), f"{_USER} changed the priority."),
    EventKind("comment_annotation.suggestion_accept", (_UPDATE,), f"{_USER} accepted a suggestion.", "participants",
              decision="approve"),
    EventKind("comment_annotation.suggestion_reject", (_UPDATE,), f"{_USER} rejected a suggestion.", "participants",
              decision="reject"),
    EventKind("comment.reaction_add", (_ADD, "add_comments", "update_comments"), f"{_USER} reacted to a comment.",
              "author", feature_type="reaction"),
    EventKind("comment.reaction_delete", ("update_comments",), f"{_USER} removed a reaction.", feature_type="reaction"),
    EventKind("crdt.add", ("add_crdt_data",), f"{_USER} began to write.", feature_type="crdt"),
    EventKind("crdt.update", ("update_crdt_data",), f"{_USER} changed the text.", feature_type="crdt"),
)
# fmt: on
EVENT_KINDS: Mapping[str, EventKind] = MappingProxyType({kind.type: kind for kind in _KINDS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change of a document's feature data. All values are wire formats, after the change."""

    type: str
    """A key of ``EVENT_KINDS``."""
    organization_id: str
    document_id: str
    target_id: str
    """The annotation, or the editor."""
    location_id: str = ""
    action_user: Mapping[str, object] = field(default_factory=dict)
    """The acting user. Empty if the request has none."""
    annotation: Mapping[str, object] = field(default_factory=dict)
    """The thread, without its comments."""
    comment: Mapping[str, object] | None = None
    """The affected comment, if any."""
    reaction: Mapping[str, object] | None = None
    changes: Mapping[str, object] = field(default_factory=dict)
    """Changed field to ``{"from": …, "to": …}``."""

    @property
    def kind(self) -> EventKind:
        return EVENT_KINDS[self.type]

    @property
    def action_user_id(self) -> str:
        """Empty if the request has no acting user."""
        return str(self.action_user.get("userId", ""))


@dataclass(frozen=True, slots=True)
class EventContext:
    """The context of events, for event sinks."""

    api_key_id: str
    now: int
    """The time of the request, in epoch milliseconds."""
    entropy: random.Random
    vault: Vault


EventSink = Callable[[Connection, EventContext, Sequence[Event]], None]
"""Writes the consequences of events in their transaction. The number of statements must not depend on the number of
events. It must not wait for other services. An exception rolls back the request."""
