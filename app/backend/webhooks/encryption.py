"""The encryption of bodies, which the receiver alone can read.

As a JWE in its compact form (RFC 7516), which libraries of every language open: the body by AES-256-GCM, its key,
made for this one body, by RSA-OAEP with SHA-256 for the receiver's public key.
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

_HEADER = b'{"alg":"RSA-OAEP-256","enc":"A256GCM"}'
_KEY, _IV, _TAG = 32, 12, 16
_BITS = range(2048, 8193)


class PublicKeyError(ValueError):
    """The text is no public key to encrypt for; says why."""


def parse_public_key(text: str) -> RSAPublicKey:
    """The RSA key in PEM, or in base64 of DER. Raises ``PublicKeyError``."""
    try:
        if "-----BEGIN" in text:
            key = load_pem_public_key(text.encode())
        else:
            key = load_der_public_key(base64.b64decode("".join(text.split()).encode("ascii"), validate=True))
    except (ValueError, binascii.Error, UnsupportedAlgorithm) as error:
        raise PublicKeyError("must be an RSA public key in PEM, or in base64 of DER") from error
    if not isinstance(key, RSAPublicKey) or key.key_size not in _BITS:
        raise PublicKeyError("must be an RSA key of 2048 to 8192 bits")
    return key


def encrypt(body: bytes, public_key: RSAPublicKey, entropy: random.Random) -> str:
    """``body`` for the owner of the key, as a compact JWE."""
    key, iv = entropy.randbytes(_KEY), entropy.randbytes(_IV)
    sealed_key = public_key.encrypt(key, OAEP(mgf=MGF1(SHA256()), algorithm=SHA256(), label=None))
    header = _base64url(_HEADER)
    sealed = AESGCM(key).encrypt(iv, body, header.encode())
    parts = (sealed_key, iv, sealed[:-_TAG], sealed[-_TAG:])
    return ".".join([header, *map(_base64url, parts)])


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
