"""The settings of a directory in LDAP."""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from app.directory.connectors.ldap.presets import (
    Attribute,
    Conversion,
    Dn,
    Filter,
    Preset,
    PresetName,
    SearchScope,
    SetSettings,
    preset,
)

_SCHEMES = ("ldaps", "ldap", "ldapi")


def _usable_url(url: str) -> str:
    if re.search(r"[\s,\x00-\x1f]", url):
        raise ValueError("should name one server, without blanks")
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        raise ValueError("not an address; write ldaps://HOST, or ldaps://HOST:PORT") from None
    if parts.scheme not in _SCHEMES:
        raise ValueError("should begin with ldaps://, ldap:// or ldapi://")
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise ValueError("should hold no user and password; they go into bind_dn and bind_password")
    if parts.query or parts.fragment or parts.path not in ("", "/") or not parts.netloc or not port_is_fine:
        raise ValueError("should be ldaps://HOST or ldaps://HOST:PORT and no more; the base goes into base")
    return url.rstrip("/")


def _usable_urls(given: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if isinstance(given, str):
        return _usable_url(given)
    urls = tuple(_usable_url(one) for one in given)
    if not urls or len(set(urls)) < len(urls):
        raise ValueError("should name one server, or a list of different ones")
    return urls


def _usable_file(path: Path) -> Path:
    if "\0" in str(path) or not path.name:
        raise ValueError("not the path of a file")
    return path


FilePath = Annotated[Path, AfterValidator(_usable_file)]


class LdapConnectionSettings(BaseModel):
    """How a server is reached, and which of its objects are read; ``LdapSourceSettings`` adds what sources have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str | tuple[str, ...], AfterValidator(_usable_urls)]
    """``ldaps://HOST``, ``ldap://HOST`` with ``starttls``, or ``ldapi://%2Fpath%2Fof%2Fsocket``. Of a list, the first
    server that can be reached is read."""
    base: Dn
    """The DN below which everything is that is read."""
    preset: PresetName
    """What kind of directory it is."""
    bind_dn: str = Field(default="", max_length=1000)
    """Who reads: a DN, or what else the server takes for a name (``usher@corp.example``); empty: anonymous."""
    bind_password: SecretStr = SecretStr("")
    sasl: Literal["", "external", "gssapi"] = ""
    """Instead of ``bind_dn``: ``external`` (by ``cert_file``, or by the socket's user), ``gssapi`` (Kerberos)."""
    starttls: bool = False
    """Whether an ``ldap://`` connection begins with TLS."""
    allow_plaintext: bool = False
    """Whether names and passwords may go over a network without TLS."""
    ca_file: FilePath | None = None
    """A PEM file with the authorities that may have signed the server's certificate; missing: the system's."""
    cert_file: FilePath | None = None
    """A PEM file with the certificate that the reader shows, and ``key_file`` with its key."""
    key_file: FilePath | None = None
    connect_timeout: float = Field(default=10, gt=0, le=600)
    """Seconds that connecting may take, TLS included."""
    answer_timeout: float = Field(default=60, gt=0, le=3600)
    """Seconds that each answer may take; a page is one."""
    page_size: int = Field(default=1000, ge=1, le=100_000)
    """Objects in one page."""
    sets: Mapping[str, SetSettings] = Field(default_factory=dict)
    """What is otherwise than in the preset, and further sets."""
    account_expiry: bool = True
    """Whether an account loses its access when it expires, if the preset knows the attribute."""
    lists: tuple[Attribute, ...] = ()
    """Further attributes that become lists of all their values."""
    convert: Mapping[Attribute, Conversion] = Field(default_factory=dict)
    """Further attributes that are no text."""
    elsewhere: tuple[Dn, ...] = ()
    """Parts of the directory that other servers hold and that are left out on purpose."""

    @model_validator(mode="after")
    def _is_safe(self) -> "LdapConnectionSettings":
        for url in self.urls:
            scheme = urlsplit(url).scheme
            if scheme != "ldap" and self.starttls:
                raise ValueError("starttls belongs to ldap:// addresses; ldaps:// is TLS from its first byte on")
            if scheme == "ldap" and not (self.starttls or self.allow_plaintext or is_loopback(url)):
                raise ValueError(
                    "url: ldap:// without starttls would send names and the password readable to everybody on the way;"
                    " use ldaps://, or starttls: true (allow_plaintext: true, if the network is nobody else's)"
                )
        if self.sasl and (self.bind_dn or self.bind_password.get_secret_value()):
            raise ValueError(f"sasl: {self.sasl} needs no bind_dn and no bind_password; take one way or the other")
        if self.bind_dn and not self.bind_password.get_secret_value():
            raise ValueError(
                "bind_password is empty: servers take a bind_dn without a password for somebody anonymous and refuse"
                " nothing; give bind_password or bind_password_file"
            )
        if self.bind_password.get_secret_value() and not self.bind_dn:
            raise ValueError("bind_password is given without bind_dn; say whose password it is")
        if "\0" in self.bind_password.get_secret_value() + self.bind_dn:
            raise ValueError("bind_dn and bind_password cannot hold a NUL character")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together; give both")
        for name, one in self.sets_in_force().items():
            if not name or len(name) > 200 or "\x1f" in name:
                raise ValueError("sets: a set needs a name of 1 to 200 characters")
            if one.filter is None or one.id is None:
                raise ValueError(f"sets.{name}: the preset has no such set, so it needs a filter and an id")
        return self

    @property
    def urls(self) -> tuple[str, ...]:
        """The servers, in the order in which they are tried."""
        return (self.url,) if isinstance(self.url, str) else self.url

    @property
    def server(self) -> str:
        """The first of them. While one is read, the settings of its session name that one alone."""
        return self.urls[0]

    def sets_in_force(self) -> Mapping[str, SetSettings]:
        """The sets of the preset with what the settings say of them, in its order, and then the others."""
        known = preset(self.preset).sets
        return {
            name: known[name].model_copy(update=_given(self.sets.get(name))) if name in known else self.sets[name]
            for name in [*known, *(name for name in self.sets if name not in known)]
        }

    def preset_in_force(self) -> Preset:
        """The preset with the further lists and conversions of the settings."""
        known = preset(self.preset)
        return known.model_copy(
            update={
                "lists": known.lists | set(self.lists),
                "convert": {**known.convert, **self.convert},
                "ends": known.ends if self.account_expiry else {},
            }
        )


def _given(settings: SetSettings | None) -> dict[str, object]:
    return {} if settings is None else {name: getattr(settings, name) for name in settings.model_fields_set}


def is_loopback(url: str) -> bool:
    """Whether what is sent there stays on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "ldapi":
        return True
    host = unquote(parts.hostname or "")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


__all__ = ["Attribute", "Filter", "LdapConnectionSettings", "SearchScope", "SetSettings", "is_loopback"]
