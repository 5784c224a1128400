"""Credentials of console sessions: the valid tokens with their roles, and the keys of users who sign in by the issuer.

A credential is stored as a digest. A session stores the credential that opened it, and ends when that is not valid.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

import orjson
from pydantic import SecretStr

from app.service.console.settings import ConsoleToken, OidcSettings, Role

_ISSUER_PREFIX = "oidc:"


@dataclass(frozen=True, slots=True)
class CredentialOwner:
    """The name and role of a token, or of a user of the issuer."""

    name: str
    role: Role


class Credentials:
    """The valid tokens, stored as SHA-256."""

    __slots__ = ("_owners",)

    def __init__(self, tokens: Iterable[ConsoleToken], admin_tokens: Iterable[SecretStr]) -> None:
        self._owners: dict[str, CredentialOwner] = {}
        for admin in admin_tokens:
            if text := admin.get_secret_value():
                digest = token_digest(text)
                self._owners[digest] = CredentialOwner(f"admin token {digest[:8]}", Role.ADMIN)
        for token in tokens:
            # An empty token in the settings must not accept an empty field.
            if text := token.token.get_secret_value():
                self._owners[token_digest(text)] = CredentialOwner(token.name, token.role)

    def __len__(self) -> int:
        return len(self._owners)

    def find(self, token: str) -> tuple[str, CredentialOwner] | None:
        """The digest and the owner of a token, in constant time. None: the token is not valid."""
        token_key, matching = token_digest(token), ""
        for digest in self._owners:
            if hmac.compare_digest(digest, token_key):
                matching = digest
        return (matching, self._owners[matching]) if matching else None

    def owner_of(self, digest: str) -> CredentialOwner | None:
        """The owner of the token with this digest. None: the token is no longer valid."""
        return self._owners.get(digest)


def token_digest(token: str) -> str:
    """The key of a token: the credential of its sessions."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def issuer_prefix(settings: OidcSettings) -> str:
    """The prefix of the credentials of sessions through this issuer. It is empty if no issuer is configured. It changes
    with every setting that affects identities and roles, which ends the sessions."""
    if not settings.issuer:
        return ""
    values = [settings.issuer, settings.client_id, settings.groups_claim, sorted(settings.roles.items())]
    return f"{_ISSUER_PREFIX}{sha256(orjson.dumps(values)).hexdigest()[:32]}:"


def issuer_credential(settings: OidcSettings, subject: str) -> str:
    """The credential of the sessions of a user of the issuer."""
    return issuer_prefix(settings) + token_digest(subject)


def is_by_issuer(credential: str) -> bool:
    """Whether a session was opened through an issuer."""
    return credential.startswith(_ISSUER_PREFIX)
