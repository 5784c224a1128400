"""Basic webhooks: two URLs per API key, for raw and processed events."""

from pydantic import Field

from app.contract.base import Request, SomeField, Text, UrlOrEmpty, WireModel


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
