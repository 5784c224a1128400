"""One OpenID Connect sign-in: the attempt in the browser's cookie, and the resulting identity and role.

The cookie of an attempt contains a random secret, the time, and the page to return to. State, nonce and PKCE verifier
are derived from the secret and the time. The server stores nothing before the sign-in succeeds, so nobody can fill a
table with attempts, or displace those of others. The issuer accepts each code once.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from random import Random

from app.foundation.base64url import base64url, from_base64url
from app.foundation.clock import Clock, epoch_ms
from app.foundation.text import printable
from app.service.console.settings import OidcSettings, Role

ATTEMPT_TIMEOUT = timedelta(minutes=10)
"""The time that a user has to sign in at the issuer."""

MAX_BACK_BYTES = 1024
"""The limit of a URL to return to. Proxies commonly accept 4 KB of response headers."""
_COOKIE = re.compile(r"([0-9]{1,15})\.([0-9a-f]{64})\.([A-Za-z0-9_-]*)")
_MAX_NAME = 100
_NAME_CLAIMS = ("preferred_username", "email", "sub")


@dataclass(frozen=True, slots=True, repr=False)
class Attempt:
    """One sign-in that has begun."""

    began_at: int
    """Epoch milliseconds."""
    secret: str
    back: str = ""
    """The page of the console to return to. Untrusted: the browser may have changed it."""

    @property
    def state(self) -> str:
        """Binds the issuer's answer to this browser."""
        return self._derive("state")

    @property
    def nonce(self) -> str:
        """Binds the ID token to this sign-in."""
        return self._derive("nonce")

    @property
    def verifier(self) -> str:
        """Proves to the issuer that the caller with the code began the sign-in (PKCE)."""
        return self._derive("verifier")

    @property
    def cookie(self) -> str:
        """The value of its cookie."""
        return f"{self.began_at}.{self.secret}.{base64url(self.back.encode())}"

    def _derive(self, purpose: str) -> str:
        return base64url(sha256(f"{purpose} of {self.began_at} {self.secret}".encode()).digest())


def begin_attempt(clock: Clock, random: Random, *, back: str) -> Attempt:
    """A new attempt. ``random`` must not be predictable."""
    is_usable = back.isprintable() and len(back.encode()) <= MAX_BACK_BYTES
    return Attempt(epoch_ms(clock()), f"{random.getrandbits(256):064x}", back if is_usable else "")


def attempt_from_cookie(cookie: str, clock: Clock) -> Attempt | None:
    """The attempt in a cookie. None: the cookie is invalid or has expired."""
    match = _COOKIE.fullmatch(cookie)
    if match is None:
        return None
    began_at = int(match[1])
    if abs(epoch_ms(clock()) - began_at) > ATTEMPT_TIMEOUT.total_seconds() * 1000:
        return None
    try:
        back = from_base64url(match[3]).decode()
    except ValueError:
        return None
    return Attempt(began_at, match[2], back)


@dataclass(frozen=True, slots=True)
class Identity:
    """A user of the issuer. ``role`` is None if none of their groups has one."""

    subject: str
    name: str
    role: Role | None


def identity_from_claims(claims: Mapping[str, object], groups: Iterable[str], settings: OidcSettings) -> Identity:
    """The identity in the claims of an ID token, with the highest role of its groups."""
    roles = {settings.roles[group] for group in groups if group in settings.roles}
    name = next((text for key in _NAME_CLAIMS if isinstance(text := claims.get(key), str) and text.strip()), "")
    return Identity(
        subject=str(claims.get("sub", "")),
        name=printable(name.strip(), limit=_MAX_NAME),
        role=next((role for role in reversed(Role) if role in roles), None),
    )


def groups_in(claims: Mapping[str, object], claim: str) -> list[str] | None:
    """The groups in a claim. None: the claim is missing."""
    value = claims.get(claim)
    if isinstance(value, str):
        return [value]
    return [group for group in value if isinstance(group, str)] if isinstance(value, list) else None
