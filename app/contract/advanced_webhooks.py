"""Advanced webhooks: endpoints with their own filters, rate and signing secret."""

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from app.contract import limits
from app.contract.base import AsWhole, Id, Request, Text, Url, WireModel, at_least_one_of, some_schema

NonEmptyTexts = Annotated[
    list[Annotated[Text, Field(min_length=1)]], Field(min_length=1, max_length=limits.BATCH_ITEMS)
]
"""``filterTypes`` and ``channels``: when omitted, everything; an empty list would mean nothing and is refused."""

Rate = Annotated[int, Field(ge=1, le=limits.ENDPOINT_RATE_MAX), AsWhole]
"""Deliveries per second."""


class Endpoint(WireModel):
    """An endpoint as it is read: what was omitted is null. Times are ISO 8601. ``disabledReason`` comes with an
    endpoint that the backend itself has disabled: ``failing`` or ``gone``.
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


class CreateEndpointRequest(Request):
    """The signing secret is the service's to make and is not accepted here."""

    url: Url
    description: Text | None = None
    filter_types: NonEmptyTexts | None = None
    channels: NonEmptyTexts | None = None
    disabled: bool | None = None
    rate_limit: Rate | None = None
    uid: Id | None = None
    metadata: dict[str, Text] | None = None


class UpdateEndpointRequest(Request):
    """Fields not given keep their values."""

    endpoint_id: Id
    url: Url | None = None
    description: Text | None = None
    filter_types: NonEmptyTexts | None = None
    channels: NonEmptyTexts | None = None
    disabled: bool | None = None
    rate_limit: Rate | None = None
    uid: Id | None = None
    metadata: dict[str, Text] | None = None


class DeleteEndpointRequest(Request):
    endpoint_id: Id


class DeletedEndpoint(WireModel):
    endpoint_id: str
    deleted: bool


class ListEndpointsRequest(Request):
    """``iterator`` comes from an earlier answer."""

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
    """The signing secret. It allows its holder to forge payloads."""

    endpoint_id: str
    secret: str = Field(repr=False)


class AdvancedWebhookConfig(WireModel):
    """The state that is stored; these defaults where nothing was ever configured."""

    is_enabled: bool = False
    encrypt_data: bool = False
    encode_data: bool = False
    public_key: str = ""
    enable_data_protection: bool = False


_CONFIG_FIELDS = ("is_enabled", "encrypt_data", "encode_data", "public_key", "enable_data_protection")


class UpdateAdvancedWebhookConfigRequest(Request):
    """Merged into what is stored; at least one field. That the first call has to enable is the backend's to
    judge."""

    model_config = ConfigDict(
        json_schema_extra=some_schema("isEnabled", "encryptData", "encodeData", "publicKey", "enableDataProtection")
    )

    is_enabled: bool | None = None
    encrypt_data: bool | None = None
    encode_data: bool | None = None
    public_key: Text | None = None
    enable_data_protection: bool | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        at_least_one_of(self, *_CONFIG_FIELDS)
        return self
