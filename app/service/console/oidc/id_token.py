"""Verifies ID tokens: which of the issuer's keys may sign them, the signature, and the claims.

joserfc verifies the signature, and Authlib the claims. Their errors become ``IssuerError``.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import orjson
import requests
from authlib.common.errors import AuthlibBaseError
from authlib.oidc.core import CodeIDToken
from joserfc import jwk, jwt
from joserfc.errors import JoseError
from joserfc.util import urlsafe_b64decode

from app.service.console.oidc.calls import IssuerAwayError, IssuerError

_LEEWAY = 60
"""Seconds by which two clocks may differ."""
_MAX_KEYS = 50
_MAX_LENGTH = 64 * 1024
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
"""Signatures by a private key. ``none`` and signatures by a shared key are not accepted."""
_CURVES = frozenset({"P-256", "P-384", "P-521", "Ed25519"})
_MIN_RSA_BITS = 2048
_MALFORMED = (AuthlibBaseError, JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What the libraries raise for malformed data."""


@contextmanager
def library_call() -> Iterator[None]:
    """Raises ``IssuerError`` for an error of a library. Must not contain other code, whose errors it would hide."""
    try:
        yield
    except requests.RequestException as error:
        # Such as HTTP 500 of the issuer, which must not count as a failure of the caller.
        raise IssuerAwayError(_describe(error)) from error
    except _MALFORMED as error:
        raise IssuerError(_describe(error)) from error


def _describe(error: Exception) -> str:
    """The error for the log: the claim or code that it is about, or its class. Never a token."""
    cause = getattr(error, "claim", "") or getattr(error, "error", "")
    is_usable = isinstance(cause, str) and cause.isascii() and cause.isprintable() and len(cause) <= 60
    return f"its answer is not valid ({(is_usable and cause) or type(error).__name__})"


class IdToken:
    """An ID token whose signature and claims have not been verified."""

    def __init__(self, text: object) -> None:
        """``text``: as the issuer sent it. Raises ``IssuerError`` if it is malformed."""
        if not isinstance(text, str) or len(text) > _MAX_LENGTH:
            raise IssuerError("its answer contains no ID token")
        with library_call():
            header = orjson.loads(urlsafe_b64decode(text.partition(".")[0].encode("ascii")))
        if not isinstance(header, dict):
            raise IssuerError("its answer contains no ID token")
        if header.get("alg") not in _ALGORITHMS:
            raise IssuerError("the ID token is signed by an algorithm that is not accepted (alg)")
        self._text = text
        self._key_id = header.get("kid")

    def verified(self, keys: Sequence[jwk.Key]) -> jwt.Token | None:
        """The decoded token, whose signature is valid. None: none of these keys signed it."""
        for key in keys:
            if self._key_id is not None and key.kid != self._key_id:
                continue
            try:
                return jwt.decode(self._text, key, algorithms=_ALGORITHMS)
            except _MALFORMED:
                continue
        return None


def valid_claims(
    token: jwt.Token, *, issuer: str, client_id: str, nonce: str, access_token: object, now: datetime
) -> dict[str, Any]:
    """The claims. Raises ``IssuerError`` if they are of another issuer, client or sign-in, or no longer valid."""
    options = {
        "iss": {"essential": True, "value": issuer},
        "aud": {"essential": True, "value": client_id},
        "nonce": {"essential": True, "value": nonce},
    }
    params = {"nonce": nonce, "client_id": client_id, "access_token": access_token}
    with library_call():
        claims = CodeIDToken(token.claims, token.header, options, params)
        claims.validate(now=int(now.timestamp()), leeway=_LEEWAY)
    if not claims["sub"]:
        raise IssuerError("the ID token has no subject (sub)")
    return dict(claims)


def verifying_keys(descriptions: Sequence[Any]) -> list[jwk.Key]:
    """The keys of a JWK set that can verify ID tokens. The others are skipped."""
    return [key for description in descriptions[:_MAX_KEYS] if (key := _verifying_key(description)) is not None]


def _verifying_key(description: Any) -> jwk.Key | None:
    """The key that a JWK describes. None: it cannot verify ID tokens."""
    try:
        key = jwk.import_key(description) if _is_for_signatures(description) else None
    except _MALFORMED:
        return None
    is_weak = isinstance(key, jwk.RSAKey) and key.public_key.key_size < _MIN_RSA_BITS
    return None if is_weak else key


def _is_for_signatures(description: Any) -> bool:
    """Whether the type and the use of a JWK are accepted. Raises one of ``_MALFORMED``."""
    kind = description["kty"]
    return (
        (kind == "RSA" or (kind in ("EC", "OKP") and description["crv"] in _CURVES))
        and description.get("use", "sig") == "sig"
        and "verify" in description.get("key_ops", ["verify"])
        and description.get("alg", _ALGORITHMS[0]) in _ALGORITHMS
    )
