"""Encrypts webhook bodies for their receiver, as a compact JWE (RFC 7516).

AES-256-GCM encrypts the body with a new key. RSA-OAEP with SHA-256 encrypts that key for the receiver's public key.
"""

import base64
import binascii
import random

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from app.contract.errors import InvalidArgument
from app.foundation.base64url import base64url

_HEADER = b'{"alg":"RSA-OAEP-256","enc":"A256GCM"}'
_KEY_BYTES, _IV_BYTES, _TAG_BYTES = 32, 12, 16
_KEY_BITS = range(2048, 8193)


class PublicKeyError(ValueError):
    """The text is not a usable public key. One line with the reason."""


def check_public_key(text: str, field: str) -> None:
    """Raises ``InvalidArgument`` about ``field`` unless the text is empty or a usable public key."""
    if text:
        try:
            parse_public_key(text)
        except PublicKeyError as error:
            raise InvalidArgument(f"{field}: {error}") from error


def parse_public_key(text: str) -> RSAPublicKey:
    """Parses an RSA key in PEM, or in base64 of DER. Raises ``PublicKeyError``."""
    try:
        if "-----BEGIN" in text:
            key = load_pem_public_key(text.encode())
        else:
            key = load_der_public_key(base64.b64decode("".join(text.split()).encode("ascii"), validate=True))
    except (ValueError, binascii.Error, UnsupportedAlgorithm) as error:
        raise PublicKeyError("must be an RSA public key in PEM, or in base64 of DER") from error
    if not isinstance(key, RSAPublicKey) or key.key_size not in _KEY_BITS:
        raise PublicKeyError("must be an RSA key of 2048 to 8192 bits")
    return key


def encrypt(body: bytes, public_key: RSAPublicKey, entropy: random.Random) -> str:
    """The body as a compact JWE."""
    key, iv = entropy.randbytes(_KEY_BYTES), entropy.randbytes(_IV_BYTES)
    encrypted_key = public_key.encrypt(key, OAEP(mgf=MGF1(SHA256()), algorithm=SHA256(), label=None))
    header = base64url(_HEADER)
    encrypted = AESGCM(key).encrypt(iv, body, header.encode())
    parts = (encrypted_key, iv, encrypted[:-_TAG_BYTES], encrypted[-_TAG_BYTES:])
    return ".".join([header, *map(base64url, parts)])
