"""Registers this service as the backend's permission provider."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from app.client.client import BackendClient
from app.client.errors import InvalidRequest, OperationMissing
from app.contract import operations
from app.contract.base import NoParameters
from app.contract.permissions import (
    PermissionProviderConfig,
    PermissionProviderSettings,
    UpdatePermissionProviderConfigRequest,
)
from app.foundation.outbound.urls import checked_url, is_plaintext

TokenState = Literal["accepted", "unknown", "none"]
"""Whether the service accepts the token that the backend sends. ``none``: it sends no token."""

Accepts = Callable[[str], bool]
"""Whether the service accepts a token."""


class RegistrationError(Exception):
    """The service cannot be registered. The text is one line for the user."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The backend's permission provider settings. ``url`` is empty if there is none. The token is never shown."""

    in_use: bool
    url: str
    token: TokenState

    def to_wire(self) -> dict[str, object]:
        """The fields of the operation, with the state of the token in place of the token."""
        return {"usePermissionProvider": self.in_use, "permissionProviderUrl": self.url, "token": self.token}


@dataclass(frozen=True, slots=True)
class Registered:
    """The registration before and after. ``before`` is None if the backend does not report it."""

    before: Registration | None
    after: Registration
    changed: bool
    """Also true if only the token changed."""


def register(client: BackendClient, url: str, token: str, accepts: Accepts) -> Registered:
    """Registers ``url`` with ``token`` (empty: none).

    Raises ``RegistrationError`` if the backend lacks the operation or refuses the URL, and ``ClientError``.
    """
    try:
        before = client.call(operations.GET_PERMISSION_PROVIDER_CONFIG, NoParameters()).data
    except OperationMissing:
        before = None
    request = UpdatePermissionProviderConfigRequest(
        use_permission_provider=True,
        permission_provider_config=PermissionProviderSettings(permission_provider_url=url, auth_token=token),
    )
    try:
        after = client.call(operations.UPDATE_PERMISSION_PROVIDER_CONFIG, request).data
    except OperationMissing as error:
        raise RegistrationError(
            "the backend does not have the operation Update Permission Provider Config: register the URL and the token"
            " in its console" + ("" if before is not None else ", and see that backend.base_url is right")
        ) from error
    except InvalidRequest as error:
        hint = ""
        if "private" in error.message:
            hint = "; self_hosted_backend.allow_private_urls lets the self-hosted backend ask there"
        raise RegistrationError(f"the backend does not take {url}: {error.message}{hint}") from error
    return Registered(
        None if before is None else _registration(before, accepts), _registration(after, accepts), before != after
    )


def check_url(url: str, path: str, *, any_path: bool = False, plain_http: bool = False) -> None:
    """Raises ``RegistrationError`` if a service that answers at ``path`` cannot be reached at the URL, or if the token
    would be sent unencrypted.

    ``any_path``: a proxy maps the URL to ``path``. ``plain_http``: the connection is safe without TLS.
    """
    try:
        parts = urlsplit(checked_url(url, credentials="go into a header"))
    except ValueError as error:
        raise RegistrationError(f"--url: {error}") from error
    if parts.path != path and not any_path:
        raise RegistrationError(
            f"--url {url}: the service answers at {path} (provider.path): write"
            f" {parts.scheme}://{parts.netloc}{path}, or add --any-path when a proxy in between makes one of the other"
        )
    if is_plaintext(url) and not plain_http:
        raise RegistrationError(
            f"--url {url}: over http anyone on the way reads the token and may change the answers: write https,"
            " or add --plain-http for a network of your own"
        )


def _registration(config: PermissionProviderConfig, accepts: Accepts) -> Registration:
    provider = config.permission_provider_config
    url, token = ("", "") if provider is None else (provider.permission_provider_url, provider.auth_token)
    state: TokenState = "none" if not token else "accepted" if accepts(token) else "unknown"
    return Registration(config.use_permission_provider, url or "", state)
