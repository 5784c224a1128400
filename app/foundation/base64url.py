"""URL-safe base64 without padding, as in JSON Web Tokens."""

import base64


def base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Decodes a text. Raises ``ValueError`` if it contains other characters or is incomplete."""
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
