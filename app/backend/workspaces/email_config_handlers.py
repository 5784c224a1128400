"""How an API key wants its notification emails sent: update."""

from email_validator import EmailNotValidError, validate_email
from sqlalchemy import Connection, delete, insert, select

from app.backend.http.call import Call, Reply
from app.backend.storage import json_sets
from app.backend.workspaces.tables import EMAIL_CONFIG
from app.contract import limits
from app.contract.errors import InvalidArgument
from app.contract.workspace import UpdateEmailConfigRequest

_FIELD = "data.emailServiceConfig"
_SHOWN = 4
_LONG_ENOUGH = 16
"""Of a shorter key even its end would tell too much."""


def update_email_config(call: Call[UpdateEmailConfigRequest], connection: Connection) -> Reply:
    """Merged into what is stored, field by field and trigger by trigger. The answer shows no more than the end of the
    email service's key.
    """
    request = call.request
    api_key_id = call.principal.api_key_id
    stored = connection.execute(
        select(EMAIL_CONFIG.c.in_use, EMAIL_CONFIG.c.payload, EMAIL_CONFIG.c.key_sealed).where(
            EMAIL_CONFIG.c.api_key_id == api_key_id
        )
    ).one_or_none()
    in_use, payload, secret = False, dict[str, object](), ""
    if stored is not None:
        in_use, payload = stored.in_use, json_sets.load_object(stored.payload)
        secret = call.backend.vault.stored.open(stored.key_sealed, _context(api_key_id)) if stored.key_sealed else ""
    if request.use_email_service is not None:
        in_use = request.use_email_service
    if request.email_service_config is not None:
        given = request.email_service_config.to_wire()
        # A key that is the masked one is the stored one: callers send back what they were shown.
        key = given.pop("apiKey", None)
        if isinstance(key, str) and key != _masked(secret):
            secret = key
        triggers = _object(payload.get("triggers")) | _object(given.get("triggers"))
        payload |= given | ({"triggers": triggers} if triggers else {})
    _check_size(payload)
    connection.execute(delete(EMAIL_CONFIG).where(EMAIL_CONFIG.c.api_key_id == api_key_id))
    connection.execute(
        insert(EMAIL_CONFIG).values(
            api_key_id=api_key_id,
            in_use=in_use,
            payload=json_sets.dump(payload),
            key_sealed=call.backend.vault.stored.close(secret, _context(api_key_id)) if secret else "",
            updated_at=call.now,
        )
    )
    shown = payload | ({"apiKey": _masked(secret)} if secret else {})
    return Reply("Email config updated successfully.", {"useEmailService": in_use, "emailServiceConfig": shown})


def check_config(call: Call[UpdateEmailConfigRequest]) -> None:
    given = call.request.email_service_config
    address = None if given is None else given.to_wire().get("fromEmail")
    if isinstance(address, str):
        try:
            validate_email(address, check_deliverability=False, test_environment=True)
        except EmailNotValidError as error:
            raise InvalidArgument(f"{_FIELD}.fromEmail: must be an email address") from error


def _check_size(payload: dict[str, object]) -> None:
    """Merging must not let a configuration grow without end."""
    if len(json_sets.dump(payload)) > limits.LONG_TEXT_LENGTH:
        raise InvalidArgument(f"{_FIELD}: must be at most {limits.LONG_TEXT_LENGTH} bytes long altogether")


def _object(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}


def _masked(secret: str) -> str:
    return "****" + (secret[-_SHOWN:] if len(secret) >= _LONG_ENOUGH else "")


def _context(api_key_id: str) -> str:
    return f"email_config {api_key_id}"
