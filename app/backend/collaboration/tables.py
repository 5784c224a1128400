"""The tables of threads, comments, reactions, recordings, notifications, activities and migrations of documents.

Each row belongs to an API key and an organization. ``payload`` is JSON with the fields that have no column. An absent
id is an empty string. Times are epoch milliseconds. Each query of a page has an index that ends in the order of the
page. On SQLite, tables with long texts are rowid tables, unlike the others.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.backend.storage.base import CLUSTERED, KeyTable, ScopedTable

_SCOPE = ("api_key_id", "organization_id")


class CommentAnnotationRow(ScopedTable, table=True):
    """A thread. ``comment_bytes`` is the total size of its comments, which limits a page without reading them."""

    __table_args__ = (
        Index("ix_comment_annotation_time", *_SCOPE, "created_at", "annotation_id"),
        Index("ix_comment_annotation_document", *_SCOPE, "document_id", "created_at", "annotation_id"),
        Index("ix_comment_annotation_location", *_SCOPE, "location_id", "created_at", "annotation_id"),
    )

    annotation_id: str = Field(primary_key=True)
    document_id: str
    location_id: str = ""
    type: str
    """``comment`` or ``suggestion``."""
    assigned_to: str = ""
    """The id of the assignee."""
    comment_bytes: int = Field(default=0, sa_type=BigInteger)
    payload: str
    created_at: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)


class CommentRow(ScopedTable, table=True):
    """A comment. ``number`` orders comments of the same time."""

    __table_args__ = (
        Index("ix_comment_order", *_SCOPE, "annotation_id", "created_at", "number", "comment_id"),
        Index("ix_comment_author", *_SCOPE, "annotation_id", "author_id"),
    )

    annotation_id: str = Field(primary_key=True)
    comment_id: str = Field(primary_key=True)
    author_id: str
    number: int = Field(sa_type=BigInteger)
    payload: str
    created_at: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)


class ThreadUserRow(ScopedTable, table=True):
    """A participant of a thread: an author or the assignee."""

    __table_args__ = (Index("ix_thread_user_annotation", *_SCOPE, "annotation_id"), CLUSTERED)

    user_id: str = Field(primary_key=True)
    annotation_id: str = Field(primary_key=True)


class ReactionRow(ScopedTable, table=True):
    """A reaction, usually to a comment."""

    __table_args__ = (
        Index("ix_reaction_user", *_SCOPE, "user_id", "created_at", "reaction_id"),
        Index("ix_reaction_document", *_SCOPE, "document_id"),
        Index("ix_reaction_comment", *_SCOPE, "annotation_id", "comment_id"),
    )

    reaction_id: str = Field(primary_key=True)
    document_id: str
    annotation_id: str = ""
    comment_id: str = ""
    user_id: str
    payload: str
    created_at: int = Field(sa_type=BigInteger)


class RecordingRow(ScopedTable, table=True):
    __table_args__ = (
        Index("ix_recording_user", *_SCOPE, "user_id", "created_at", "recording_id"),
        Index("ix_recording_document", *_SCOPE, "document_id"),
    )

    recording_id: str = Field(primary_key=True)
    document_id: str
    user_id: str
    payload: str
    created_at: int = Field(sa_type=BigInteger)


class NotificationRow(ScopedTable, table=True):
    """A notification. ``readers`` is the number of its readers, which limits a page without reading them."""

    __table_args__ = (
        Index("ix_notification_time", *_SCOPE, "created_at", "notification_id"),
        Index("ix_notification_document", *_SCOPE, "document_id", "created_at", "notification_id"),
        Index("ix_notification_location", *_SCOPE, "location_id", "created_at", "notification_id"),
        Index("ix_notification_action_user", *_SCOPE, "action_user_id", "created_at", "notification_id"),
    )

    notification_id: str = Field(primary_key=True)
    document_id: str
    location_id: str = ""
    action_user_id: str = ""
    """The ``actionUser`` of the payload."""
    readers: int = Field(default=0, sa_type=BigInteger)
    payload: str
    created_at: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)


class NotificationUserRow(ScopedTable, table=True):
    """A user whom a notification addresses, or who has read it. ``created_at`` is the notification's."""

    __table_args__ = (
        Index("ix_notification_user_time", *_SCOPE, "user_id", "created_at", "notification_id"),
        Index("ix_notification_user_document", *_SCOPE, "user_id", "document_id", "created_at", "notification_id"),
        CLUSTERED,
    )

    notification_id: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    document_id: str
    created_at: int = Field(sa_type=BigInteger)
    read_at: int | None = Field(default=None, sa_type=BigInteger)
    """None for unread."""
    persists: bool = False
    """Whether it stays in the For You tab after it was read."""


class ActivityRow(ScopedTable, table=True):
    __table_args__ = (
        Index("ix_activity_time", *_SCOPE, "happened_at", "activity_id"),
        Index("ix_activity_document", *_SCOPE, "document_id", "happened_at", "activity_id"),
        Index("ix_activity_target", *_SCOPE, "target_entity_id", "happened_at", "activity_id"),
        Index("ix_activity_user", *_SCOPE, "user_id", "happened_at", "activity_id"),
        Index("ix_activity_feature", *_SCOPE, "feature_type", "happened_at", "activity_id"),
        Index("ix_activity_action", *_SCOPE, "action_type", "happened_at", "activity_id"),
    )

    activity_id: str = Field(primary_key=True)
    document_id: str
    target_entity_id: str = ""
    user_id: str = ""
    feature_type: str
    action_type: str
    payload: str
    happened_at: int = Field(sa_type=BigInteger)


class DocumentMigrationRow(KeyTable, table=True):
    """A migration of a document to another id."""

    __table_args__ = (Index("ix_document_migration_time", "api_key_id", "created_at"),)

    migration_id: str = Field(primary_key=True)
    organization_id: str
    document_id: str
    new_document_id: str
    status: str
    """``completed`` or ``failed``."""
    created_at: int = Field(sa_type=BigInteger)


COMMENT_ANNOTATION = CommentAnnotationRow.__table__
COMMENT = CommentRow.__table__
THREAD_USER = ThreadUserRow.__table__
REACTION = ReactionRow.__table__
RECORDING = RecordingRow.__table__
NOTIFICATION = NotificationRow.__table__
NOTIFICATION_USER = NotificationUserRow.__table__
ACTIVITY = ActivityRow.__table__
DOCUMENT_MIGRATION = DocumentMigrationRow.__table__
