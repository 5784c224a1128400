"""Comment annotations (threads) and the comments in them."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from app.contract import limits
from app.contract.base import (
    Batch,
    Id,
    Ids,
    InOrganization,
    JsonObject,
    LongText,
    Order,
    Paged,
    Request,
    Text,
    UserReference,
    WireModel,
    some_field_schema,
)

AnnotationType = Literal["comment", "suggestion"]


class ReactionInput(Request):
    """A reaction to a comment, in a request."""

    reaction_id: Id | None = None
    icon: Annotated[Text, Field(min_length=1)]
    from_: UserReference


Reactions = Batch[ReactionInput]


class CommentInput(Request):
    """A new comment. ``agent`` is the AI agent that wrote it, if any."""

    comment_id: Id | None = None
    comment_text: LongText
    comment_html: LongText | None = None
    from_: UserReference
    agent: JsonObject | None = None
    reactions: Reactions | None = None


class CommentAnnotationUpdate(Request):
    """Changes to threads. Absent fields keep their values."""

    location: JsonObject | None = None
    status: JsonObject | Text | None = None
    priority: JsonObject | Text | None = None
    assigned_to: UserReference | None = None
    context: JsonObject | None = None
    type: AnnotationType | None = None
    visibility: JsonObject | Text | None = None


class CommentAnnotationInput(CommentAnnotationUpdate):
    """A new thread with its comments, at least one."""

    annotation_id: Id | None = None
    comment_data: Annotated[list[CommentInput], Field(min_length=1, max_length=limits.BATCH_ITEMS)]


class AddCommentAnnotationsRequest(InOrganization):
    """With ``verifyUserPermissions``, threads with an author without access to the document are rejected."""

    document_id: Id
    verify_user_permissions: bool | None = None
    comment_annotations: Batch[CommentAnnotationInput]


class GetCommentAnnotationsRequest(InOrganization, Paged):
    """The threads of an organization or document, or those with these ids."""

    document_id: Id | None = None
    annotation_ids: Ids | None = None
    location_id: Id | None = None
    order: Order | None = None


class UpdateCommentAnnotationsRequest(InOrganization):
    """Applies the same change to all threads with these ids, in the name of ``actionUser``.

    If it accepts or rejects a suggestion, ``reasoning`` and ``agent`` are stored with the judgment.
    """

    document_id: Id | None = None
    annotation_ids: Ids
    updated_data: CommentAnnotationUpdate
    action_user: UserReference | None = None
    reasoning: LongText | None = None
    agent: JsonObject | None = None


class DeleteCommentAnnotationsRequest(InOrganization):
    """Deletes the threads with these ids, or all threads of the document."""

    model_config = ConfigDict(json_schema_extra=some_field_schema("documentId", "annotationIds"))

    document_id: Id | None = None
    annotation_ids: Ids | None = None
    action_user: UserReference | None = None

    @model_validator(mode="after")
    def _check_document_or_ids(self) -> Self:
        if self.document_id is None and self.annotation_ids is None:
            raise ValueError("give documentId or annotationIds")
        return self


class Comment(WireModel):
    """A comment in a response."""

    comment_id: str
    comment_text: str | None = None
    comment_html: str | None = None
    from_: JsonObject | None = None
    agent: JsonObject | None = None
    reactions: list[JsonObject] | None = None
    created_at: int | float | str | None = None
    last_updated: int | float | str | None = None


class CommentAnnotation(WireModel):
    """A thread in a response."""

    annotation_id: str
    organization_id: str | None = None
    document_id: str | None = None
    location: JsonObject | None = None
    comments: list[Comment] = Field(default_factory=list)
    status: JsonObject | str | None = None
    priority: JsonObject | str | None = None
    assigned_to: JsonObject | None = None
    context: JsonObject | None = None
    type: str | None = None
    visibility: JsonObject | str | None = None
    created_at: int | float | str | None = None
    last_updated: int | float | str | None = None


class _InThread(InOrganization):
    document_id: Id
    annotation_id: Id


class AddCommentsRequest(_InThread):
    verify_user_permissions: bool | None = None
    comment_data: Batch[CommentInput]


class GetCommentsRequest(_InThread, Paged):
    """The comments of a thread, or those with these ids, oldest first."""

    comment_ids: Ids | None = None


class CommentUpdate(Request):
    """Changes to comments. Absent fields keep their values. ``reactions`` replaces the list: missing ones are deleted,
    those without a known ``reactionId`` are added.
    """

    comment_text: LongText | None = None
    comment_html: LongText | None = None
    from_: UserReference | None = None
    agent: JsonObject | None = None
    reactions: Reactions | None = None


class UpdateCommentsRequest(_InThread):
    comment_ids: Ids
    updated_data: CommentUpdate
    action_user: UserReference | None = None


class DeleteCommentsRequest(_InThread):
    """Deletes the comments with these ids, or all of the thread. A thread without comments is deleted."""

    comment_ids: Ids | None = None
    action_user: UserReference | None = None
