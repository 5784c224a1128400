"""Workspaces: create one, read it, its API keys and their auth tokens."""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Connection, Row, delete, func, insert, select

from app.backend.http.call import Backend, Call, Reply
from app.backend.http.dispatch import exclusive_write, lock_for_writing
from app.backend.ids import new_id
from app.backend.security.tables import API_KEY, AUTH_TOKEN, WORKSPACE
from app.backend.storage import json_sets
from app.backend.tokens.signing_keys import retire_keys
from app.backend.workspaces.attempts import count_attempt
from app.backend.workspaces.email_addresses import EmailAddress, owner_address
from app.backend.workspaces.tables import OWNER
from app.contract import limits
from app.contract.base import NoParameters
from app.contract.errors import AlreadyExists, InvalidArgument, NotFound, PermissionDenied, ResourceExhausted
from app.contract.tokens import GetAuthTokensRequest, ResetAuthTokenRequest
from app.contract.workspace import CreateApiKeyRequest, CreateWorkspaceRequest
from app.database.engine import reading

_TOKEN_BYTES = 32
_KEY_KIND = {"testing": "Test", "production": "Production"}


def create_workspace(call: Call[CreateWorkspaceRequest]) -> Reply:
    """The attempt counts although nothing else may come of it, so the two are separate transactions."""
    count_attempt(call.backend, call.principal.address, call.now)
    email = owner_address(call.request.owner_email)
    with reading(call.backend.engine) as connection:
        seems_first = _owner(connection, email) is None
    with call.backend.writing() as connection:
        lock_for_writing(connection, f"owner {email.key}")
        owner = _owner(connection, email)
        if owner is not None and seems_first:
            raise AlreadyExists("a workspace already exists for the email")
        if owner is not None:
            _check_further_workspace(connection, email, owner)
        workspace_id = f"ws_{new_id(call.backend.entropy)}"
        if owner is None:
            connection.execute(
                insert(OWNER).values(
                    email_key=email.key,
                    owner_id=f"own_{new_id(call.backend.entropy)}",
                    root_workspace_id=workspace_id,
                    created_at=call.now,
                )
            )
        _insert_workspace(call, connection, workspace_id, email)
        key = _NewApiKey(workspace_id, _default_key_name(email, "testing"), "testing", with_token=True)
        _insert_api_key(call.backend, connection, key, call.now)
        return Reply("Workspace created successfully.", _workspace(call.backend, connection, workspace_id))


def get_workspace(call: Call[NoParameters], connection: Connection) -> Reply:
    wire = _workspace(call.backend, connection, call.principal.workspace_id)
    return Reply("Workspace retrieved successfully.", wire)


def create_api_key(call: Call[CreateApiKeyRequest]) -> Reply:
    request = call.request
    email = owner_address(request.owner_email)
    workspace_id = call.principal.workspace_id
    with exclusive_write(call) as connection:
        email_key = connection.scalar(select(WORKSPACE.c.email_key).where(WORKSPACE.c.workspace_id == workspace_id))
        if email.key != email_key:
            raise InvalidArgument("data.ownerEmail: is not the owner of this workspace")
        if _count_api_keys(connection, workspace_id) >= limits.API_KEYS_PER_WORKSPACE:
            raise ResourceExhausted(f"a workspace has at most {limits.API_KEYS_PER_WORKSPACE} API keys")
        key = _NewApiKey(
            workspace_id,
            request.api_key_name or _default_key_name(email, request.type),
            request.type,
            with_token=bool(request.create_auth_token),
        )
        api_key_id = _insert_api_key(call.backend, connection, key, call.now)
    return Reply("API key created successfully.", {"apiKey": api_key_id})


def get_auth_tokens(call: Call[GetAuthTokensRequest], connection: Connection) -> Reply:
    api_key_id = _own_api_key(call, connection)
    rows = connection.execute(
        select(AUTH_TOKEN.c.token_sealed, AUTH_TOKEN.c.name, AUTH_TOKEN.c.domains)
        .where(AUTH_TOKEN.c.api_key_id == api_key_id)
        .order_by(AUTH_TOKEN.c.created_at, AUTH_TOKEN.c.fingerprint)
    )
    tokens = [
        {
            "token": call.backend.vault.stored.open(row.token_sealed, _token_context(api_key_id)),
            "name": row.name,
            "domains": json_sets.load_list(row.domains),
        }
        for row in rows
    ]
    return Reply("Auth tokens retrieved successfully.", {"apiKey": api_key_id, "authTokens": tokens})


