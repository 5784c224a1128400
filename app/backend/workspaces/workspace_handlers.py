"""Handlers of workspaces, their API keys and auth tokens."""

from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select

from app.backend.http.call import Backend, Call, Reply
from app.backend.ids import new_id
from app.backend.security.tables import API_KEY, AUTH_TOKEN, OWNER, WORKSPACE
from app.backend.storage import json_columns
from app.backend.storage.locks import lock_for_writing
from app.backend.tokens.signing_keys import retire_keys
from app.backend.workspaces.attempts import count_attempt
from app.backend.workspaces.email_addresses import EmailAddress, owner_address
from app.contract import limits
from app.contract.base import NoParameters
from app.contract.errors import AlreadyExists, InvalidArgument, NotFound, PermissionDenied, ResourceExhausted
from app.contract.tokens import GetAuthTokensRequest, ResetAuthTokenRequest
from app.contract.workspace import CreateApiKeyRequest, CreateWorkspaceRequest
from app.foundation.database.engine import reading

_TOKEN_BYTES = 32
_KEY_KIND = {"testing": "Test", "production": "Production"}


def create_workspace(call: Call[CreateWorkspaceRequest]) -> Reply:
    """Counts the attempt in a transaction of its own, so that failed attempts count."""
    backend = call.backend
    count_attempt(backend, call.principal.address, call.now)
    email = owner_address(call.request.owner_email)
    with reading(backend.engine) as connection:
        seems_first = _owner(connection, email) is None
    with backend.writing() as connection:
        lock_for_writing(connection, f"owner {email.key}")
        owner = _owner(connection, email)
        if owner is not None and seems_first:
            # A concurrent request created it.
            raise AlreadyExists("a workspace already exists for the email")
        workspace_id = f"ws_{new_id(backend.entropy)}"
        if owner is not None:
            _require_further_workspace(connection, email, owner)
        else:
            connection.execute(
                insert(OWNER).values(
                    email_key=email.key,
                    owner_id=f"own_{new_id(backend.entropy)}",
                    root_workspace_id=workspace_id,
                    created_at=call.now,
                )
            )
        _insert_workspace(call, connection, workspace_id, email)
        name = _default_key_name(email, "testing")
        _insert_api_key(call, connection, workspace_id, name=name, key_type="testing", with_token=True)
        return Reply("Workspace created successfully.", _workspace(backend, connection, workspace_id))


def get_workspace(call: Call[NoParameters], connection: Connection) -> Reply:
    workspace = _workspace(call.backend, connection, call.principal.workspace_id)
    return Reply("Workspace retrieved successfully.", workspace)


def create_api_key(call: Call[CreateApiKeyRequest]) -> Reply:
    request = call.request
    email = owner_address(request.owner_email)
    workspace_id = call.principal.workspace_id
    with call.exclusive_write() as connection:
        email_key = connection.scalar(select(WORKSPACE.c.email_key).where(WORKSPACE.c.workspace_id == workspace_id))
        if email.key != email_key:
            raise InvalidArgument("data.ownerEmail: is not the owner of this workspace")
        count = select(func.count()).select_from(API_KEY).where(API_KEY.c.workspace_id == workspace_id)
        if connection.execute(count).scalar_one() >= limits.API_KEYS_PER_WORKSPACE:
            raise ResourceExhausted(f"a workspace has at most {limits.API_KEYS_PER_WORKSPACE} API keys")
        api_key_id = _insert_api_key(
            call,
            connection,
            workspace_id,
            name=request.api_key_name or _default_key_name(email, request.type),
            key_type=request.type,
            with_token=bool(request.create_auth_token),
        )
    return Reply("API key created successfully.", {"apiKey": api_key_id})


def get_auth_tokens(call: Call[GetAuthTokensRequest], connection: Connection) -> Reply:
    api_key_id = _own_api_key(call, connection)
    tokens = [
        {
            "token": call.backend.vault.stored.open(row.token_sealed, _token_context(api_key_id)),
            "name": row.name,
            "domains": json_columns.load_list(row.domains),
        }
        for row in _auth_tokens(connection, api_key_id)
    ]
    return Reply("Auth tokens retrieved successfully.", {"apiKey": api_key_id, "authTokens": tokens})


def reset_auth_token(call: Call[ResetAuthTokenRequest], connection: Connection) -> Reply:
    """Replaces all auth tokens with one, which has the name and domains of the oldest. Changes the signing key."""
    api_key_id = _own_api_key(call, connection)
    if old := _auth_tokens(connection, api_key_id):
        name, domains = str(old[0].name), str(old[0].domains)
    else:
        name = str(connection.scalar(select(API_KEY.c.name).where(API_KEY.c.api_key_id == api_key_id)))
        domains = "[]"
    connection.execute(delete(AUTH_TOKEN).where(AUTH_TOKEN.c.api_key_id == api_key_id))
    token = _insert_auth_token(call, connection, api_key_id, name, domains)
    retire_keys(connection, api_key_id, call.now)
    new = {"token": token, "name": name, "domains": json_columns.load_list(domains)}
    return Reply("Auth token reset successfully.", {"apiKey": api_key_id, "newAuthToken": new})


def _owner(connection: Connection, email: EmailAddress) -> Row[str, str] | None:
    query = select(OWNER.c.owner_id, OWNER.c.root_workspace_id).where(OWNER.c.email_key == email.key)
    return connection.execute(query).one_or_none()


