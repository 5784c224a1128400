"""The handler of Update Email Config."""

from typing import Any

from sqlalchemy import Connection

from app.backend.http.call import Call, Reply
from app.backend.security.key_configs import load_config, store_config
from app.backend.security.tables import EMAIL_CONFIG
from app.backend.storage import json_columns
from app.backend.workspaces.email_addresses import parse_address
from app.contract import limits
from app.contract.errors import InvalidArgument
from app.contract.workspace import UpdateEmailConfigRequest

_FIELD = "data.emailServiceConfig"
_SHOWN_CHARACTERS = 4
_MIN_SHOWN_LENGTH = 16
"""A shorter key is masked completely."""


def update_email_config(call: Call[UpdateEmailConfigRequest], connection: Connection) -> Reply:
    """Merges the request into the stored configuration by field and trigger. Returns it with the key masked."""
    request = call.request
    api_key_id, vault = call.principal.api_key_id, call.backend.vault
    stored, secret = load_config(connection, vault, EMAIL_CONFIG, api_key_id)
    in_use, payload = False, dict[str, Any]()
    if stored is not None:
        in_use, payload = stored.in_use, json_columns.load_object(stored.payload)
    if request.use_email_service is not None:
        in_use = request.use_email_service
    if request.email_service_config is not None:
        changes: dict[str, Any] = request.email_service_config.to_wire()
        # Callers send back the masked key that they received: it means the stored one.
        if (key := changes.pop("apiKey", None)) is not None and key != _masked(secret):
            secret = key
        triggers = payload.get("triggers", {}) | changes.get("triggers", {})
        payload |= changes | ({"triggers": triggers} if triggers else {})
    dumped = json_columns.dump(payload)
    if len(dumped.encode()) > limits.LONG_TEXT_LENGTH:
        raise InvalidArgument(f"{_FIELD}: must be at most {limits.LONG_TEXT_LENGTH} bytes long in total")
    columns = {"in_use": in_use, "payload": dumped, "updated_at": call.now}
    store_config(connection, vault, EMAIL_CONFIG, api_key_id, secret, **columns)
    shown = payload | ({"apiKey": _masked(secret)} if secret else {})
    return Reply("Email config updated successfully.", {"useEmailService": in_use, "emailServiceConfig": shown})


def check_email_config(call: Call[UpdateEmailConfigRequest]) -> None:
    """Raises ``InvalidArgument`` for an invalid sender address."""
    config = call.request.email_service_config
    if config is not None and config.from_email is not None:
        parse_address(config.from_email, f"{_FIELD}.fromEmail")


def _masked(secret: str) -> str:
    return "****" + (secret[-_SHOWN_CHARACTERS:] if len(secret) >= _MIN_SHOWN_LENGTH else "")
