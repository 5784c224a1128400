"""Authentication: who is calling?

A credential header that is missing is UNAUTHENTICATED (401). One that is there and wrong is PERMISSION_DENIED (403),
as the reference says for an invalid API key, whichever of the two headers is wrong: a caller learns nothing about
which keys exist. Nothing is cached: a token that was reset is refused by the very next call.
"""

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, bindparam, select

from app.backend.http.call import Principal
from app.backend.security.tables import API_KEY, AUTH_TOKEN, WORKSPACE
from app.backend.security.vault import Vault
from app.contract.errors import InvalidArgument, PermissionDenied, Unauthenticated
from app.contract.headers import HeaderNames
from app.contract.operation import AuthLevel
from app.contract.storable import is_storable

_LONGEST_CREDENTIAL = 512


class WrongBodyCredentialsError(InvalidArgument):
    """Credentials in a body are wrong: for the caller an argument like any other, for us an attempt that counts."""


# Every call asks this; a statement that is put together once costs a fraction.
_TOKENS_OF_KEY = (
    select(API_KEY.c.workspace_id, AUTH_TOKEN.c.fingerprint)
    .join(AUTH_TOKEN, AUTH_TOKEN.c.api_key_id == API_KEY.c.api_key_id)
    .where(API_KEY.c.api_key_id == bindparam("api_key_id"))
)


def shown_credentials(
    level: AuthLevel, header: Callable[[str], str | None], prefixes: Sequence[str]
) -> tuple[str, str]:
    """The id and the token in the headers of this level, under the first prefix that has both.

    Raises ``Unauthenticated`` naming the header that is missing.
    """
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
        if not missing or len(absent) == 1:
            missing = absent[0]
    raise Unauthenticated(f"the header {missing} is required")


def authenticate(connection: Connection, vault: Vault, level: AuthLevel, shown: tuple[str, str]) -> Principal:
    """The caller to whom the shown id and token belong. Raises ``PermissionDenied``."""
    shown_id, token = shown
    if all(len(one) <= _LONGEST_CREDENTIAL and is_storable(one) for one in shown):
        if level is AuthLevel.W:
            return _workspace(connection, vault, shown_id, token)
        return _api_key(connection, vault, shown_id, token)
    raise _denied(level)


def _api_key(connection: Connection, vault: Vault, api_key_id: str, token: str) -> Principal:
    rows = connection.execute(_TOKENS_OF_KEY, {"api_key_id": api_key_id}).all()
    for workspace_id, fingerprint in rows:
        if vault.matches(fingerprint, token):
            return Principal(api_key_id=api_key_id, workspace_id=workspace_id)
    raise _denied(AuthLevel.K)


def _workspace(connection: Connection, vault: Vault, workspace_id: str, token: str) -> Principal:
    fingerprint = connection.scalar(
        select(WORKSPACE.c.token_fingerprint).where(WORKSPACE.c.workspace_id == workspace_id)
    )
    if fingerprint is not None and vault.matches(fingerprint, token):
        return Principal(workspace_id=workspace_id)
    raise _denied(AuthLevel.W)


def _denied(level: AuthLevel) -> PermissionDenied:
    what = "workspace id or its auth token" if level is AuthLevel.W else "API key or its auth token"
    return PermissionDenied(f"the {what} is not valid")
