"""Activity records: actions of users."""

from typing import Literal

from app.contract.base import (
    Batch,
    EpochMs,
    Id,
    Ids,
    InOrganization,
    JsonObject,
    Order,
    Paged,
    Text,
    UserReference,
    WireModel,
    WithMetadata,
)

FeatureType = Literal["comment", "reaction", "recorder", "crdt", "custom"]


class ActivityUser(WireModel):
    user_id: str | None = None
    name: str | None = None
    email: str | None = None


class Activity(WireModel):
    """An activity in a response. ``timestamp`` is epoch milliseconds. ``metadata`` contains ``apiKey``, ``documentId``
    and ``organizationId``."""

    id: str
    feature_type: str | None = None
    action_type: str | None = None
    action_user: ActivityUser | None = None
    target_entity_id: str | None = None
    display_message_template: str | None = None
    display_message_template_data: JsonObject | None = None
    metadata: JsonObject | None = None
    timestamp: int | float | None = None


class GetActivityLogsRequest(InOrganization, Paged):
    """Activities of an organization, by default newest first."""

    document_id: Id | None = None
    target_entity_id: Id | None = None
    feature_types: Batch[FeatureType] | None = None
    action_types: Batch[Text] | None = None
    user_id: Id | None = None
    activity_ids: Ids | None = None
    order: Order | None = None


class ActivityInput(WithMetadata):
    """An activity in a request. It replaces an existing one with its ``id``. The default ``timestamp`` is now."""

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
    activities: Batch[ActivityInput]
