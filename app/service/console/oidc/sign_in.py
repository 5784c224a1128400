"""Sign-ins that wait for the browser to come back from the issuer.

The browser keeps an attempt in a cookie: a random secret, the time, and the page to return to. State, nonce and PKCE
verifier are derived from the secret and the time. The server stores nothing, so nobody can fill a table with sign-ins
that they begin, or displace those of others. The issuer accepts each code once.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from random import Random

import orjson

from app.foundation.clock import Clock, epoch_ms
from app.foundation.text import printable
from app.service.console.settings import OidcSettings, Role

LIVES = timedelta(minutes=10)
"""The time that a user has to sign in at the issuer."""

_LONGEST_PATH = 1024
"""Bytes. Proxies commonly accept 4 KB of response headers."""
_COOKIE = re.compile(r"([0-9]{1,15})\.([0-9a-f]{64})\.([A-Za-z0-9_-]*)")


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
        return self._derived("state")

    @property
    def nonce(self) -> str:
        """Binds the ID token to this sign-in."""
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        """Proves to the issuer that the caller with the code began the sign-in (PKCE)."""
        return self._derived("verifier")

    @property
    def cookie(self) -> str:
        """The value of its cookie."""
        return f"{self.began_at}.{self.secret}.{_base64(self.back.encode())}"

    def _derived(self, what: str) -> str:
        return _base64(sha256(f"{what} of {self.began_at} {self.secret}".encode()).digest())


def begin(clock: Clock, random: Random, *, back: str) -> Attempt:
    """A new attempt. ``random`` must not be predictable."""
    fits = back.isprintable() and len(back.encode()) <= _LONGEST_PATH
    return Attempt(epoch_ms(clock()), f"{random.getrandbits(256):064x}", back if fits else "")


def attempt_of(cookie: str, clock: Clock) -> Attempt | None:
    """The attempt in this cookie; None: there is none, or it took too long."""
    found = _COOKIE.fullmatch(cookie)
    if found is None:
        return None
    began_at = int(found[1])
    if abs(epoch_ms(clock()) - began_at) > LIVES.total_seconds() * 1000:
        return None
    try:
        back = urlsafe_b64decode(found[3] + "=" * (-len(found[3]) % 4)).decode()
    except ValueError:
        return None
    return Attempt(began_at, found[2], back)


def _base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


_LONGEST_NAME = 100
_NAMES = ("preferred_username", "email", "sub")
_MARK = "oidc"


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody whom the issuer knows. ``role``: None: none of their groups opens the console."""

    subject: str
    name: str
    role: Role | None


def identity_of(claims: Mapping[str, object], groups: Iterable[str], settings: OidcSettings) -> Identity:
    """Who these claims of an ID token are about."""
    roles = [settings.roles[group] for group in groups if group in settings.roles]
    # Listed from the least to the most.
    order = list(Role)
    name = next((text for key in _NAMES if isinstance(text := claims.get(key), str) and text.strip()), "")
    return Identity(
        subject=str(claims.get("sub", "")),
        name=printable(name.strip(), limit=_LONGEST_NAME),
        role=max(roles, key=order.index) if roles else None,
    )


def groups_in(claims: Mapping[str, object], claim: str) -> list[str] | None:
    """The groups that the claim names; None: it is not there."""
    value = claims.get(claim)
    if isinstance(value, str):
        return [value]
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else None


def settings_mark(settings: OidcSettings) -> str:
    """What a session that was opened through this issuer begins its credential with: another one with every change of
    who may sign in, and as what; empty: nobody may, that way."""
    if not settings.issuer:
        return ""
    said = [settings.issuer, settings.client_id, settings.groups_claim, sorted(settings.roles.items())]
    return f"{_MARK}:{sha256(orjson.dumps(said)).hexdigest()[:32]}:"


def credential_of(settings: OidcSettings, subject: str) -> str:
    """What a session of this person is opened with."""
    return settings_mark(settings) + sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()


def is_by_issuer(credential: str) -> bool:
    """Whether a session was opened through an issuer."""
    return credential.startswith(f"{_MARK}:")
