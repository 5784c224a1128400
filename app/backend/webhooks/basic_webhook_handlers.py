"""Basic webhooks: where an API key's events go, read and update."""

from sqlalchemy import Connection

from app.backend.http.call import Call, Reply
from app.backend.security.outgoing import check_token, check_url
from app.backend.webhooks.config import PROCESSED, RAW, BasicConfig, basic_config, store_basic_config
from app.backend.webhooks.encryption import PublicKeyError, parse_public_key
from app.backend.webhooks.outbox import wake
from app.contract import limits
from app.contract.base import NoParameters
from app.contract.errors import InvalidArgument
from app.contract.webhooks import UpdateWebhookConfigRequest, WebhookServiceConfig

_FIELD = "data.webhookServiceConfig"


def get_webhook_config(call: Call[NoParameters], connection: Connection) -> Reply:
    config = basic_config(connection, call.backend.vault, call.principal.api_key_id)
    return Reply("Webhook config retrieved successfully.", config.to_wire())


def update_webhook_config(call: Call[UpdateWebhookConfigRequest], connection: Connection) -> Reply:
    given = call.request.webhook_service_config
    api_key_id, vault = call.principal.api_key_id, call.backend.vault
    config = basic_config(connection, vault, api_key_id).merged(
        in_use=call.request.use_webhook_service, given={} if given is None else _declared(given)
    )
    _check_whole(config)
    store_basic_config(connection, vault, api_key_id, config, call.now)
    # What waited while they were off goes on.
    wake(
        connection,
        api_key_id,
        {target for target in (RAW, PROCESSED) if config.in_use and config.url(target)},
        call.now,
    )
    return Reply("Webhook config updated successfully.", config.to_wire())


def check_public_key(text: str, field: str) -> None:
    """Raises ``InvalidArgument`` about ``field`` unless the text is empty or a key to encrypt for."""
    if text:
        try:
            parse_public_key(text)
        except PublicKeyError as error:
            raise InvalidArgument(f"{field}: {error}") from error


def check_config(call: Call[UpdateWebhookConfigRequest]) -> None:
    given, allow_private = call.request.webhook_service_config, call.backend.settings.allow_private_urls
    if given is None:
        return
    for name, url in (
        ("rawNotificationUrl", given.raw_notification_url),
        ("processedNotificationUrl", given.processed_notification_url),
    ):
        check_url(url or "", f"{_FIELD}.{name}", allow_private=allow_private)
    check_token(given.auth_token or "", f"{_FIELD}.authToken")
    check_public_key(given.public_key or "", f"{_FIELD}.publicKey")


def _check_whole(config: BasicConfig) -> None:
    if config.wrapping.encrypts and not config.wrapping.public_key:
        raise InvalidArgument(f"{_FIELD}.publicKey: encryptData needs one")
    if len(config.triggers) > limits.WEBHOOK_TRIGGERS:
        raise InvalidArgument(f"{_FIELD}.triggers: must be at most {limits.WEBHOOK_TRIGGERS} in all")


def _declared(given: WebhookServiceConfig) -> dict[str, object]:
    """What was given, without what nobody knows: it would be kept for ever, and told to everybody."""
    unknown = given.unknown_fields()
    return {name: value for name, value in given.to_wire().items() if name not in unknown}
