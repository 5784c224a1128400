"""The keys with which API keys sign, and by which others check.

Each API key signs with an Ed25519 key of its own, made when it is first needed and kept encrypted. Reset Auth Token
retires it: what is signed from then on names another key. Whoever checks gets the public keys as a JWK set; a retired
one stays in it until the last token that it signed has expired.
"""

import base64
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy import Connection, delete, insert, or_, select, update

from app.backend.http.call import Backend, Call, RequestT
from app.backend.http.dispatch import exclusive_write
from app.backend.ids import new_id
from app.backend.tokens.tables import SIGNING_KEY
from app.contract import limits

_SEED_BYTES = 32
_PUBLISHED_MS = limits.TOKEN_LIFETIME_SECONDS * 1000
ALGORITHM = "EdDSA"


class SigningKey(NamedTuple):
    """A key that may sign. Never shown."""

    key_id: str
    private: Ed25519PrivateKey

    def __repr__(self) -> str:
        return f"<SigningKey {self.key_id}>"


def current_key(connection: Connection, backend: Backend, api_key_id: str) -> SigningKey | None:
    """The key that signs now; None before there was one."""
    row = connection.execute(
        select(SIGNING_KEY.c.key_id, SIGNING_KEY.c.private_sealed).where(
            SIGNING_KEY.c.api_key_id == api_key_id, SIGNING_KEY.c.retired_at.is_(None)
        )
    ).one_or_none()
    if row is None:
        return None
    seed = backend.vault.stored.open(row.private_sealed, _context(api_key_id, row.key_id))
    return SigningKey(row.key_id, Ed25519PrivateKey.from_private_bytes(_decoded(seed)))


def key_made_if_needed(call: Call[RequestT], api_key_id: str) -> SigningKey:
    """The key that signs now, in a transaction of its own, which makes it where there is none."""
    with exclusive_write(call, api_key_id) as connection:
        found = current_key(connection, call.backend, api_key_id)
        return _made(connection, call.backend, api_key_id, call.now) if found is None else found


def retire_keys(connection: Connection, api_key_id: str, now: int) -> None:
    """Lets the next signature be made with a new key; forgets keys that nothing needs any more."""
    of_key = SIGNING_KEY.c.api_key_id == api_key_id
    connection.execute(delete(SIGNING_KEY).where(of_key, SIGNING_KEY.c.retired_at <= now - _PUBLISHED_MS))
    connection.execute(
        update(SIGNING_KEY).where(of_key, SIGNING_KEY.c.retired_at.is_(None)).values(retired_at=now, private_sealed="")
    )


def published_keys(connection: Connection, api_key_id: str, now: int) -> dict[str, object]:
    """The public keys as a JWK set, the newest first; empty for an API key that has none, or that does not exist."""
    rows = connection.execute(
        select(SIGNING_KEY.c.key_id, SIGNING_KEY.c.public_key)
        .where(
            SIGNING_KEY.c.api_key_id == api_key_id,
            or_(SIGNING_KEY.c.retired_at.is_(None), SIGNING_KEY.c.retired_at > now - _PUBLISHED_MS),
        )
        .order_by(SIGNING_KEY.c.created_at.desc(), SIGNING_KEY.c.key_id)
    )
    return {
        "keys": [
            {"kty": "OKP", "crv": "Ed25519", "alg": ALGORITHM, "use": "sig", "kid": row.key_id, "x": row.public_key}
            for row in rows
        ]
    }


def _made(connection: Connection, backend: Backend, api_key_id: str, now: int) -> SigningKey:
    seed = backend.entropy.randbytes(_SEED_BYTES)
    key = SigningKey(f"sk_{new_id(backend.entropy)}", Ed25519PrivateKey.from_private_bytes(seed))
    public = key.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    connection.execute(
        insert(SIGNING_KEY).values(
            api_key_id=api_key_id,
            key_id=key.key_id,
            public_key=_encoded(public),
            private_sealed=backend.vault.stored.close(_encoded(seed), _context(api_key_id, key.key_id)),
            created_at=now,
        )
    )
    return key


def _context(api_key_id: str, key_id: str) -> str:
    return f"signing key {api_key_id} {key_id}"


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
