"""The settings of the console."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from app.foundation.outbound.route import CaFile, Proxy
from app.foundation.text import printable

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PLAIN = re.compile(r"[!-~]*")


class Role(StrEnum):
    """What somebody may do at the console; each may what those before it may."""

    VIEWER = "viewer"
    """Sees everything but secrets."""
    APPROVER = "approver"
    """Previews, syncs, approves, discards, cancels and retries."""
    ADMIN = "admin"
    """Also lifts the limits of deletes, and ends sessions."""

    def may(self, what: "Role") -> bool:
        """Whether this role includes the other."""
        order = list(Role)
        return order.index(self) >= order.index(what)


def _origin(value: str) -> str:
    if not value:
        return value
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.netloc or "@" in parts.netloc:
        raise ValueError("must be the address at which browsers reach the service, such as https://usher.corp.example")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError("must not have a path: the console is always at /console")
    return f"{parts.scheme}://{parts.netloc}".lower()


def _is_shown(value: str) -> str:
    if not value.strip() or not value.isprintable() or len(value) > 100:
        raise ValueError("must be a name of up to 100 printable characters, which stands in the audit log")
    return value.strip()


class ConsoleToken(BaseModel):
    """One of ``console.tokens``: somebody who signs in with a token."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, AfterValidator(_is_shown)]
    """Who that is, in the audit log."""
    role: Role
    token: SecretStr


def _issuer(value: str) -> str:
    if not value:
        return value
    try:
        parts = urlsplit(value)
        host, usable = parts.hostname or "", parts.scheme in {"http", "https"} and parts.port != 0
    except ValueError:
        host, usable = "", False
    if not usable or not host or not _PLAIN.fullmatch(value) or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            "must be the issuer's address exactly as the issuer gives it, such as https://login.corp.example"
        )
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise ValueError("must begin with https: whoever can change its answers decides who may sign in")
    return value


def _credential(secret: SecretStr) -> SecretStr:
    if not _PLAIN.fullmatch(secret.get_secret_value()):
        raise ValueError("must be printable ASCII without spaces or line breaks")
    return secret


class OidcSettings(BaseModel):
    """The section ``console.oidc``: an issuer of OpenID Connect whose people may sign in."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    issuer: Annotated[str, AfterValidator(_issuer)] = ""
    """As it calls itself, as ``https://login.corp.example/realms/corp``; empty: tokens alone open the console."""
    name: str = Field(default="", max_length=40)
    """What the button says, as ``Acme SSO``; empty: the issuer's host."""
    client_id: str = Field(default="", max_length=200)
    """What the issuer knows this console by."""
    client_secret: Annotated[SecretStr, AfterValidator(_credential)] = SecretStr("")
    """Which it gave for that; empty: a public client."""
    scopes: tuple[str, ...] = ()
    """What is asked for; empty: ``openid`` and, of ``profile``, ``email`` and ``groups``, what the issuer knows."""
    groups_claim: str = Field(default="groups", min_length=1, max_length=200)
    """The claim with a user's groups, of the ID token, or else of the userinfo."""
    roles: Mapping[str, Role] = {}
    """group → what its members may; whoever is in several has the highest."""
    ca_file: CaFile = ""
    """A PEM file with the certificates to trust in place of the public ones; empty: the public ones."""
    proxy: Proxy = SecretStr("")
    """The HTTP proxy that leads there, with credentials where it wants some; empty: none, whatever the environment
    says."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.issuer and not self.client_id:
            raise ValueError("issuer is set, but client_id is empty: register the console with the issuer to get one")
        if self.issuer and not self.roles:
            raise ValueError("issuer is set, but roles is empty: name groups that may sign in, such as {ops: approver}")
        return self

    @property
    def shown_name(self) -> str:
        """What the button says."""
        return printable(self.name) or urlsplit(self.issuer).hostname or ""


class ConsoleSettings(BaseModel):
    """The section ``console``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = True
    """Whether the service answers ``/console``."""
    name: str = Field(default="", max_length=40)
    """What stands beside the brand, as ``production``."""
    public_url: Annotated[str, AfterValidator(_origin)] = ""
    """Where browsers reach the service, as ``https://usher.corp.example``; empty: where it listens."""
    tokens: tuple[ConsoleToken, ...] = ()
    """Who may sign in with a token, and as what; ``admin.tokens`` are admins besides."""
    oidc: OidcSettings = OidcSettings()
    idle_timeout: int = Field(default=3600, ge=60, le=86_400)
    """Seconds after its last request at which a session ends."""
    session_timeout: int = Field(default=43_200, ge=300, le=604_800)
    """Seconds after which a session ends at the latest."""
    keep_audit_days: int = Field(default=400, ge=1, le=3650)
    """Days for which the audit log is kept."""

    @model_validator(mode="after")
    def _is_reached(self) -> Self:
        if self.oidc.issuer and not self.public_url:
            raise ValueError("oidc.issuer is set, but public_url is empty: the issuer sends people back there")
        return self
