"""The signing keys of API keys.

Each API key signs with its own Ed25519 key, which is created on first use and stored encrypted. Reset Auth Token
retires it. A retired key stays in the published JWK set until the last token that it signed has expired.
"""

from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy import Connection, delete, insert, or_, select, update

from app.backend.http.call import Backend, Call
from app.backend.ids import new_id
from app.backend.security.tables import SIGNING_KEY
from app.contract import limits
from app.foundation.base64url import base64url, from_base64url
from app.foundation.clock import epoch_ms
from app.foundation.database.engine import reading
from app.foundation.ids import may_be_stored

_SEED_BYTES = 32
_PUBLISHED_MS = limits.TOKEN_LIFETIME_SECONDS * 1000
ALGORITHM = "EdDSA"


class SigningKey(NamedTuple):
    """A private key and its id (``kid``)."""

    key_id: str
    private: Ed25519PrivateKey


def signing_key(call: Call[Any], api_key_id: str) -> SigningKey:
    """The current key of an API key, created if it has none."""
    with reading(call.backend.engine) as connection:
        key = _current_key(connection, call.backend, api_key_id)
    if key is None:
        with call.exclusive_write(api_key_id) as connection:
            key = _current_key(connection, call.backend, api_key_id)
            if key is None:
                key = _create_key(connection, call.backend, api_key_id, call.now)
    return key


def retire_keys(connection: Connection, api_key_id: str, now: int) -> None:
    """Retires the current key, and deletes keys that are no longer published."""
    of_key = SIGNING_KEY.c.api_key_id == api_key_id
    connection.execute(delete(SIGNING_KEY).where(of_key, SIGNING_KEY.c.retired_at <= now - _PUBLISHED_MS))
    connection.execute(
        update(SIGNING_KEY).where(of_key, SIGNING_KEY.c.retired_at.is_(None)).values(retired_at=now, private_sealed="")
    )


def key_set(backend: Backend, api_key_id: str) -> dict[str, object]:
    """The public keys of an API key as a JWK set, newest first. Empty for an unknown API key."""
    if not may_be_stored(api_key_id):
        return {"keys": []}
    query = select(SIGNING_KEY.c.key_id, SIGNING_KEY.c.public_key).where(
        SIGNING_KEY.c.api_key_id == api_key_id,
        or_(SIGNING_KEY.c.retired_at.is_(None), SIGNING_KEY.c.retired_at > epoch_ms(backend.clock()) - _PUBLISHED_MS),
    )
    with reading(backend.engine) as connection:
        rows = connection.execute(query.order_by(SIGNING_KEY.c.created_at.desc(), SIGNING_KEY.c.key_id)).all()
    fixed = {"kty": "OKP", "crv": "Ed25519", "alg": ALGORITHM, "use": "sig"}
    return {"keys": [{**fixed, "kid": row.key_id, "x": row.public_key} for row in rows]}


def _current_key(connection: Connection, backend: Backend, api_key_id: str) -> SigningKey | None:
    row = connection.execute(
        select(SIGNING_KEY.c.key_id, SIGNING_KEY.c.private_sealed).where(
            SIGNING_KEY.c.api_key_id == api_key_id, SIGNING_KEY.c.retired_at.is_(None)
        )
    ).one_or_none()
    if row is None:
        return None
    seed = backend.vault.stored.open(row.private_sealed, _context(api_key_id, row.key_id))
    return SigningKey(row.key_id, Ed25519PrivateKey.from_private_bytes(from_base64url(seed)))


def _create_key(connection: Connection, backend: Backend, api_key_id: str, now: int) -> SigningKey:
    seed = backend.entropy.randbytes(_SEED_BYTES)
    key = SigningKey(f"sk_{new_id(backend.entropy)}", Ed25519PrivateKey.from_private_bytes(seed))
    public = key.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    connection.execute(
        insert(SIGNING_KEY).values(
            api_key_id=api_key_id,
            key_id=key.key_id,
            public_key=base64url(public),
            private_sealed=backend.vault.stored.close(base64url(seed), _context(api_key_id, key.key_id)),
            created_at=now,
        )
    )
    return key


def _context(api_key_id: str, key_id: str) -> str:
    return f"signing key {api_key_id} {key_id}"
