"""Handlers and storage of the permission provider's configuration."""

from typing import NamedTuple

from sqlalchemy import Connection

from app.backend.http.call import Backend, Call, Reply
from app.backend.security.key_configs import load_config, store_config
from app.backend.security.outgoing import check_token, check_url
from app.backend.security.tables import PROVIDER_CONFIG
from app.contract.base import NoParameters
from app.contract.permissions import UpdatePermissionProviderConfigRequest

_URL_FIELD = "data.permissionProviderConfig.permissionProviderUrl"
_TOKEN_FIELD = "data.permissionProviderConfig.authToken"  # noqa: S105 - the name of a field


class ProviderConfig(NamedTuple):
    """The configuration of an API key. Its repr does not contain the token."""

    in_use: bool = False
    url: str = ""
    auth_token: str = ""

    def __repr__(self) -> str:
        return f"<ProviderConfig in_use={self.in_use}>"


def stored_config(connection: Connection, backend: Backend, api_key_id: str) -> ProviderConfig:
    """The configuration of this API key. The default is off and empty."""
    row, token = load_config(connection, backend.vault, PROVIDER_CONFIG, api_key_id)
    return ProviderConfig() if row is None else ProviderConfig(row.in_use, row.url, token)


def get_permission_provider_config(call: Call[NoParameters], connection: Connection) -> Reply:
    config = stored_config(connection, call.backend, call.principal.api_key_id)
    return Reply("Permission provider config retrieved successfully.", _to_wire(config))


def update_permission_provider_config(
    call: Call[UpdatePermissionProviderConfigRequest], connection: Connection
) -> Reply:
    request, api_key_id = call.request, call.principal.api_key_id
    config = stored_config(connection, call.backend, api_key_id)
    if request.use_permission_provider is not None:
        config = config._replace(in_use=request.use_permission_provider)
    changes = request.permission_provider_config
    if changes is not None and changes.permission_provider_url is not None:
        config = config._replace(url=changes.permission_provider_url)
    if changes is not None and changes.auth_token is not None:
        config = config._replace(auth_token=changes.auth_token)
    columns = {"in_use": config.in_use, "url": config.url, "updated_at": call.now}
    store_config(connection, call.backend.vault, PROVIDER_CONFIG, api_key_id, config.auth_token, **columns)
    return Reply("Permission provider config updated successfully.", _to_wire(config))


def check_provider_config(call: Call[UpdatePermissionProviderConfigRequest]) -> None:
    """Raises ``InvalidArgument`` for a URL or a token that this server must not use."""
    changes = call.request.permission_provider_config
    if changes is not None:
        allow_private = call.backend.settings.allow_private_urls
        check_url(changes.permission_provider_url or "", _URL_FIELD, allow_private=allow_private)
        check_token(changes.auth_token or "", _TOKEN_FIELD)


def _to_wire(config: ProviderConfig) -> dict[str, object]:
    return {
        "usePermissionProvider": config.in_use,
        "permissionProviderConfig": {"permissionProviderUrl": config.url, "authToken": config.auth_token},
    }
