"""Activity records: actions of users."""

from typing import Annotated, Literal

from pydantic import Field

from app.contract import limits
from app.contract.base import (
    Described,
    EpochMs,
    Id,
    Ids,
    InOrganization,
    JsonObject,
    Order,
    PageSize,
    PageToken,
    Text,
    UserReference,
    WireModel,
)

FeatureType = Literal["comment", "reaction", "recorder", "crdt", "custom"]


class ActivityUser(WireModel):
    user_id: str | None = None
    name: str | None = None
    email: str | None = None


class Activity(WireModel):
    """An activity as it is read. ``timestamp`` is epoch milliseconds; ``metadata`` holds apiKey, documentId and
    organizationId."""

    id: str
    feature_type: str | None = None
    action_type: str | None = None
    action_user: ActivityUser | None = None
    target_entity_id: str | None = None
    display_message_template: str | None = None
    display_message_template_data: JsonObject | None = None
    metadata: JsonObject | None = None
    timestamp: int | float | None = None


class GetActivityLogsRequest(InOrganization):
    """One page of an organization's activities, newest first unless ``order`` is given."""

    document_id: Id | None = None
    target_entity_id: Id | None = None
    feature_types: Annotated[list[FeatureType], Field(max_length=limits.BATCH_ITEMS)] | None = None
    action_types: Annotated[list[Text], Field(max_length=limits.BATCH_ITEMS)] | None = None
    user_id: Id | None = None
    activity_ids: Ids | None = None
    order: Order | None = None
    page_size: PageSize | None = None
    page_token: PageToken | None = None


class ActivityInput(Described):
    """An activity as it is written. One with an ``id`` that exists takes its place; without an id it is new;
    without a ``timestamp`` it happened now.
    """

    id: Id | None = None
    feature_type: FeatureType
    action_type: Id
    action_user: UserReference
    target_entity_id: Id | None = None
    display_message_template: Text | None = None
    display_message_template_data: JsonObject | None = None
    metadata: JsonObject | None = None
    timestamp: EpochMs | None = None


class AddActivitiesRequest(InOrganization):
    document_id: Id
    activities: Annotated[list[ActivityInput], Field(max_length=limits.BATCH_ITEMS)]
