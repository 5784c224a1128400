"""JWTs and signatures: what is signed, and in which form?

Tokens are JWTs. Signatures over the results of a permission-provider answer are JWS (RFC 7515) with the payload
detached and unencoded (RFC 7797), because whoever checks has the results already. Both carry the id of their key; the
``typ`` in their headers keeps the one from being taken for the other.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import jwt
from jwt.api_jws import PyJWS

from app.backend.tokens.signing_keys import ALGORITHM, SigningKey
from app.contract import limits

SIGNATURE_TYPE = "permissions+jws"
_EXACT = 2.0**53


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSubject:
    """For whom a token is."""

    user_id: str
    organization_id: str | None = None
    is_admin: bool = False
    email: str | None = None


def signed_token(
    key: SigningKey, subject: TokenSubject, *, issuer: str, api_key_id: str, token_id: str, now: int
) -> str:
    """A JWT, valid from ``now`` (epoch milliseconds) for 48 hours. Claims of our own are called as the request calls
    them; what was not given is left out, except ``isAdmin``.
    """
    issued = now // 1000
    claims: dict[str, object] = {
        "iss": issuer,
        "aud": api_key_id,
        "sub": subject.user_id,
        "iat": issued,
        "exp": issued + limits.TOKEN_LIFETIME_SECONDS,
        "jti": token_id,
        "userId": subject.user_id,
        "isAdmin": subject.is_admin,
    }
    if subject.organization_id is not None:
        claims["organizationId"] = subject.organization_id
    if subject.email is not None:
        claims["email"] = subject.email
    return jwt.encode(claims, key.private, algorithm=ALGORITHM, headers={"kid": key.key_id})


def signature(key: SigningKey, permissions: Sequence[object], now: int) -> str:
    """``<header>..<signature>`` over ``canonical_json(permissions)``. The header tells when it was made (``iat``)."""
    headers = {"kid": key.key_id, "typ": SIGNATURE_TYPE, "iat": now // 1000}
    return PyJWS().encode(
        canonical_json(permissions), key.private, algorithm=ALGORITHM, headers=headers, is_payload_detached=True
    )


def canonical_json(value: object) -> bytes:
    """JSON that reads the same for everybody, as RFC 8785 has it: no white space, keys in the order of their UTF-16
    code units, whole numbers without a fraction.
    """
    return json.dumps(_ordered(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _ordered(value: object) -> object:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value, key=lambda key: str(key).encode("utf-16-be"))}
    if isinstance(value, list | tuple):
        return [_ordered(inner) for inner in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return value
