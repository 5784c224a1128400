"""Requests and results of the webhook operations.

Basic webhooks are two URLs per API key, for raw and processed events. Advanced webhooks are endpoints, each with its
own filters, rate and signing secret.
"""

from typing import Annotated

from pydantic import Field

from app.contract import limits
from app.contract.base import AsWhole, Id, Request, SomeField, Text, Url, UrlOrEmpty, WireModel


class WebhookServiceConfig(Request):
    """``triggers`` turns event types on and off. An empty URL removes a stored one."""

    auth_token: Text | None = Field(default=None, repr=False)
    raw_notification_url: UrlOrEmpty | None = None
    processed_notification_url: UrlOrEmpty | None = None
    encode_data: bool | None = None
    encrypt_data: bool | None = None
    public_key: Text | None = None
    triggers: dict[str, bool] | None = None
    enable_data_protection: bool | None = None


class UpdateWebhookConfigRequest(SomeField):
    """Merged into the stored configuration."""

    use_webhook_service: bool | None = None
    webhook_service_config: WebhookServiceConfig | None = None


class WebhookServiceState(WireModel):
    """``WebhookServiceConfig`` as stored."""

    auth_token: str | None = Field(default=None, repr=False)
    raw_notification_url: str | None = None
    processed_notification_url: str | None = None
    encode_data: bool | None = None
    encrypt_data: bool | None = None
    public_key: str | None = None
    triggers: dict[str, bool] | None = None
    enable_data_protection: bool | None = None


class WebhookConfig(WireModel):
    """The stored configuration."""

    use_webhook_service: bool = False
    webhook_service_config: WebhookServiceState | None = None


# Advanced webhooks.

NonEmptyTexts = Annotated[
    list[Annotated[Text, Field(min_length=1)]], Field(min_length=1, max_length=limits.BATCH_ITEMS)
]
"""``filterTypes`` and ``channels``. Absent means everything. An empty list is refused."""

Rate = Annotated[int, Field(ge=1, le=limits.ENDPOINT_RATE_MAX), AsWhole]
"""Deliveries per second."""


class Endpoint(WireModel):
    """An endpoint in a response. Times are ISO 8601. ``disabledReason`` is ``failing`` or ``gone`` if the backend
    disabled the endpoint.
    """

    id: str
    url: str
    description: str | None = None
    filter_types: list[str] | None = None
    channels: list[str] | None = None
    disabled: bool = False
    disabled_reason: str | None = None
    rate_limit: int | float | None = None
    uid: str | None = None
    metadata: dict[str, str] | None = None
    created_at: str | None = None
    updated_at: str | None = None


class _EndpointFields(Request):
    description: Text | None = None
    filter_types: NonEmptyTexts | None = None
    channels: NonEmptyTexts | None = None
    disabled: bool | None = None
    rate_limit: Rate | None = None
    uid: Id | None = None
    metadata: dict[str, Text] | None = None


class CreateEndpointRequest(_EndpointFields):
    """The backend creates the signing secret."""

    url: Url


class UpdateEndpointRequest(_EndpointFields):
    """Absent fields keep their values."""

    endpoint_id: Id
    url: Url | None = None


class DeleteEndpointRequest(Request):
    endpoint_id: Id


class DeletedEndpoint(WireModel):
    endpoint_id: str
    deleted: bool


class ListEndpointsRequest(Request):
    """``iterator`` comes from an earlier response."""

    limit: Annotated[int, Field(ge=1, le=limits.ENDPOINTS_PER_PAGE_MAX), AsWhole] | None = None
    iterator: Text | None = None


class EndpointList(WireModel):
    endpoints: list[Endpoint]
    iterator: str | None = None
    prev_iterator: str | None = None
    done: bool


class GetEndpointSecretRequest(Request):
    endpoint_id: Id


class EndpointSecret(WireModel):
    """The secret with which the backend signs payloads."""

    endpoint_id: str
    secret: str = Field(repr=False)


class AdvancedWebhookConfig(WireModel):
    """The stored configuration, with its defaults."""

    is_enabled: bool = False
    encrypt_data: bool = False
    encode_data: bool = False
    public_key: str = ""
    enable_data_protection: bool = False


class UpdateAdvancedWebhookConfigRequest(SomeField):
    """Merged into the stored configuration. The first update must enable it, which the backend checks."""

    is_enabled: bool | None = None
    encrypt_data: bool | None = None
    encode_data: bool | None = None
    public_key: Text | None = None
    enable_data_protection: bool | None = None
