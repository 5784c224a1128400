"""Comment annotations (threads) and the comments in them."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from app.contract import limits
from app.contract.base import (
    Id,
    Ids,
    InOrganization,
    JsonObject,
    LongText,
    Order,
    PageSize,
    PageToken,
    Request,
    Text,
    UserReference,
    WireModel,
    at_least_one_of,
    some_schema,
)

AnnotationType = Literal["comment", "suggestion"]


class ReactionInput(Request):
    """A reaction to a comment as it is written."""

    reaction_id: Id | None = None
    icon: Annotated[Text, Field(min_length=1)]
    from_: UserReference


Reactions = Annotated[list[ReactionInput], Field(max_length=limits.BATCH_ITEMS)]


class CommentInput(Request):
    """A new comment. ``agent``: the AI agent that wrote it, if any."""

    comment_id: Id | None = None
    comment_text: LongText
    comment_html: LongText | None = None
    from_: UserReference
    agent: JsonObject | None = None
    reactions: Reactions | None = None


class CommentAnnotationInput(Request):
    """A thread as it is written, with its comments; there is no thread without one."""

    annotation_id: Id | None = None
    location: JsonObject | None = None
    comment_data: Annotated[list[CommentInput], Field(min_length=1, max_length=limits.BATCH_ITEMS)]
    status: JsonObject | Text | None = None
    priority: JsonObject | Text | None = None
    assigned_to: UserReference | None = None
    context: JsonObject | None = None
    type: AnnotationType | None = None
    visibility: JsonObject | Text | None = None


class AddCommentAnnotationsRequest(InOrganization):
    """With ``verifyUserPermissions`` only authors with access to the document get through."""

    document_id: Id
    verify_user_permissions: bool | None = None
    comment_annotations: Annotated[list[CommentAnnotationInput], Field(max_length=limits.BATCH_ITEMS)]


class GetCommentAnnotationsRequest(InOrganization):
    """One page of the threads of an organization, of a document, or of those named."""

    document_id: Id | None = None
    annotation_ids: Ids | None = None
    location_id: Id | None = None
    order: Order | None = None
    page_size: PageSize | None = None
    page_token: PageToken | None = None


class CommentAnnotationUpdate(Request):
    """What is to change in threads; fields not given keep their values."""

    location: JsonObject | None = None
    status: JsonObject | Text | None = None
    priority: JsonObject | Text | None = None
    assigned_to: UserReference | None = None
    context: JsonObject | None = None
    type: AnnotationType | None = None
    visibility: JsonObject | Text | None = None


class UpdateCommentAnnotationsRequest(InOrganization):
    """Applies the same change to all named threads. ``actionUser`` is the acting user; If a suggestion is accepted or
    rejected, ``reasoning`` and ``agent`` are stored with the judgment.
    """

    document_id: Id | None = None
    annotation_ids: Ids
    updated_data: CommentAnnotationUpdate
    action_user: UserReference | None = None
    reasoning: LongText | None = None
    agent: JsonObject | None = None


class DeleteCommentAnnotationsRequest(InOrganization):
    """Deletes the named threads. Without ``annotationIds``, those of the document, which must be named then."""

    model_config = ConfigDict(json_schema_extra=some_schema("documentId", "annotationIds"))

    document_id: Id | None = None
    annotation_ids: Ids | None = None
    action_user: UserReference | None = None

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        at_least_one_of(self, "document_id", "annotation_ids")
        return self


class Comment(WireModel):
    """A comment as it is read."""

    comment_id: str
    comment_text: str | None = None
    comment_html: str | None = None
    from_: JsonObject | None = None
    agent: JsonObject | None = None
    reactions: list[JsonObject] | None = None
    created_at: int | float | str | None = None
    last_updated: int | float | str | None = None


class CommentAnnotation(WireModel):
    """A thread as it is read."""

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
    comment_data: Annotated[list[CommentInput], Field(max_length=limits.BATCH_ITEMS)]


class GetCommentsRequest(_InThread):
    """The comments of a thread, or those named, oldest first."""

    comment_ids: Ids | None = None
    page_size: PageSize | None = None
    page_token: PageToken | None = None


class CommentUpdate(Request):
    """What is to change in comments; fields not given keep their values. ``reactions`` are all that a comment is to
    have: those that are missing go, those without a known ``reactionId`` are new.
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
    """Deletes the named comments, or all of the thread's without ``commentIds``. A thread goes with its last
    comment."""

    comment_ids: Ids | None = None
    action_user: UserReference | None = None
