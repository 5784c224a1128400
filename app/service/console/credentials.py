"""The console's tokens: whose each one is, and with which role."""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from pydantic import SecretStr

from app.service.console.settings import ConsoleToken, Role


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """Whose token it is."""

    name: str
    role: Role


class Credentials:
    """The tokens by their SHA-256; they themselves are not kept."""

    __slots__ = ("_owners",)

    def __init__(self, tokens: Iterable[ConsoleToken], admin_tokens: Iterable[SecretStr]) -> None:
        self._owners: dict[str, TokenOwner] = {}
        for admin in admin_tokens:
            if text := admin.get_secret_value():
                digest = _digest(text)
                self._owners[digest] = TokenOwner(f"admin token {digest[:8]}", Role.ADMIN)
        for token in tokens:
            # An empty one is nobody's: a field that was left empty must let nobody in.
            if text := token.token.get_secret_value():
                self._owners[_digest(text)] = TokenOwner(token.name, token.role)

    def __len__(self) -> int:
        return len(self._owners)

    def of_token(self, token: str) -> tuple[str, TokenOwner] | None:
        """The token's digest and its owner; takes as long for a near miss as for any other."""
        shown, found = _digest(token), ""
        for digest in self._owners:
            if hmac.compare_digest(digest, shown):
                found = digest
        return (found, self._owners[found]) if found else None

    def of_digest(self, digest: str) -> TokenOwner | None:
        """Whose it is that a session was opened with; None: nobody's any more."""
        return self._owners.get(digest)


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
