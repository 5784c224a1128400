"""Notifications of a user, and whether they were read."""

from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field

from app.contract import limits
from app.contract.base import (
    Id,
    Ids,
    InOrganization,
    JsonObject,
    Order,
    PageSize,
    PageToken,
    Request,
    Text,
    UserReference,
    WireModel,
)


class TemplateData(Request):
    """Values for a template: two users that are known by name, and any further keys with string values."""

    __pydantic_extra__: dict[str, Text]

    action_user: UserReference | None = None
    recipient_user: Text | None = None

    if TYPE_CHECKING:
        # Type checkers make a model's parameters from its fields alone, and would refuse the further keys.
        def __init__(
            self, *, action_user: UserReference | None = None, recipient_user: str | None = None, **values: str
        ) -> None: ...


class NotificationUpdate(Request):
    """What is to change in one notification. ``persistReadForUsers`` keeps read ones in the For You tab."""

    id: Id
    action_user: UserReference | None = None
    display_headline_message_template: Text | None = None
    display_headline_message_template_data: TemplateData | None = None
    display_body_message: Text | None = None
    notification_source_data: JsonObject | None = None
    read_by_user_ids: Ids | None = None
    persist_read_for_users: bool | None = None


def _one_as_many(value: object) -> object:
    return [value] if isinstance(value, dict) else value


_Updates = Annotated[list[NotificationUpdate], Field(max_length=limits.BATCH_ITEMS)]
NotificationUpdates = Annotated[
    _Updates,
    BeforeValidator(_one_as_many, json_schema_input_type=_Updates | NotificationUpdate),
]
"""The reference calls the field an object and uses it as an array: one object counts as an array of one."""


class UpdateNotificationsRequest(InOrganization):
    """The ids beside ``notifications`` narrow down which ones may be updated."""

    document_id: Id | None = None
    location_id: Id | None = None
    user_id: Id | None = None
    notifications: NotificationUpdates


class AddNotificationsRequest(InOrganization):
    """One notification for many users: those in ``notifyUsers``, and the document's users unless ``notifyAll`` is
    false."""

    document_id: Id
    action_user: UserReference
    notification_id: Id | None = None
    location_id: Id | None = None
    display_headline_message_template: Text | None = None
    display_headline_message_template_data: TemplateData | None = None
    display_body_message: Text | None = None
    notification_source_data: JsonObject | None = None
    notify_users: Annotated[list[UserReference], Field(max_length=limits.BATCH_ITEMS)] | None = None
    notify_all: bool | None = None
    verify_user_permissions: bool | None = None


class GetNotificationsRequest(InOrganization):
    """One page of notifications, newest first unless ``order`` is given."""

    document_id: Id | None = None
    location_id: Id | None = None
    user_id: Id | None = None
    notification_ids: Ids | None = None
    order: Order | None = None
    page_size: PageSize | None = None
    page_token: PageToken | None = None


class Notification(WireModel):
    """A notification as it is read."""

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
