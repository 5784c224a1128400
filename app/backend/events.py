"""Events: which operation produces which activity record, notification, judgment and webhook event?

``EVENT_KINDS`` is the whole answer: one row per kind of event. Handlers tell what happened with ``Call.emit``, in the
transaction in which it happens; the backend's event sinks write what follows from it, in the same transaction.
(Judgments are written by the one handler that makes them, because their embeddings are computed before the transaction
begins.)
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
"""Whom an event's notification is for, never the one who acts: all who take part in the thread, the user to whom it is
assigned, or the author of the comment."""


@dataclass(frozen=True, slots=True)
class EventKind:
    """One kind of event, and what comes of it."""

    type: str
    """As activity records (``actionType``), webhook triggers and webhook events call it."""
    operations: tuple[str, ...]
    """Which operations produce it, by name."""
    template: str
    """The activity's and notification's text."""
    notified: Notified = "nobody"
    decision: str = ""
    """The decision of the judgment that comes of it; empty where none does."""
    feature_type: FeatureType = "comment"


_WHO = "{{actionUser.name}}"

_ADD, _UPDATE = "add_comment_annotations", "update_comment_annotations"

# fmt: off
# One row for each kind.
_KINDS = (
    EventKind("comment_annotation.add", (_ADD,), f"{_WHO} began a comment thread.", "assignee"),
    EventKind("comment.add", (_ADD, "add_comments"), f"{_WHO} added a comment.", "participants"),
    EventKind("comment.update", ("update_comments",), f"{_WHO} changed a comment."),
    EventKind("comment.delete", ("delete_comments", "delete_comment_annotations"), f"{_WHO} deleted a comment."),
    EventKind("comment_annotation.status_change", (_UPDATE,), f"{_WHO} changed the status.", "participants"),
    EventKind("comment_annotation.assign", (_UPDATE,), f"{_WHO} assigned a thread.", "assignee"),
    EventKind("comment_annotation.priority_change", (_UPDATE,), f"{_WHO} changed the priority."),
    EventKind("comment_annotation.suggestion_accept", (_UPDATE,), f"{_WHO} accepted a suggestion.", "participants",
              decision="approve"),
    EventKind("comment_annotation.suggestion_reject", (_UPDATE,), f"{_WHO} rejected a suggestion.", "participants",
              decision="reject"),
    EventKind("comment.reaction_add", (_ADD, "add_comments", "update_comments"), f"{_WHO} reacted to a comment.",
              "author", feature_type="reaction"),
    EventKind("comment.reaction_delete", ("update_comments",), f"{_WHO} removed a reaction.", feature_type="reaction"),
    EventKind("crdt.add", ("add_crdt_data",), f"{_WHO} began to write.", feature_type="crdt"),
    EventKind("crdt.update", ("update_crdt_data",), f"{_WHO} changed the text.", feature_type="crdt"),
)
# fmt: on
EVENT_KINDS: Mapping[str, EventKind] = MappingProxyType({kind.type: kind for kind in _KINDS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a document's feature data. Everything is as the wire tells it, after the change."""

    type: str
    """A key of ``EVENT_KINDS``."""
    organization_id: str
    document_id: str
    target_id: str
    """The annotation, or the editor."""
    location_id: str = ""
    action_user: Mapping[str, object] = field(default_factory=dict)
    """Who did it; empty when the request does not say."""
    annotation: Mapping[str, object] = field(default_factory=dict)
    """The thread, without its comments."""
    comment: Mapping[str, object] | None = None
    """The comment that it is about, if it is about one."""
    reaction: Mapping[str, object] | None = None
    changes: Mapping[str, object] = field(default_factory=dict)
    """Changed field to ``{"from": …, "to": …}``."""

    @property
    def kind(self) -> EventKind:
        """What comes of it."""
        return EVENT_KINDS[self.type]

    @property
    def action_user_id(self) -> str:
        """Empty when the request does not say who acts."""
        return str(self.action_user.get("userId", ""))


@dataclass(frozen=True, slots=True)
class EventContext:
    """The request in which events happen, as far as event sinks need to know it."""

    api_key_id: str
    now: int
    """When the request came, in epoch milliseconds."""
    entropy: random.Random
    """Makes ids."""
    vault: Vault


EventSink = Callable[[Connection, EventContext, Sequence[Event]], None]
"""Writes what follows from events, in the transaction in which they happen and in a number of statements that does not
depend on theirs. It must not wait for anybody. What it raises undoes the request."""
