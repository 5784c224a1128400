"""Encrypts secrets, and computes keyed hashes of tokens.

The secret key derives all keys: two AES-GCM keys, for stored secrets and for page tokens, and the key of the hashes.
Without the secret key, the secrets in the database cannot be decrypted.
"""

import hmac
import random
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import Engine, select

from app.backend.security.secret_key import SecretKeyError, secret_key_of
from app.backend.security.tables import KEY_CHECK
from app.backend.settings import SelfHostedBackendSettings
from app.backend.storage.rows import upsert
from app.foundation.base64url import base64url, from_base64url
from app.foundation.database.engine import writing

_NONCE_BYTES = 12


class UnreadableSecretError(ValueError):
    """A ciphertext was altered, or encrypted for another context or with another key."""


class Seal:
    """Encrypts texts. Each is bound to a context, and can be decrypted only with the same context."""

    def __init__(self, key: bytes, entropy: random.Random) -> None:
        self._cipher = AESGCM(key)
        self._entropy = entropy

    def close(self, text: str, context: str) -> str:
        """Encrypts ``text``. The result is ``base64url``."""
        nonce = self._entropy.randbytes(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, text.encode(), context.encode())
        return base64url(sealed)

    def open(self, sealed: str, context: str) -> str:
        """Decrypts a text that was encrypted for ``context``. Raises ``UnreadableSecretError``."""
        try:
            raw = from_base64url(sealed)
            return self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], context.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise UnreadableSecretError("the text cannot be decrypted") from error


class Vault:
    """The keys that the secret key derives."""

    def __init__(self, secret_key: bytes, entropy: random.Random) -> None:
        self.stored = Seal(_derived(secret_key, b"stored secrets"), entropy)
        """For secrets in the database."""
        self.pages = Seal(_derived(secret_key, b"page tokens"), entropy)
        """For page tokens."""
        self._hash_key = _derived(secret_key, b"token fingerprints")

    def fingerprint(self, token: str) -> str:
        """The keyed hash of a token."""
        return hmac.new(self._hash_key, token.encode("utf-8", "surrogatepass"), sha256).hexdigest()

    def matches(self, fingerprint: str, token: str) -> bool:
        """Whether ``fingerprint`` is the hash of ``token``, in constant time."""
        return hmac.compare_digest(fingerprint, self.fingerprint(token))


def open_vault(settings: SelfHostedBackendSettings, entropy: random.Random) -> Vault:
    """The vault of these settings. Raises ``SecretKeyError`` without a usable key."""
    return Vault(secret_key_of(settings), entropy)


def check_secret_key(engine: Engine, vault: Vault) -> None:
    """Raises ``SecretKeyError`` if the secrets of the database have another key."""
    name, known = "secret_key", "the right key"
    with writing(engine) as connection:
        # Processes that start together may all be the first one.
        row = upsert(connection, KEY_CHECK).values(name=name, sealed=vault.stored.close(known, name))
        connection.execute(row.on_conflict_do_nothing())
        sealed = connection.execute(select(KEY_CHECK.c.sealed).where(KEY_CHECK.c.name == name)).scalar_one()
    try:
        vault.stored.open(sealed, name)
    except UnreadableSecretError as error:
        raise SecretKeyError(
            "self_hosted_backend.secret_key is not the key of this database: restore the earlier key"
        ) from error


def _derived(secret_key: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=b"usher backend", info=purpose).derive(secret_key)
