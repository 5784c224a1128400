"""Handlers of advanced webhooks: their configuration and endpoints."""

from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import Connection

from app.backend.http.call import Call, Reply
from app.backend.ids import new_id
from app.backend.security.outgoing import check_url
from app.backend.webhooks import endpoints, queues
from app.backend.webhooks.config import AdvancedConfig, advanced_config, store_advanced_config
from app.backend.webhooks.endpoints import StoredEndpoint
from app.backend.webhooks.outbox import wake
from app.backend.webhooks.payload import check_public_key
from app.contract import limits
from app.contract.base import NoParameters
from app.contract.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from app.contract.webhooks import (
    CreateEndpointRequest,
    DeleteEndpointRequest,
    GetEndpointSecretRequest,
    ListEndpointsRequest,
    UpdateAdvancedWebhookConfigRequest,
    UpdateEndpointRequest,
)

_CONFIG_FIELDS = {"is_enabled", "encrypt_data", "encode_data", "public_key", "enable_data_protection"}
_ENDPOINT_FIELDS = {"url", "description", "filter_types", "channels", "disabled", "rate_limit", "uid", "metadata"}


def get_config(call: Call[NoParameters], connection: Connection) -> Reply:
    config = advanced_config(connection, call.principal.api_key_id) or AdvancedConfig()
    return Reply("Advanced webhook config retrieved successfully.", config.to_wire())


def update_config(call: Call[UpdateAdvancedWebhookConfigRequest], connection: Connection) -> Reply:
    request, api_key_id = call.request, call.principal.api_key_id
    stored = advanced_config(connection, api_key_id)
    if stored is None and not request.is_enabled:
        raise FailedPrecondition("advanced webhooks were never enabled: the first update needs isEnabled true")
    changes = request.model_dump(include=_CONFIG_FIELDS, exclude_unset=True)
    config = replace(stored or AdvancedConfig(), **changes)
    if config.encrypt_data and not config.public_key:
        raise InvalidArgument("data.publicKey: encryptData needs one")
    store_advanced_config(connection, api_key_id, config, call.now)
    if config.is_enabled:
        # Deliveries that waited for a disabled target are due again.
        wake(connection, api_key_id, queues.queued_targets(connection, api_key_id), call.now)
    return Reply("Advanced webhook config updated successfully.", config.to_wire())


def create_endpoint(call: Call[CreateEndpointRequest], connection: Connection) -> Reply:
    request, backend, api_key_id = call.request, call.backend, call.principal.api_key_id
    _require_enabled(connection, api_key_id)
    stored = endpoints.load_endpoints(connection, api_key_id)
    _require_free_uid(stored, request.uid)
    if len(stored) >= endpoints.MAX_ENDPOINTS:
        raise ResourceExhausted(f"an API key has at most {endpoints.MAX_ENDPOINTS} webhook endpoints")
    endpoint_id = f"ep_{new_id(backend.entropy)}"
    endpoint = StoredEndpoint(
        endpoint_id=endpoint_id,
        secret_sealed=endpoints.new_sealed_secret(backend.vault, api_key_id, endpoint_id, backend.entropy),
        created_at=call.now,
        updated_at=call.now,
        **request.model_dump(include=_ENDPOINT_FIELDS, exclude_unset=True),
    )
    endpoints.save_endpoint(connection, api_key_id, endpoint)
    return Reply("Advanced webhook endpoint created successfully.", endpoint.to_wire())


def list_endpoints(call: Call[ListEndpointsRequest], connection: Connection) -> Reply:
    _require_enabled(connection, call.principal.api_key_id)
    limit = call.request.limit or limits.ENDPOINTS_PER_PAGE_DEFAULT
    backwards, position = _position(call.request.iterator)
    # At most 250, oldest first.
    found = endpoints.load_endpoints(connection, call.principal.api_key_id)
    if position is not None:
        found = [item for item in found if (item.position < position if backwards else item.position > position)]
    page = found[-limit:] if backwards else found[:limit]
    data: dict[str, object] = {
        "endpoints": [endpoint.to_wire() for endpoint in page],
        "iterator": _iterator("+", page[-1]) if page else None,
        "prevIterator": _iterator("-", page[0]) if page and position is not None else None,
        "done": len(found) <= limit,
    }
    return Reply("Advanced webhook endpoints retrieved successfully.", data)


