"""The settings of notifications."""

import base64
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from app.foundation.configuration.schema import SettingsSection
from app.foundation.outbound.route import CaFile, Proxy
from app.foundation.outbound.urls import checked_url
from app.foundation.secrets import SecretPart

SECRET_PREFIX = "whsec_"  # noqa: S105 - a prefix, not a secret

_WORKER_AFTER = 180


def secret_bytes(secret: str) -> bytes:
    """The key that a Standard Webhooks secret encodes. Raises ``ValueError`` if it is malformed."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError as error:
        raise ValueError("must be base64: whsec_ and the output of openssl rand -base64 32") from error
    if not 24 <= len(key) <= 64:
        raise ValueError("must encode 24 to 64 bytes: whsec_ and the output of openssl rand -base64 32")
    return key


def _usable_secret(secret: SecretStr) -> SecretStr:
    if secret.get_secret_value():
        secret_bytes(secret.get_secret_value())
    return secret


def _usable_url(url: str) -> str:
    return url and checked_url(url, credentials="are not needed: the signature authenticates the sender", query=True)


def _usable_address(address: str) -> str:
    name, at, host = address.rpartition("@")
    is_split = name and at and host and "@" not in name
    if not is_split or not address.isprintable() or any(character in address for character in ' ,;<>"'):
        raise ValueError("must be a plain e-mail address, such as ops@acme.example")
    return address


Address = Annotated[str, AfterValidator(_usable_address)]


class WebhookSettings(SettingsSection):
    """The section ``notifications.webhook``."""

    url: Annotated[str, AfterValidator(_usable_url), SecretPart.PATH] = ""
    """The URL that messages are posted to; empty: no webhook. Many receivers treat its path as a secret."""
    secret: Annotated[SecretStr, AfterValidator(_usable_secret)] = SecretStr("")
    """The key that signs messages, as in Standard Webhooks: whsec_ and base64."""
    ca_file: CaFile = ""
    """A PEM file with the certificates to trust instead of the public ones; empty: the public ones."""
    proxy: Proxy = SecretStr("")
    """The HTTP proxy, with credentials if it requires them; empty: none. Proxies of the environment are ignored."""

    @model_validator(mode="after")
    def _is_signed(self) -> Self:
        if self.url and not self.secret.get_secret_value():
            raise ValueError("url is set, but secret is empty: messages are signed with it")
        return self


class EmailSettings(SettingsSection):
    """The section ``notifications.email``."""

    host: str = Field(default="", max_length=255)
    """The mail server; empty: no e-mail."""
    port: int = Field(default=587, ge=1, le=65535)
    security: Literal["starttls", "tls", "none"] = "starttls"
    """``tls``: implicit TLS (port 465); ``none``: only for a server on the same machine."""
    username: str = ""
    """The user name for the mail server; empty: no authentication."""
    password: SecretStr = SecretStr("")
    ca_file: CaFile = ""
    """A PEM file with the certificates to trust; empty: the system's."""
    sender: Annotated[str, AfterValidator(lambda text: _usable_address(text) if text else text)] = ""
    """The sender's address."""
    recipients: tuple[Address, ...] = ()
    """The recipients' addresses."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.host and not (self.sender and self.recipients):
            raise ValueError("host is set, but sender or recipients are empty")
        if self.password.get_secret_value() and not self.username:
            raise ValueError("password is set, but username is empty")
        if self.host and self.username and self.security == "none" and self.password.get_secret_value():
            raise ValueError("security is none: the password would be sent unencrypted; use starttls or tls")
        return self


class NotificationSettings(SettingsSection):
    """The section ``notifications``."""

    missed_after: int = Field(default=3600, ge=0, le=366 * 24 * 3600)
    """Seconds from the due time of a run until it is reported as missed; 0: never."""
    worker_after: int = Field(default=_WORKER_AFTER, ge=0, le=366 * 24 * 3600)
    """Seconds from the last heartbeat of a worker until it is reported as dead; 0: never."""
    tries: int = Field(default=5, ge=1, le=20)
    """Maximum attempts per message, with increasing delays."""
    timeout: float = Field(default=10, gt=0, le=120)
    """Timeout of each network operation, in seconds."""
    webhook: WebhookSettings = WebhookSettings()
    email: EmailSettings = EmailSettings()

    @property
    def dead_after(self) -> int:
        """Seconds from the last heartbeat of a worker until it is dead, even if that is never reported."""
        return self.worker_after or _WORKER_AFTER
