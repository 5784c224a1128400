"""Authenticates callers by the credentials in the headers.

A missing credential header is UNAUTHENTICATED (401). A wrong one is PERMISSION_DENIED (403), as in the hosted backend's
reference. The error does not reveal which of the two headers is wrong. Nothing is cached: after a reset, the next call
with the old token is refused.
"""

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, select

from app.backend.http.call import Principal
from app.backend.security.tables import API_KEY, AUTH_TOKEN, WORKSPACE
from app.backend.security.vault import Vault
from app.contract.errors import InvalidArgument, PermissionDenied, Unauthenticated
from app.contract.operation import AuthLevel, HeaderNames
from app.foundation.ids import may_be_stored

_MAX_CREDENTIAL_LENGTH = 512


class WrongBodyCredentialsError(InvalidArgument):
    """Wrong credentials in a body. The rate limiter counts them like wrong headers."""


def credentials_in_headers(
    level: AuthLevel, header: Callable[[str], str | None], prefixes: Sequence[str]
) -> tuple[str, str]:
    """The id and the token in the headers, under the first prefix that has both. Raises ``Unauthenticated``."""
    missing = ""
    for prefix in prefixes:
        names = HeaderNames(prefix)
        pair = (
            (names.workspace_id, names.workspace_auth_token)
            if level is AuthLevel.W
            else (names.api_key, names.auth_token)
        )
        absent = [name for name in pair if not header(name)]
        if not absent:
            return header(pair[0]) or "", header(pair[1]) or ""
        # A prefix with one of the two headers is more likely the caller's.
        if not missing or len(absent) == 1:
            missing = absent[0]
    raise Unauthenticated(f"the header {missing} is required")


def authenticate(connection: Connection, vault: Vault, level: AuthLevel, credentials: tuple[str, str]) -> Principal:
    """The caller with this id and token. Raises ``PermissionDenied``."""
    is_usable = all(len(text) <= _MAX_CREDENTIAL_LENGTH and may_be_stored(text) for text in credentials)
    find = _workspace if level is AuthLevel.W else _api_key
    principal = find(connection, vault, *credentials) if is_usable else None
    if principal is None:
        name = "workspace id" if level is AuthLevel.W else "API key"
        raise PermissionDenied(f"the {name} or its auth token is not valid")
    return principal


def _api_key(connection: Connection, vault: Vault, api_key_id: str, token: str) -> Principal | None:
    query = (
        select(API_KEY.c.workspace_id, AUTH_TOKEN.c.fingerprint)
        .join(AUTH_TOKEN, AUTH_TOKEN.c.api_key_id == API_KEY.c.api_key_id)
        .where(API_KEY.c.api_key_id == api_key_id)
    )
    for workspace_id, fingerprint in connection.execute(query).all():
        if vault.matches(fingerprint, token):
            return Principal(api_key_id=api_key_id, workspace_id=workspace_id)
    return None


def _workspace(connection: Connection, vault: Vault, workspace_id: str, token: str) -> Principal | None:
    query = select(WORKSPACE.c.token_fingerprint).where(WORKSPACE.c.workspace_id == workspace_id)
    fingerprint = connection.scalar(query)
    is_valid = fingerprint is not None and vault.matches(fingerprint, token)
    return Principal(workspace_id=workspace_id) if is_valid else None
