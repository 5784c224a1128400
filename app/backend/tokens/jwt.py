"""Signs client tokens and permission results.

A client token is a JWT. A signature over permission results is a JWS (RFC 7515) with a detached, unencoded payload
(RFC 7797), because the verifier already has the results. The ``typ`` header prevents using one as the other.
"""

import json
from collections.abc import Mapping, Sequence

import jwt
from jwt.api_jws import PyJWS

from app.backend.tokens.signing_keys import ALGORITHM, SigningKey
from app.contract import limits

SIGNATURE_TYPE = "permissions+jws"
_MAX_EXACT = 2.0**53


def signed_token(key: SigningKey, claims: Mapping[str, object], now: int) -> str:
    """A JWT with these claims, valid for 48 hours from ``now`` (epoch milliseconds)."""
    issued = now // 1000
    times = {"iat": issued, "exp": issued + limits.TOKEN_LIFETIME_SECONDS}
    return jwt.encode({**claims, **times}, key.private, algorithm=ALGORITHM, headers={"kid": key.key_id})


def signature(key: SigningKey, permissions: Sequence[object], now: int) -> str:
    """``<header>..<signature>`` over ``canonical_json(permissions)``, with the time in the header (``iat``)."""
    headers = {"kid": key.key_id, "typ": SIGNATURE_TYPE, "iat": now // 1000}
    return PyJWS().encode(
        canonical_json(permissions), key.private, algorithm=ALGORITHM, headers=headers, is_payload_detached=True
    )


def canonical_json(value: object) -> bytes:
    """JSON as in RFC 8785: no white space, keys sorted by UTF-16 code units, whole numbers without a fraction."""
    return json.dumps(_canonical(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _canonical(value: object) -> object:
    if isinstance(value, dict):
        return {key: _canonical(value[key]) for key in sorted(value, key=lambda key: str(key).encode("utf-16-be"))}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_EXACT:
        return int(value)
    return value
