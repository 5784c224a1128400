"""Basic webhooks: two URLs per API key, for raw and processed events."""

from typing import Self

from pydantic import ConfigDict, Field, model_validator

from app.contract.base import Request, Text, UrlOrEmpty, WireModel, at_least_one_of, some_schema


class WebhookServiceConfig(Request):
    """Where events go and how. ``triggers`` maps event types to on and off; an empty URL takes an address
    away."""

    auth_token: Text | None = Field(default=None, repr=False)
    raw_notification_url: UrlOrEmpty | None = None
    processed_notification_url: UrlOrEmpty | None = None
    encode_data: bool | None = None
    encrypt_data: bool | None = None
    public_key: Text | None = None
    triggers: dict[str, bool] | None = None
    enable_data_protection: bool | None = None


class UpdateWebhookConfigRequest(Request):
    """Merged into what is stored; at least one of the two fields."""

    model_config = ConfigDict(json_schema_extra=some_schema("useWebhookService", "webhookServiceConfig"))

    use_webhook_service: bool | None = None
    webhook_service_config: WebhookServiceConfig | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        at_least_one_of(self, "use_webhook_service", "webhook_service_config")
        return self


class WebhookServiceState(WireModel):
    auth_token: str | None = Field(default=None, repr=False)
    raw_notification_url: str | None = None
    processed_notification_url: str | None = None
    encode_data: bool | None = None
    encrypt_data: bool | None = None
    public_key: str | None = None
    triggers: dict[str, bool] | None = None
    enable_data_protection: bool | None = None


class WebhookConfig(WireModel):
    """The state that is stored."""

    use_webhook_service: bool = False
    webhook_service_config: WebhookServiceState | None = None
