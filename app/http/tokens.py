"""Bearer tokens, and whether a caller comes in with the one that it shows."""

import hmac
from collections.abc import Iterable
from hashlib import sha256

from flask import Request

from app.contract.errors import Unauthenticated
from app.http.throttle import FailedCredentials


class TokenSet:
    """The tokens that are accepted, as digests: the tokens themselves are not kept."""

    __slots__ = ("_digests", "failures")

    def __init__(self, tokens: Iterable[str], failures: FailedCredentials | None = None) -> None:
        self.failures = failures
        """Who is told to slow down after wrong ones; None: nobody."""
        self._digests = tuple({_digest(token): None for token in tokens if token})

    def accepts(self, token: str) -> bool:
        """Whether `token` is one of them; takes as long for a near miss as for any other."""
        shown = _digest(token)
        found = False
        for digest in self._digests:
            found |= hmac.compare_digest(digest, shown)
        return found

    def __len__(self) -> int:
        return len(self._digests)

    def __repr__(self) -> str:
        return f"<TokenSet of {len(self._digests)}>"


def bearer_token(request: Request) -> str | None:
    """The token in `Authorization: Bearer <token>`; None when there is no such header or it reads differently."""
    header: str = request.environ.get("HTTP_AUTHORIZATION", "")
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if not token or scheme.lower() != "bearer":
        return None
    # WSGI hands headers over as Latin-1, whatever bytes the caller sent.
    return token if token.isascii() else token.encode("latin-1", "replace").decode("utf-8", "surrogateescape")


def shown_fingerprint(request: Request) -> str:
    """Which token a request shows, for people: the first digits of its SHA-256, from which nobody can tell it."""
    return _digest(bearer_token(request) or "").hex()[:8]


def require_bearer(request: Request, tokens: TokenSet) -> None:
    """Lets a caller through who shows one of `tokens`. Raises `Unauthenticated` otherwise, and `TooManyRequests` where
    that happened too often: never to whoever shows a right one."""
    token = bearer_token(request)
    if token is None:
        raise Unauthenticated("an Authorization header with a bearer token is required")
    if not tokens.accepts(token):
        if tokens.failures is not None:
            tokens.failures.turn_away(request.remote_addr or "")
        raise Unauthenticated("the bearer token is not accepted")


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
