"""The credentials of a client: in headers and bodies of requests, and masked in texts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import SecretStr

from app.client.errors import CredentialsRefused
from app.client.settings import BackendSettings
from app.contract.base import Request
from app.contract.errors import Status
from app.contract.operation import AnyOperation, AuthLevel, HeaderNames

_SHORTEST_MASKED = 4
"""Characters. Shorter secrets would match words."""


@dataclass(frozen=True, slots=True)
class WorkspaceCredentials:
    """The credentials of operations with auth level W."""

    workspace_id: SecretStr
    auth_token: SecretStr


class BackendCredentials:
    """The credentials of ``settings``, and those of a workspace if the caller has them."""

    def __init__(self, settings: BackendSettings, workspace: WorkspaceCredentials | None) -> None:
        self._api_key = settings.api_key.get_secret_value()
        self._auth_token = settings.auth_token.get_secret_value()
        self._workspace_id = self._workspace_token = ""
        if workspace is not None:
            self._workspace_id = workspace.workspace_id.get_secret_value()
            self._workspace_token = workspace.auth_token.get_secret_value()
        self._names = HeaderNames(settings.header_prefix)
        secrets = {self._api_key, self._auth_token, self._workspace_id, self._workspace_token}
        self._masked = sorted((text for text in secrets if len(text) >= _SHORTEST_MASKED), key=len, reverse=True)

    def headers(self, operation: AnyOperation) -> dict[str, str]:
        """The headers that authenticate a call. Raises ``CredentialsRefused`` if credentials are missing."""
        names = self._names
        if operation.auth is AuthLevel.K:
            secrets = {
                names.api_key: ("api_key", self._api_key),
                names.auth_token: ("auth_token", self._auth_token),
            }
        elif operation.auth is AuthLevel.W:
            secrets = {
                names.workspace_id: ("workspace id", self._workspace_id),
                names.workspace_auth_token: ("workspace auth token", self._workspace_token),
            }
        else:
            return {}
        for name, secret in secrets.values():
            if not secret:
                message = f"not sent: no {name} of the backend is configured"
                raise CredentialsRefused(operation.name, Status.UNAUTHENTICATED, message, http_code=0)
        return {header: secret for header, (_, secret) in secrets.items()}

    def body(self, operation: AnyOperation, request: Request) -> dict[str, object]:
        """The body of a call, with the credentials of operations that have them there."""
        body = operation.body(request)
        data = body["data"]
        if operation.auth is AuthLevel.BODY and isinstance(data, dict):
            for field, secret in (("apiKey", self._api_key), ("authToken", self._auth_token)):
                data[field] = data.get(field) or secret
        return body

    def mask(self, text: str) -> str:
        """The text without these credentials."""
        return masked(text, self._masked)


def masked(text: str, secrets: Sequence[str]) -> str:
    """The text with ``***`` in place of the secrets, plain or escaped as in JSON."""
    for secret in secrets:
        for spelling in {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}:
            text = text.replace(spelling, "***")
    return text
