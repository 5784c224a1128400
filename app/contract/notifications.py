"""Notifications of users, and who has read them."""

from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator

from app.contract.base import (
    Batch,
    Id,
    Ids,
    InOrganization,
    JsonObject,
    Order,
    Paged,
    Request,
    Text,
    UserReference,
    WireModel,
)


class TemplateData(Request):
    """Values for a template. Undeclared keys must have string values."""

    __pydantic_extra__: dict[str, Text]

    action_user: UserReference | None = None
    recipient_user: Text | None = None

    if TYPE_CHECKING:
        # Type checkers derive the parameters from the declared fields.
        def __init__(
            self, *, action_user: UserReference | None = None, recipient_user: str | None = None, **values: str
        ) -> None: ...


class NotificationContent(Request):
    """The text of a notification, and its subject."""

    action_user: UserReference | None = None
    display_headline_message_template: Text | None = None
    display_headline_message_template_data: TemplateData | None = None
    display_body_message: Text | None = None
    notification_source_data: JsonObject | None = None


class NotificationUpdate(NotificationContent):
    """Changes to one notification. ``persistReadForUsers`` keeps it in the For You tab after it was read."""

    id: Id
    read_by_user_ids: Ids | None = None
    persist_read_for_users: bool | None = None


_Updates = Batch[NotificationUpdate]
NotificationUpdates = Annotated[
    _Updates,
    BeforeValidator(
        lambda value: [value] if isinstance(value, dict) else value,
        json_schema_input_type=_Updates | NotificationUpdate,
    ),
]
"""The reference calls the field an object and uses it as an array, so both are accepted."""


class UpdateNotificationsRequest(InOrganization):
    """Updates only notifications that match the ids beside ``notifications``."""

    document_id: Id | None = None
    location_id: Id | None = None
    user_id: Id | None = None
    notifications: NotificationUpdates


class AddNotificationsRequest(InOrganization, NotificationContent):
    """One notification for ``notifyUsers`` and, unless ``notifyAll`` is false, for the document's users."""

    document_id: Id
    action_user: UserReference
    notification_id: Id | None = None
    location_id: Id | None = None
    notify_users: Batch[UserReference] | None = None
    notify_all: bool | None = None
    verify_user_permissions: bool | None = None


class GetNotificationsRequest(InOrganization, Paged):
    """Notifications, by default newest first."""

    document_id: Id | None = None
    location_id: Id | None = None
    user_id: Id | None = None
    notification_ids: Ids | None = None
    order: Order | None = None


class Notification(WireModel):
    """A notification in a response."""

    id: str
    display_headline_message_template: str | None = None
    display_headline_message_template_data: JsonObject | None = None
    display_body_message: str | None = None
    notification_source_data: JsonObject | None = None
    action_user: JsonObject | None = None
    document_id: str | None = None
    location_id: str | None = None
    read_by_user_ids: list[str] | None = None
    persist_read_for_user_ids: list[str] | None = None
    timestamp: int | float | None = None
