"""Bearer tokens: sets of accepted tokens, and the authentication of requests."""

import hmac
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

from flask import Request
from pydantic import SecretStr

from app.contract.errors import Unauthenticated
from app.http.throttle import FailedCredentials

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


class TokenSet:
    """The accepted tokens. Only their digests are stored."""

    __slots__ = ("_digests", "failures")

    def __init__(self, tokens: Iterable[SecretStr], failures: FailedCredentials | None = None) -> None:
        self.failures = failures
        """Throttles wrong tokens. None: no throttling."""
        self._digests = tuple({_digest(token): None for secret in tokens if (token := secret.get_secret_value())})

    def accepts(self, token: str) -> bool:
        """Whether ``token`` is one of them, in constant time."""
        candidate = _digest(token)
        is_accepted = False
        for digest in self._digests:
            is_accepted |= hmac.compare_digest(digest, candidate)
        return is_accepted

    def __repr__(self) -> str:
        return f"<TokenSet of {len(self._digests)}>"


def bearer_token(environ: "WSGIEnvironment") -> str | None:
    """The token in ``Authorization: Bearer <token>``. None if there is no such header."""
    header: str = environ.get("HTTP_AUTHORIZATION", "")
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if not token or scheme.lower() != "bearer":
        return None
    # WSGI decodes headers as Latin-1.
    return token if token.isascii() else token.encode("latin-1", "replace").decode("utf-8", "surrogateescape")


def token_fingerprint(request: Request) -> str:
    """The first digits of the SHA-256 of the request's token: identifies a token without revealing it."""
    return _digest(bearer_token(request.environ) or "").hex()[:8]


def require_bearer(request: Request, tokens: TokenSet) -> None:
    """Authenticates a request with one of ``tokens``. Raises ``Unauthenticated``, or ``TooManyRequests`` after too many
    wrong tokens. Valid tokens are never throttled."""
    token = bearer_token(request.environ)
    if token is None:
        raise Unauthenticated("an Authorization header with a bearer token is required")
    if not tokens.accepts(token):
        if tokens.failures is not None:
            tokens.failures.record_or_raise(request.remote_addr or "")
        raise Unauthenticated("the bearer token is not accepted")


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
