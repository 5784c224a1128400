"""Email: the handler of Update Email Config, and the addresses of workspace owners."""

from typing import Any, NamedTuple

from disposable_email_domains import blocklist
from email_validator import EmailNotValidError, ValidatedEmail, validate_email
from sqlalchemy import Connection

from app.backend.http.call import Call, Reply
from app.backend.security.key_configs import load_config, store_config
from app.backend.security.tables import EMAIL_CONFIG
from app.backend.storage import json_columns
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
    if len(json_columns.dump(payload)) > limits.LONG_TEXT_LENGTH:
        raise InvalidArgument(f"{_FIELD}: must be at most {limits.LONG_TEXT_LENGTH} bytes long in total")
    columns = {"in_use": in_use, "payload": json_columns.dump(payload), "updated_at": call.now}
    store_config(connection, vault, EMAIL_CONFIG, api_key_id, secret, **columns)
    shown = payload | ({"apiKey": _masked(secret)} if secret else {})
    return Reply("Email config updated successfully.", {"useEmailService": in_use, "emailServiceConfig": shown})


def check_email_config(call: Call[UpdateEmailConfigRequest]) -> None:
    """Raises ``InvalidArgument`` for an invalid sender address."""
    config = call.request.email_service_config
    if config is not None and config.from_email is not None:
        _validated(config.from_email, f"{_FIELD}.fromEmail")


def _masked(secret: str) -> str:
    return "****" + (secret[-_SHOWN_CHARACTERS:] if len(secret) >= _MIN_SHOWN_LENGTH else "")


class EmailAddress(NamedTuple):
    """A valid address."""

    address: str
    """The address with its domain in lower case."""
    key: str
    """The address in lower case, which identifies its owner."""
    local_part: str


def owner_address(text: str) -> EmailAddress:
    """Parses an address. Raises ``InvalidArgument`` for an invalid one, or one with a disposable domain."""
    valid = _validated(text, "data.ownerEmail")
    labels = (valid.ascii_domain or valid.domain).lower().rstrip(".").split(".")
    if any(".".join(labels[start:]) in blocklist for start in range(len(labels) - 1)):
        raise InvalidArgument("data.ownerEmail: disposable email domains are not accepted")
    return EmailAddress(valid.normalized, valid.normalized.lower(), valid.local_part)


def _validated(text: str, field: str) -> ValidatedEmail:
    """Makes no DNS lookup. Accepts addresses under ``.test``, because this server is also used for trials."""
    try:
        return validate_email(text, check_deliverability=False, test_environment=True)
    except EmailNotValidError as error:
        raise InvalidArgument(f"{field}: must be an email address") from error
