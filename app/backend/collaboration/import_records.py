"""The records on the lines of a file of feature data.

The fields are those of the requests that write such data, with the ids that these take from the request around them.
The record's own id is required, so that a second import finds it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar

from pydantic import Field

from app.contract import limits
from app.contract.activities import ActivityInput
from app.contract.base import EpochMs, Id, Ids, InOrganization, JsonObject, LongText, Text, UserReference
from app.contract.comments import CommentAnnotationUpdate
from app.contract.notifications import TemplateData


class Record(InOrganization):
    """What every record has: its kind, and where it belongs."""

    KEY: ClassVar[tuple[str, ...]]
    """The fields that must be unique among records of one kind in one organization."""

    kind: str
    document_id: Id

    @property
    def record_id(self) -> tuple[str, ...]:
        return tuple(getattr(self, name) for name in self.KEY)


class AnnotationRecord(Record, CommentAnnotationUpdate):
    """A thread, without its comments. Not needed for threads that have nothing but comments."""

    KEY: ClassVar[tuple[str, ...]] = ("annotation_id",)
    annotation_id: Id
    created_at: EpochMs | None = None


class CommentRecord(Record):
    """A comment; its thread is made if it is not there."""

    KEY: ClassVar[tuple[str, ...]] = ("annotation_id", "comment_id")
    annotation_id: Id
    comment_id: Id
    comment_text: LongText
    comment_html: LongText | None = None
    from_: UserReference
    agent: JsonObject | None = None
    created_at: EpochMs | None = None


class ReactionRecord(Record):
    """A reaction, to a comment when it names one."""

    KEY: ClassVar[tuple[str, ...]] = ("reaction_id",)
    reaction_id: Id
    annotation_id: Id | None = None
    comment_id: Id | None = None
    icon: Text | None = None
    from_: UserReference
    created_at: EpochMs | None = None


class RecordingRecord(Record):
    """A recording; whatever describes it is kept as it comes."""

    KEY: ClassVar[tuple[str, ...]] = ("recording_id",)
    recording_id: Id
    from_: UserReference
    created_at: EpochMs | None = None


class NotificationRecord(Record):
    """A notification, whom it is for and who has read it."""

    KEY: ClassVar[tuple[str, ...]] = ("id",)
    id: Id
    location_id: Id | None = None
    action_user: UserReference | None = None
    display_headline_message_template: Text | None = None
    display_headline_message_template_data: TemplateData | None = None
    display_body_message: Text | None = None
    notification_source_data: JsonObject | None = None
    notify_users: Annotated[list[UserReference], Field(max_length=limits.BATCH_ITEMS)] | None = None
    read_by_user_ids: Ids | None = None
    persist_read_for_user_ids: Ids | None = None
    timestamp: EpochMs | None = None


class ActivityRecord(Record, ActivityInput):
    """An activity."""

    KEY: ClassVar[tuple[str, ...]] = ("id",)
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
"""By ``kind``. Judgments have a model of their own."""