def reset_auth_token(call: Call[ResetAuthTokenRequest], connection: Connection) -> Reply:
    """One new token in the place of all there were; name and domains of the oldest stay. What the API key signs from
    now on is signed with another key.
    """
    api_key_id = _own_api_key(call, connection)
    old = connection.execute(
        select(AUTH_TOKEN.c.name, AUTH_TOKEN.c.domains)
        .where(AUTH_TOKEN.c.api_key_id == api_key_id)
        .order_by(AUTH_TOKEN.c.created_at, AUTH_TOKEN.c.fingerprint)
    ).first()
    name = old.name if old else connection.scalar(select(API_KEY.c.name).where(API_KEY.c.api_key_id == api_key_id))
    domains = old.domains if old else "[]"
    connection.execute(delete(AUTH_TOKEN).where(AUTH_TOKEN.c.api_key_id == api_key_id))
    token = _insert_auth_token(call.backend, connection, api_key_id, (str(name), domains), call.now)
    retire_keys(connection, api_key_id, call.now)
    entry = {"token": token, "name": name, "domains": json_sets.load_list(domains)}
    return Reply("Auth token reset successfully.", {"apiKey": api_key_id, "newAuthToken": entry})


class _NewApiKey(NamedTuple):
    workspace_id: str
    name: str
    type: str
    with_token: bool


def _count_api_keys(connection: Connection, workspace_id: str) -> int:
    query = select(func.count()).select_from(API_KEY).where(API_KEY.c.workspace_id == workspace_id)
    return connection.execute(query).scalar_one()


def _owner(connection: Connection, email: EmailAddress) -> Row[str, str] | None:
    query = select(OWNER.c.owner_id, OWNER.c.root_workspace_id).where(OWNER.c.email_key == email.key)
    return connection.execute(query).one_or_none()


def _check_further_workspace(connection: Connection, email: EmailAddress, owner: Row[str, str]) -> None:
    """Whether this owner may have another workspace. Raises ``ResourceExhausted`` or ``PermissionDenied``."""
    number = connection.scalar(select(func.count()).select_from(WORKSPACE).where(WORKSPACE.c.email_key == email.key))
    if (number or 0) >= limits.WORKSPACES_PER_EMAIL:
        raise ResourceExhausted(f"the email already owns {number} workspaces, which is the maximum")
    paid = connection.scalar(
        select(API_KEY.c.api_key_id)
        .where(API_KEY.c.workspace_id == owner.root_workspace_id, API_KEY.c.type == "production")
        .limit(1)
    )
    if paid is None:
        raise PermissionDenied("further workspaces need a production API key in the owner's first workspace")


def _insert_workspace(
    call: Call[CreateWorkspaceRequest], connection: Connection, workspace_id: str, email: EmailAddress
) -> None:
    request = call.request
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
            token_fingerprint=call.backend.vault.fingerprint(token),
            token_sealed=call.backend.vault.stored.close(token, _workspace_context(workspace_id)),
            created_at=call.now,
        )
    )


def _insert_api_key(backend: Backend, connection: Connection, key: _NewApiKey, now: int) -> str:
    """Makes the key, with an auth token if asked for; its id."""
    api_key_id = f"key_{new_id(backend.entropy)}"
    connection.execute(
        insert(API_KEY).values(
            api_key_id=api_key_id, workspace_id=key.workspace_id, name=key.name, type=key.type, created_at=now
        )
    )
    if key.with_token:
        _insert_auth_token(backend, connection, api_key_id, (key.name, "[]"), now)
    return api_key_id


def _insert_auth_token(
    backend: Backend, connection: Connection, api_key_id: str, label: tuple[str, str], now: int
) -> str:
    """Makes an auth token with this name and these domains (a JSON list); the token."""
    name, domains = label
    token = backend.entropy.randbytes(_TOKEN_BYTES).hex()
    connection.execute(
        insert(AUTH_TOKEN).values(
            api_key_id=api_key_id,
            fingerprint=backend.vault.fingerprint(token),
            token_sealed=backend.vault.stored.close(token, _token_context(api_key_id)),
            name=name,
            domains=domains,
            created_at=now,
        )
    )
    return token


def _own_api_key(call: Call[GetAuthTokensRequest] | Call[ResetAuthTokenRequest], connection: Connection) -> str:
    """The API key asked for, if it is one of this workspace's. Raises ``NotFound``."""
    found = connection.scalar(
        select(API_KEY.c.api_key_id).where(
            API_KEY.c.api_key_id == call.request.api_key, API_KEY.c.workspace_id == call.principal.workspace_id
        )
    )
    if found is None:
        raise NotFound("data.apiKey: API key not found")
    return str(found)


def _workspace(backend: Backend, connection: Connection, workspace_id: str) -> Mapping[str, object]:
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
    """``Ada Test API Key`` for ada@…: from the address, not from the owner's name."""
    local_part = email.local_part
    return f"{local_part[:1].upper()}{local_part[1:]} {_KEY_KIND[key_type]} API Key"


def _workspace_context(workspace_id: str) -> str:
    return f"workspace token {workspace_id}"


def _token_context(api_key_id: str) -> str:
    return f"auth token {api_key_id}"
