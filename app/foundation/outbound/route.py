"""The route of outgoing calls, as settings tell it.

A ``Route`` comes from settings and from nothing else: proxies, certificates, passwords and cookies of the environment
or of earlier answers have no say. Who goes along it: ``app/foundation/outbound/session.py``, apart from this, because
every command reads settings and few make calls.
"""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

from app.foundation.files import read_small_file


def _usable_ca_file(text: str) -> str:
    if not text:
        return text
    path = str(Path(text).expanduser())
    try:
        read_small_file(Path(path))
        ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        raise ValueError("must be a PEM file with the certificates to trust (there is none in it)") from error
    except OSError as error:
        raise ValueError(f"must be a readable PEM file with certificates ({error.strerror})") from error
    return path


def _usable_proxy(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    if not text:
        return secret
    if text.count("@") > 1:
        raise ValueError("an @ in the user's name or password is written as %40")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(
            "must be an address such as http://user:password@proxy.example.com:3128"
            " (a / ? # or : in the user's name or password is written as %2F %3F %23 %3A)"
        )
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be printable ASCII without spaces; anything else is written as %XX")
    return secret


CaFile = Annotated[str, AfterValidator(_usable_ca_file)]
"""A setting: a PEM file with the certificates to trust in place of the public ones; empty: the public ones."""

Proxy = Annotated[SecretStr, AfterValidator(_usable_proxy)]
"""A setting: the HTTP proxy that calls go through, with credentials where it wants some; empty: none."""


@dataclass(frozen=True, slots=True)
class Route:
    """One way out."""

    ca_file: str = ""
    proxy: SecretStr = field(default_factory=lambda: SecretStr(""))

    @property
    def proxy_address(self) -> str:
        """The proxy as ``host:port``, without its credentials; empty when there is none."""
        text = self.proxy.get_secret_value()
        return address_of(text) if text else ""


def address_of(url: str) -> str:
    """``host:port`` of an address that has been found usable."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
