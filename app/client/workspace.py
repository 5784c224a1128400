"""Creates a workspace in the backend, with the credentials to use it."""

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import SecretStr, ValidationError

from app.client.client import BackendClient
from app.client.credentials import WorkspaceCredentials
from app.contract import operations
from app.contract.tokens import GetAuthTokensRequest
from app.contract.validation import first_error
from app.contract.workspace import CreateWorkspaceRequest


class WorkspaceError(Exception):
    """The workspace cannot be created. The text is one line."""


@dataclass(frozen=True, slots=True)
class NewWorkspace:
    """A new workspace with its API key. Both tokens are secrets."""

    workspace_id: str
    workspace_auth_token: SecretStr
    api_key: str
    auth_token: SecretStr


def make_workspace(open_client: Callable[[WorkspaceCredentials | None], BackendClient], email: str) -> NewWorkspace:
    """Creates a workspace with its first API key. ``open_client`` opens clients of the backend, with or without the
    owner's credentials.

    Raises ``WorkspaceError``, and ``ClientError`` if the backend refuses or is unreachable.
    """
    try:
        request = CreateWorkspaceRequest(owner_email=email)
    except ValidationError as error:
        raise WorkspaceError(first_error(error, root="--email")) from error
    with open_client(None) as anonymous:
        workspace = anonymous.call(operations.CREATE_WORKSPACE, request).data
    api_key = next(iter(workspace.api_key_list), None)
    if api_key is None or not workspace.auth_token:
        raise WorkspaceError("the backend made a workspace without an API key or auth token; make one in its console")
    credentials = WorkspaceCredentials(SecretStr(workspace.id), SecretStr(workspace.auth_token))
    with open_client(credentials) as owner:
        tokens = owner.call(operations.GET_AUTH_TOKENS, GetAuthTokensRequest(api_key=api_key)).data.auth_tokens
    if not tokens:
        raise WorkspaceError(f"the backend made the API key {api_key}, but no auth token for it")
    return NewWorkspace(workspace.id, credentials.auth_token, api_key, SecretStr(tokens[0].token))
