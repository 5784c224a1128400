"""The settings of the console."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from app.foundation.configuration.schema import SettingsSection
from app.foundation.outbound.route import CaFile, Proxy
from app.foundation.outbound.urls import checked_url, is_http_url, is_plaintext
from app.foundation.text import printable

_PLAIN = re.compile(r"[!-~]*")


class Role(StrEnum):
    """The roles of operators. Each includes the ones before it."""

    VIEWER = "viewer"
    """Sees everything but secrets."""
    APPROVER = "approver"
    """Previews, syncs, approves, discards, cancels and retries."""
    ADMIN = "admin"
    """Also lifts the limits of deletes, runs the doctor, and ends sessions."""

    def may(self, required: "Role") -> bool:
        order = list(Role)
        return order.index(self) >= order.index(required)


def _origin(value: str) -> str:
    if not value:
        return value
    if not is_http_url(value) or "@" in (parts := urlsplit(value)).netloc:
        raise ValueError("must be the URL at which browsers reach the service, such as https://usher.corp.example")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError("must not have a path: the console is always at /console")
    return f"{parts.scheme}://{parts.netloc}".lower()


def _name(value: str) -> str:
    if not value.strip() or not value.isprintable() or len(value) > 100:
        raise ValueError("must be a name of up to 100 printable characters, for the audit log")
    return value.strip()


class ConsoleToken(SettingsSection):
    """One of ``console.tokens``: an operator who signs in with a token."""

    name: Annotated[str, AfterValidator(_name)]
    """The operator's name in the audit log."""
    role: Role
    token: SecretStr


def _issuer(value: str) -> str:
    if not value:
        return value
    try:
        checked_url(value, credentials="go into client_secret")
    except ValueError as error:
        raise ValueError("must be the issuer exactly as in its metadata, such as https://login.corp.example") from error
    return value


def _credential(secret: SecretStr) -> SecretStr:
    if not _PLAIN.fullmatch(secret.get_secret_value()):
        raise ValueError("must be printable ASCII without spaces or line breaks")
    return secret


class OidcSettings(SettingsSection):
    """The section ``console.oidc``: an issuer of OpenID Connect whose users may sign in."""

    issuer: Annotated[str, AfterValidator(_issuer)] = ""
    """Exactly as in its metadata, such as ``https://login.corp.example/realms/corp``. Empty: sign-in by tokens only."""
    name: str = Field(default="", max_length=40)
    """The label of the button, such as ``Acme SSO``. Empty: the issuer's host."""
    client_id: str = Field(default="", max_length=200)
    """The client id of this console at the issuer."""
    client_secret: Annotated[SecretStr, AfterValidator(_credential)] = SecretStr("")
    """The secret of the client. Empty: a public client."""
    scopes: tuple[str, ...] = ()
    """The requested scopes; empty: ``openid``, and those of ``profile``, ``email`` and ``groups`` that it supports."""
    groups_claim: str = Field(default="groups", min_length=1, max_length=200)
    """The claim with the user's groups in the ID token, or else in the userinfo."""
    roles: Mapping[str, Role] = {}
    """Group → the role of its members. A member of several groups has the highest role."""
    ca_file: CaFile = ""
    """A PEM file with the certificates to trust instead of the public ones. Empty: the public ones."""
    proxy: Proxy = SecretStr("")
    """The HTTP proxy, with credentials if it requires them. Empty: none. Proxies of the environment are ignored."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if is_plaintext(self.issuer, self.proxy.get_secret_value()):
            raise ValueError("issuer must begin with https: an attacker who can change its answers could sign in")
        if self.issuer and not self.client_id:
            raise ValueError("issuer is set, but client_id is empty: register the console with the issuer to get one")
        if self.issuer and not self.roles:
            raise ValueError("issuer is set, but roles is empty: name groups that may sign in, such as {ops: approver}")
        return self

    @property
    def label(self) -> str:
        return printable(self.name) or urlsplit(self.issuer).hostname or ""


class ConsoleSettings(SettingsSection):
    """The section ``console``."""

    enabled: bool = True
    """Whether the service has the console, at ``/console``."""
    name: str = Field(default="", max_length=40)
    """A name beside the brand, such as ``production``."""
    public_url: Annotated[str, AfterValidator(_origin)] = ""
    """The URL at which browsers reach the service, such as ``https://usher.corp.example``. Empty: where it listens."""
    tokens: tuple[ConsoleToken, ...] = ()
    """Operators who sign in with a token. Each of ``admin.tokens`` is valid as well, with the role admin."""
    oidc: OidcSettings = OidcSettings()
    idle_timeout: int = Field(default=3600, ge=60, le=86_400)
    """Idle timeout of a session, in seconds."""
    session_timeout: int = Field(default=43_200, ge=300, le=604_800)
    """Maximum age of a session, in seconds."""
    keep_audit_days: int = Field(default=400, ge=1, le=3650)
    """Days for which the audit log is kept."""

    @model_validator(mode="after")
    def _is_reached(self) -> Self:
        if self.oidc.issuer and not self.public_url:
            raise ValueError("oidc.issuer is set, but public_url is empty: the issuer redirects users there")
        return self
