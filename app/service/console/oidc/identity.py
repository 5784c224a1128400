"""The identity that an issuer asserts, and the role that it gives."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

import orjson

from app.foundation.text import printable
from app.service.console.settings import OidcSettings, Role

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
