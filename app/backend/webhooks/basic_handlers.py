"""Handlers of basic webhooks: their configuration."""

from sqlalchemy import Connection

from app.backend.http.call import Call, Reply
from app.backend.security.outgoing import check_token, check_url
from app.backend.webhooks.config import basic_config, store_basic_config
from app.backend.webhooks.outbox import wake
from app.backend.webhooks.payload import check_public_key
from app.contract import limits
from app.contract.base import NoParameters
from app.contract.errors import InvalidArgument
from app.contract.webhooks import UpdateWebhookConfigRequest

_FIELD = "data.webhookServiceConfig"


def get_config(call: Call[NoParameters], connection: Connection) -> Reply:
    config = basic_config(connection, call.backend.vault, call.principal.api_key_id)
    return Reply("Webhook config retrieved successfully.", config.to_wire())


def update_config(call: Call[UpdateWebhookConfigRequest], connection: Connection) -> Reply:
    """Merges the declared fields. An undeclared one would be stored forever and returned to every reader."""
    request, api_key_id, vault = call.request.webhook_service_config, call.principal.api_key_id, call.backend.vault
    changes = {} if request is None else request.to_wire()
    for name in () if request is None else request.unknown_fields():
        del changes[name]
    config = basic_config(connection, vault, api_key_id).merged(
        in_use=call.request.use_webhook_service, changes=changes
    )
    if config.body_options.encrypt_data and not config.body_options.public_key:
        raise InvalidArgument(f"{_FIELD}.publicKey: encryptData needs one")
    if len(config.triggers) > limits.WEBHOOK_TRIGGERS:
        raise InvalidArgument(f"{_FIELD}.triggers: must be at most {limits.WEBHOOK_TRIGGERS} in all")
    store_basic_config(connection, vault, api_key_id, config, call.now)
    # Deliveries that waited for a disabled target are due again.
    wake(connection, api_key_id, config.targets, call.now)
    return Reply("Webhook config updated successfully.", config.to_wire())


def check_config(call: Call[UpdateWebhookConfigRequest]) -> None:
    """Raises ``InvalidArgument`` for a URL, token or key that this server cannot use."""
    config, allow_private = call.request.webhook_service_config, call.backend.settings.allow_private_urls
    if config is None:
        return
    check_url(config.raw_notification_url or "", f"{_FIELD}.rawNotificationUrl", allow_private=allow_private)
    check_url(
        config.processed_notification_url or "", f"{_FIELD}.processedNotificationUrl", allow_private=allow_private
    )
    check_token(config.auth_token or "", f"{_FIELD}.authToken")
    check_public_key(config.public_key or "", f"{_FIELD}.publicKey")
