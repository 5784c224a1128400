"""Models of the lines of an import file: threads, comments, reactions, recordings, notifications, activities.

The fields are those of the requests that add these objects, with the ids that a request has outside of the object.
Each record has an id of its own, so that a second import replaces it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from app.contract import limits
from app.contract.activities import ActivityInput
from app.contract.base import EpochMs, Id, Ids, InOrganization, JsonObject, LongText, Text, UserReference
from app.contract.comments import CommentAnnotationUpdate
from app.contract.notifications import NotificationContent


class Record(InOrganization):
    """The common fields of all records."""

    kind: str
    document_id: Id


class AnnotationRecord(Record, CommentAnnotationUpdate):
    """A thread. Its comments are records of their own. It may be omitted if it has no other fields."""

    annotation_id: Id
    created_at: EpochMs | None = None


class AuthoredRecord(Record):
    """A record of an object that a user created."""

    from_: UserReference
    created_at: EpochMs | None = None


class CommentRecord(AuthoredRecord):
    """A comment. The import creates a missing thread."""

    annotation_id: Id
    comment_id: Id
    comment_text: LongText
    comment_html: LongText | None = None
    agent: JsonObject | None = None


class ReactionRecord(AuthoredRecord):
    """A reaction, usually to a comment."""

    reaction_id: Id
    annotation_id: Id | None = None
    comment_id: Id | None = None
    icon: Text | None = None


class RecordingRecord(AuthoredRecord):
    """A recording. Undeclared fields describe it."""

    recording_id: Id


class NotificationRecord(Record, NotificationContent):
    """A notification with its users and readers."""

    id: Id
    location_id: Id | None = None
    notify_users: Annotated[list[UserReference], Field(max_length=limits.BATCH_ITEMS)] | None = None
    read_by_user_ids: Ids | None = None
    persist_read_for_user_ids: Ids | None = None
    timestamp: EpochMs | None = None


class ActivityRecord(Record, ActivityInput):
    """An activity."""

    id: Id


MODELS: Mapping[str, type[Record]] = MappingProxyType(
    {
        "annotation": AnnotationRecord,
        "comment": CommentRecord,
        "reaction": ReactionRecord,
        "recording": RecordingRecord,
        "notification": NotificationRecord,
        "activity": ActivityRecord,
    }
)
"""The models by ``kind``, in the order in which a batch is written. Judgments have a model of their own."""
