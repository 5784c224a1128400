"""Settings of outgoing HTTP calls: the trusted certificates and the proxy.

``session.py`` opens sessions with these settings. The modules are separate, because importing ``requests`` is slow:
every command reads settings, but few commands make calls.
"""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

from app.foundation.files import read_small_file
from app.foundation.outbound.urls import address_of, is_http_url
from app.foundation.secrets import SecretPart


def _checked_ca_file(text: str) -> str:
    if not text:
        return text
    path = str(Path(text).expanduser())
    try:
        read_small_file(Path(path))
        ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        raise ValueError("must be a PEM file with the certificates to trust, but contains none") from error
    except OSError as error:
        raise ValueError(f"must be a readable PEM file with certificates ({error.strerror})") from error
    return path


def _has_invalid_port(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    if parts.scheme not in {"http", "https"} or ("@" in text and "@" not in parts.netloc):
        # The part that looks like a port may belong to a password.
        return False
    try:
        return parts.port == 0
    except ValueError:
        return True


def _checked_proxy(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    if not text:
        return secret
    if text.count("@") > 1:
        raise ValueError("write an @ in the user's name or password as %40")
    if _has_invalid_port(text):
        raise ValueError("the port must be a number from 1 to 65535")
    parts = urlsplit(text) if is_http_url(text) else None
    if parts is None or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(
            "must be an address such as http://user:password@proxy.example.com:3128"
            " (write / ? # : in the user's name or password as %2F %3F %23 %3A)"
        )
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be printable ASCII without spaces: write other characters as %XX")
    return secret


CaFile = Annotated[str, AfterValidator(_checked_ca_file)]
"""A setting: a PEM file with the certificates to trust instead of the public ones. Empty: the public ones."""

Proxy = Annotated[SecretStr, AfterValidator(_checked_proxy), SecretPart.CREDENTIALS]
"""A setting: the URL of an HTTP proxy, with credentials if it requires them. Empty: no proxy."""


@dataclass(frozen=True, slots=True)
class Route:
    """The settings of outgoing calls to one peer."""

    ca_file: str = ""
    proxy: SecretStr = field(default_factory=lambda: SecretStr(""))

    @property
    def proxy_address(self) -> str:
        """The proxy as ``host:port``, without its credentials. Empty if there is none."""
        text = self.proxy.get_secret_value()
        return address_of(text) if text else ""
