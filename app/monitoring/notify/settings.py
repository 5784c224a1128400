"""The settings of notifications: who is told, and how, when something needs attention."""

import base64
import binascii
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from app.foundation.outbound.route import CaFile, Proxy

SECRET_PREFIX = "whsec_"  # noqa: S105 - what such secrets begin with, not one of them


def secret_bytes(secret: str) -> bytes:
    """The key that a Standard Webhooks secret stands for. Raises ``ValueError`` for what is none."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("must be base64, as whsec_ and what openssl rand -base64 32 prints") from error
    if not 24 <= len(key) <= 64:
        raise ValueError("must stand for 24 to 64 bytes, as whsec_ and what openssl rand -base64 32 prints")
    return key


def _usable_secret(secret: SecretStr) -> SecretStr:
    if secret.get_secret_value():
        secret_bytes(secret.get_secret_value())
    return secret


def _usable_url(url: str) -> str:
    if not url:
        return url
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("must be an http or https address")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not carry a user name or password: the signature tells who sends")
    return url


def _usable_address(address: str) -> str:
    name, at, host = address.rpartition("@")
    if not (name and at and host) or not address.isprintable() or any(one in address for one in ' ,;<>"'):
        raise ValueError("must be a plain e-mail address, such as ops@acme.example")
    return address


Address = Annotated[str, AfterValidator(_usable_address)]


class WebhookSettings(BaseModel):
    """The section ``notifications.webhook``."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: Annotated[str, AfterValidator(_usable_url), Field(json_schema_extra={"secret_path": True})] = ""
    """Where messages are posted to; empty: nowhere. Its path is a secret with many who take messages."""
    secret: Annotated[SecretStr, AfterValidator(_usable_secret)] = SecretStr("")
    """What they are signed with, by the Standard Webhooks specification: whsec_ and base64."""
    ca_file: CaFile = ""
    """A PEM file with the certificates to trust in place of the public ones; empty: the public ones."""
    proxy: Proxy = SecretStr("")
    """The HTTP proxy that leads there, with credentials where it wants some; empty: none, whatever the environment
    says."""

    @model_validator(mode="after")
    def _is_signed(self) -> Self:
        if self.url and not self.secret.get_secret_value():
            raise ValueError("url is set, but secret is empty: messages are signed with it")
        return self


class EmailSettings(BaseModel):
    """The section ``notifications.email``."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    host: str = Field(default="", max_length=255)
    """The mail server that takes messages for delivery; empty: no e-mail."""
    port: int = Field(default=587, ge=1, le=65535)
    security: Literal["starttls", "tls", "none"] = "starttls"
    """``tls``: from the first byte (port 465); ``none``: only for a server on the same machine."""
    username: str = ""
    """Who signs in; empty: nobody does."""
    password: SecretStr = SecretStr("")
    ca_file: CaFile = ""
    """A PEM file with the certificates to trust; empty: the system's."""
    sender: Annotated[str, AfterValidator(lambda text: _usable_address(text) if text else text)] = ""
    """The address that messages come from."""
    recipients: tuple[Address, ...] = ()
    """Who gets them."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.host and not (self.sender and self.recipients):
            raise ValueError("host is set, but sender or recipients are empty")
        if self.host and self.username and self.security == "none" and self.password.get_secret_value():
            raise ValueError("security is none: a password would travel in the clear; use starttls or tls")
        return self


class NotificationSettings(BaseModel):
    """The section ``notifications``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    missed_after: int = Field(default=3600, ge=0, le=366 * 24 * 3600)
    """Seconds after which a run that was due and did not begin counts as missed; 0: never."""
    worker_after: int = Field(default=180, ge=0, le=366 * 24 * 3600)
    """Seconds after which a worker that gave no sign of life counts as dead; 0: nobody looks."""
    tries: int = Field(default=5, ge=1, le=20)
    """How often a message is tried in all, with growing pauses."""
    timeout: float = Field(default=10, gt=0, le=120)
    """Seconds that a server may take for each step."""
    webhook: WebhookSettings = WebhookSettings()
    email: EmailSettings = EmailSettings()
