"""The vault: secrets that have to be shown again, encrypted, and the hashes by which a given one is recognized.

Everything comes from one secret key: AES-GCM keys for what is stored and for page tokens, and a key for the hashes by
which tokens are looked up. Without the key the database's secrets are noise.
"""

import base64
import binascii
import hmac
import os
import random
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import Engine, insert, select

from app.backend.security.tables import KEY_CHECK
from app.backend.settings import SelfHostedBackendSettings
from app.foundation.database.engine import parse_url, writing
from app.foundation.files import make_folder, read_small_file, restrict_to_owner

_NONCE = 12
_SHORTEST_KEY = 16


class SecretKeyError(ValueError):
    """The secret key is missing, unusable, or not the one that the database was written with; one line for the
    operator.
    """


class UnreadableSecretError(ValueError):
    """A sealed text was altered, belongs elsewhere or was sealed with another key."""


class Seal:
    """Encrypts texts. Each is bound to a context: sealed for one place, it cannot be opened in another."""

    def __init__(self, key: bytes, entropy: random.Random) -> None:
        self._cipher = AESGCM(key)
        self._entropy = entropy

    def close(self, text: str, context: str) -> str:
        """``text``, encrypted: URL-safe and without padding."""
        nonce = self._entropy.randbytes(_NONCE)
        sealed = nonce + self._cipher.encrypt(nonce, text.encode(), context.encode())
        return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()

    def open(self, sealed: str, context: str) -> str:
        """The text that was sealed for ``context``. Raises ``UnreadableSecretError``."""
        try:
            raw = base64.b64decode(sealed.encode("ascii") + b"=" * (-len(sealed) % 4), altchars=b"-_", validate=True)
            return self._cipher.decrypt(raw[:_NONCE], raw[_NONCE:], context.encode()).decode()
        except (InvalidTag, ValueError, binascii.Error) as error:
            raise UnreadableSecretError("not sealed here") from error


class Vault:
    """The secret key at work."""

    def __init__(self, secret_key: bytes, entropy: random.Random) -> None:
        self.stored = Seal(_derived(secret_key, b"stored secrets"), entropy)
        """For what lies in the database."""
        self.pages = Seal(_derived(secret_key, b"page tokens"), entropy)
        """For page tokens."""
        self._hash_key = _derived(secret_key, b"token fingerprints")

    def fingerprint(self, token: str) -> str:
        """A keyed hash: the same token always gives the same one, and nobody gets the token back from it."""
        return hmac.new(self._hash_key, token.encode("utf-8", "surrogatepass"), sha256).hexdigest()

    def matches(self, fingerprint: str, token: str) -> bool:
        """Whether ``fingerprint`` is that of ``token``; takes the same time either way."""
        return hmac.compare_digest(fingerprint, self.fingerprint(token))


def open_vault(settings: SelfHostedBackendSettings, entropy: random.Random) -> Vault:
    """The vault of these settings. Raises ``SecretKeyError`` when there is no usable key."""
    return Vault(_secret_key(settings), entropy)


def check_secret_key(engine: Engine, vault: Vault) -> None:
    """Makes sure that this database was written with this vault's key. Raises ``SecretKeyError``."""
    name, known = "secret_key", "the right key"
    with writing(engine) as connection:
        sealed = connection.scalar(select(KEY_CHECK.c.sealed).where(KEY_CHECK.c.name == name))
        if sealed is None:
            connection.execute(insert(KEY_CHECK).values(name=name, sealed=vault.stored.close(known, name)))
            return
    try:
        vault.stored.open(sealed, name)
    except UnreadableSecretError as error:
        raise SecretKeyError(
            "self_hosted_backend.secret_key is not the key that this database was written with; restore the old one"
        ) from error


def _derived(secret_key: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=b"usher backend", info=purpose).derive(secret_key)


def _secret_key(settings: SelfHostedBackendSettings) -> bytes:
    if settings.secret_key is not None and settings.secret_key.get_secret_value():
        return _long_enough(settings.secret_key.get_secret_value().encode(), "self_hosted_backend.secret_key")
    if settings.secret_key_file is not None:
        return _read_key(settings.secret_key_file)
    url = parse_url(settings.database_url)
    if url.get_backend_name() != "sqlite":
        raise SecretKeyError(
            "self_hosted_backend.secret_key is missing: with PostgreSQL it is required,"
            " so that all nodes use the same one"
        )
    return _key_beside(Path(f"{url.database}.key"))


def _read_key(path: Path) -> bytes:
    try:
        return _long_enough(read_small_file(path).strip(), str(path))
    except OSError as error:
        raise SecretKeyError(f"the secret key file {path} cannot be read: {error.strerror}") from error


def _key_beside(path: Path) -> bytes:
    """The key in ``path``, made first where there is none. Of several processes at once, one makes it and all read the
    same.
    """
    if not path.exists():
        try:
            make_folder(path.parent)
            # Written whole under another name first (mkstemp makes it 0600), so that nobody ever reads half a key.
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            with os.fdopen(handle, "wb") as file:
                file.write(os.urandom(32).hex().encode())
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(name, path)
            except FileExistsError:
                pass
            finally:
                Path(name).unlink()
        except OSError as error:
            raise SecretKeyError(f"the secret key file {path} cannot be created: {error.strerror}") from error
    else:
        # An earlier version's, or a copy's, may be open to others.
        with suppress(OSError):
            restrict_to_owner(path)
    return _read_key(path)


def _long_enough(key: bytes, name: str) -> bytes:
    if len(key) < _SHORTEST_KEY:
        raise SecretKeyError(f"{name} is too short: at least {_SHORTEST_KEY} bytes")
    return key