def _require_further_workspace(connection: Connection, email: EmailAddress, owner: Row[str, str]) -> None:
    """Raises ``ResourceExhausted`` or ``PermissionDenied`` if the owner may not have another workspace."""
    count = connection.execute(
        select(func.count()).select_from(WORKSPACE).where(WORKSPACE.c.email_key == email.key)
    ).scalar_one()
    if count >= limits.WORKSPACES_PER_EMAIL:
        raise ResourceExhausted(f"the email already owns {count} workspaces, which is the maximum")
    production_key = connection.scalar(
        select(API_KEY.c.api_key_id)
        .where(API_KEY.c.workspace_id == owner.root_workspace_id, API_KEY.c.type == "production")
        .limit(1)
    )
    if production_key is None:
        raise PermissionDenied("further workspaces need a production API key in the owner's first workspace")


def _insert_workspace(
    call: Call[CreateWorkspaceRequest], connection: Connection, workspace_id: str, email: EmailAddress
) -> None:
    request, vault = call.request, call.backend.vault
    owner_name = request.name or email.address
    token = call.backend.entropy.randbytes(_TOKEN_BYTES).hex()
    connection.execute(
        insert(WORKSPACE).values(
            workspace_id=workspace_id,
            email_key=email.key,
            name=request.workspace_name or f"{owner_name} workspace",
            owner_email=email.address,
            owner_name=owner_name,
            owner_avatar=request.avatar or "",
            token_fingerprint=vault.fingerprint(token),
            token_sealed=vault.stored.close(token, _workspace_context(workspace_id)),
            created_at=call.now,
        )
    )


def _insert_api_key(
    call: Call[Any], connection: Connection, workspace_id: str, *, name: str, key_type: str, with_token: bool
) -> str:
    """Creates an API key, with an auth token on request. Returns its id."""
    api_key_id = f"key_{new_id(call.backend.entropy)}"
    connection.execute(
        insert(API_KEY).values(
            api_key_id=api_key_id, workspace_id=workspace_id, name=name, type=key_type, created_at=call.now
        )
    )
    if with_token:
        _insert_auth_token(call, connection, api_key_id, name, "[]")
    return api_key_id


def _insert_auth_token(call: Call[Any], connection: Connection, api_key_id: str, name: str, domains: str) -> str:
    """Creates an auth token. ``domains`` is a JSON list. Returns the token."""
    vault = call.backend.vault
    token = call.backend.entropy.randbytes(_TOKEN_BYTES).hex()
    connection.execute(
        insert(AUTH_TOKEN).values(
            api_key_id=api_key_id,
            fingerprint=vault.fingerprint(token),
            token_sealed=vault.stored.close(token, _token_context(api_key_id)),
            name=name,
            domains=domains,
            created_at=call.now,
        )
    )
    return token


def _own_api_key(call: Call[GetAuthTokensRequest] | Call[ResetAuthTokenRequest], connection: Connection) -> str:
    """The requested API key. Raises ``NotFound`` unless it belongs to the caller's workspace."""
    api_key_id = connection.scalar(
        select(API_KEY.c.api_key_id).where(
            API_KEY.c.api_key_id == call.request.api_key, API_KEY.c.workspace_id == call.principal.workspace_id
        )
    )
    if api_key_id is None:
        raise NotFound("data.apiKey: API key not found")
    return str(api_key_id)


def _auth_tokens(connection: Connection, api_key_id: str) -> list[Any]:
    """The auth tokens of an API key, oldest first."""
    query = (
        select(AUTH_TOKEN.c.token_sealed, AUTH_TOKEN.c.name, AUTH_TOKEN.c.domains)
        .where(AUTH_TOKEN.c.api_key_id == api_key_id)
        .order_by(AUTH_TOKEN.c.created_at, AUTH_TOKEN.c.fingerprint)
    )
    return list(connection.execute(query))


def _workspace(backend: Backend, connection: Connection, workspace_id: str) -> dict[str, object]:
    """The workspace as JSON."""
    row = connection.execute(
        select(WORKSPACE, OWNER.c.owner_id)
        .join(OWNER, OWNER.c.email_key == WORKSPACE.c.email_key)
        .where(WORKSPACE.c.workspace_id == workspace_id)
    ).one()
    keys = connection.execute(
        select(API_KEY.c.api_key_id, API_KEY.c.name, API_KEY.c.type)
        .where(API_KEY.c.workspace_id == workspace_id)
        .order_by(API_KEY.c.created_at, API_KEY.c.api_key_id)
    )
    owner = {"email": row.owner_email, "id": row.owner_id, "name": row.owner_name}
    if row.owner_avatar:
        owner["avatar"] = row.owner_avatar
    return {
        "id": workspace_id,
        "name": row.name,
        "owner": owner,
        "authToken": backend.vault.stored.open(row.token_sealed, _workspace_context(workspace_id)),
        "apiKeyList": {
            key.api_key_id: {"apiKeyName": key.name, "id": key.api_key_id, "type": key.type} for key in keys
        },
    }


def _default_key_name(email: EmailAddress, key_type: str) -> str:
    """``Ada Test API Key`` for ``ada@…``."""
    return f"{email.local_part[:1].upper()}{email.local_part[1:]} {_KEY_KIND[key_type]} API Key"


def _workspace_context(workspace_id: str) -> str:
    return f"workspace token {workspace_id}"


def _token_context(api_key_id: str) -> str:
    return f"auth token {api_key_id}"