def update_endpoint(call: Call[UpdateEndpointRequest], connection: Connection) -> Reply:
    request, api_key_id = call.request, call.principal.api_key_id
    endpoint = _existing(connection, api_key_id, request.endpoint_id)
    stored = endpoints.load_endpoints(connection, api_key_id)
    _require_free_uid((other for other in stored if other.endpoint_id != endpoint.endpoint_id), request.uid)
    changes = request.model_dump(include=_ENDPOINT_FIELDS, exclude_unset=True)
    reason = endpoint.disabled_reason if request.disabled is None else ""
    updated = replace(endpoint, **changes, disabled_reason=reason, updated_at=call.now)
    endpoints.save_endpoint(connection, api_key_id, updated)
    if endpoint.disabled and not updated.disabled:
        queues.reset_failures(connection, api_key_id, endpoint.endpoint_id)
        wake(connection, api_key_id, {endpoint.endpoint_id}, call.now)
    return Reply("Advanced webhook endpoint updated successfully.", updated.to_wire())


def delete_endpoint(call: Call[DeleteEndpointRequest], connection: Connection) -> Reply:
    api_key_id, endpoint_id = call.principal.api_key_id, call.request.endpoint_id
    _existing(connection, api_key_id, endpoint_id)
    queues.remove_queue(connection, api_key_id, endpoint_id)
    endpoints.delete_endpoint(connection, api_key_id, endpoint_id)
    data = {"endpointId": endpoint_id, "deleted": True}
    return Reply("Advanced webhook endpoint deleted successfully.", data)


def get_endpoint_secret(call: Call[GetEndpointSecretRequest], connection: Connection) -> Reply:
    endpoint = _existing(connection, call.principal.api_key_id, call.request.endpoint_id)
    secret = endpoints.open_secret(call.backend.vault, call.principal.api_key_id, endpoint)
    data = {"endpointId": endpoint.endpoint_id, "secret": secret}
    return Reply("Advanced webhook endpoint secret retrieved successfully.", data)


def check_config(call: Call[UpdateAdvancedWebhookConfigRequest]) -> None:
    check_public_key(call.request.public_key or "", "data.publicKey")


def check_endpoint(call: Call[CreateEndpointRequest] | Call[UpdateEndpointRequest]) -> None:
    check_url(call.request.url or "", "data.url", allow_private=call.backend.settings.allow_private_urls)


def _require_enabled(connection: Connection, api_key_id: str) -> None:
    config = advanced_config(connection, api_key_id)
    if config is None or not config.is_enabled:
        raise FailedPrecondition("advanced webhooks are not enabled: update their config with isEnabled true first")


def _existing(connection: Connection, api_key_id: str, endpoint_id: str) -> StoredEndpoint:
    _require_enabled(connection, api_key_id)
    endpoint = endpoints.load_endpoint(connection, api_key_id, endpoint_id)
    if endpoint is None:
        raise NotFound("data.endpointId: webhook endpoint does not exist")
    return endpoint


def _require_free_uid(others: Iterable[StoredEndpoint], uid: str | None) -> None:
    if uid is not None and any(endpoint.uid == uid for endpoint in others):
        raise AlreadyExists("data.uid: another webhook endpoint has it")


def _iterator(direction: str, endpoint: StoredEndpoint) -> str:
    return f"{direction}{endpoint.created_at}.{endpoint.endpoint_id}"


def _position(iterator: str | None) -> tuple[bool, tuple[int, str] | None]:
    """Whether to go backwards, and the key of the endpoint to start from."""
    if not iterator:
        return False, None
    created_at, point, endpoint_id = iterator[1:].partition(".")
    is_time = created_at.isascii() and created_at.isdigit() and len(created_at) <= 15
    if iterator[0] not in "+-" or not (is_time and point):
        raise InvalidArgument("data.iterator: is not an iterator of this list")
    return iterator[0] == "-", (int(created_at), endpoint_id)
