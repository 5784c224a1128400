"""The settings of LDAP sources, and the presets for kinds of directories."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, Field, SecretStr, model_validator

from app.access.records import ORIGIN_SEPARATOR
from app.foundation.configuration.schema import SettingsSection
from app.foundation.outbound.urls import is_plaintext

PresetName = Literal["active_directory", "openldap", "freeipa", "posix"]
SearchScope = Literal["subtree", "one"]

ACCOUNT_EXPIRED = "account_expired"
"""The attribute in rules that is true for expired accounts, and missing otherwise. LDAP attributes contain no ``_``."""


def _usable_attribute(name: str) -> str:
    if not all(
        part and part.isascii() and part.replace("-", "").replace(".", "").isalnum() for part in name.split(";")
    ):
        raise ValueError("not the name of an attribute")
    return name


def _usable_filter(text: str) -> str:
    text = text.strip()
    if not (text.startswith("(") and text.endswith(")")) or "\0" in text or text.count("(") != text.count(")"):
        raise ValueError("not an LDAP filter; it has the form (objectClass=person), with as many ( as )")
    return text


def _usable_dn(text: str) -> str:
    if "\0" in text or (text and "=" not in text):
        raise ValueError('not a DN; it has the form "OU=People,DC=corp,DC=example"')
    return text


Attribute = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_usable_attribute)]
Filter = Annotated[str, Field(max_length=8000), AfterValidator(_usable_filter)]
Dn = Annotated[str, Field(max_length=2000), AfterValidator(_usable_dn)]
Conversion = Literal["text", "integer", "boolean", "guid", "sid", "filetime", "time", "base64"]


class SetSettings(SettingsSection):
    """A set of objects. Fields that are not set are those of the preset."""

    base: Dn | None = None
    """The DN below which its objects are. Default: the ``base`` of the source."""
    below: Dn = ""
    """The same, relative to the ``base`` of the source (``cn=users,cn=accounts``)."""
    filter: Filter | None = None
    scope: SearchScope = "subtree"
    """``subtree``: everything below the base; ``one``: its children only."""
    id: Attribute | None = None
    """The attribute with the permanent id of an object, which no rename or move changes."""
    named_by: Attribute = "dn"
    """The attribute by which groups name the object as a member: ``dn``, or for example ``uid``."""
    members: tuple[Attribute, ...] = ()
    """The attributes that name an object's members."""


class Preset(SettingsSection):
    """The properties of a kind of directory, from a file in ``presets/``."""

    sets: Mapping[str, SetSettings]
    extended_dn: bool = False
    """Whether the server can return the GUID of each DN (1.2.840.113556.1.4.529)."""
    ranges: bool = False
    """Whether the server returns large attributes in ranges (``member;range=0-1499``)."""
    primary_groups: bool = False
    """Whether objects can be members by their own ``primaryGroupID`` only."""
    changes: Literal["syncrepl", "usn", "none"] = "none"
    """The protocol of incremental reads."""
    silent: frozenset[str] = frozenset()
    """Attributes whose changes incremental reads do not report."""
    ends: Mapping[str, str] = Field(default_factory=dict)
    """Set → the attribute with the FILETIME at which an account expires. If an object does not have it, the reader may
    not see it."""
    lists: frozenset[str] = frozenset()
    """Attributes with several values, which become lists."""
    convert: Mapping[str, Conversion] = Field(default_factory=dict)
    """Attributes that are not text."""
    always: Mapping[str, frozenset[str]] = Field(default_factory=dict)
    """Set → attributes of all its objects. If an object does not have one, the reader may not see it."""


@cache
def preset(name: PresetName) -> Preset:
    text = files(__package__).joinpath("presets", f"{name}.yaml").read_text("utf-8")
    return Preset.model_validate(yaml.safe_load(text))


def _usable_url(url: str) -> str:
    if re.search(r"[\s,\x00-\x1f]", url):
        raise ValueError("should name one server, without blanks")
    try:
        parts = urlsplit(url)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        raise ValueError("not an address; write ldaps://HOST, or ldaps://HOST:PORT") from None
    if parts.scheme not in ("ldaps", "ldap", "ldapi"):
        raise ValueError("should begin with ldaps://, ldap:// or ldapi://")
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise ValueError("should hold no user and password; they go into bind_dn and bind_password")
    if parts.query or parts.fragment or parts.path not in ("", "/") or not parts.netloc or not port_is_valid:
        raise ValueError("should be ldaps://HOST or ldaps://HOST:PORT and no more; the base goes into base")
    return url.rstrip("/")


def _usable_urls(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if isinstance(value, str):
        return _usable_url(value)
    urls = tuple(map(_usable_url, value))
    if not urls or len(set(urls)) < len(urls):
        raise ValueError("should name one server, or a list of different ones")
    return urls


def _usable_file(path: Path) -> Path:
    if "\0" in str(path) or not path.name:
        raise ValueError("not the path of a file")
    return path


FilePath = Annotated[Path, AfterValidator(_usable_file)]


class LdapConnectionSettings(SettingsSection):
    """The connection, and the objects to read. ``LdapSourceSettings`` adds the settings of every source."""

    url: Annotated[str | tuple[str, ...], AfterValidator(_usable_urls)]
    """``ldaps://HOST``, ``ldap://HOST`` with ``starttls``, or ``ldapi://%2Fpath%2Fof%2Fsocket``. Of a list, the first
    server that can be reached is read."""
    base: Dn
    """The DN below which everything is read."""
    preset: PresetName
    bind_dn: str = Field(default="", max_length=1000)
    """The reader: a DN, or another name that the server accepts (``usher@corp.example``). Empty: anonymous."""
    bind_password: SecretStr = SecretStr("")
    sasl: Literal["", "external", "gssapi"] = ""
    """Instead of ``bind_dn``: ``external`` (``cert_file``, or the user of the socket), ``gssapi`` (Kerberos)."""
    starttls: bool = False
    """Whether an ``ldap://`` connection begins with TLS."""
    allow_plaintext: bool = False
    """Whether names and passwords may be sent over a network without TLS."""
    ca_file: FilePath | None = None
    """A PEM file with the authorities that sign the server's certificate. Default: the system's."""
    cert_file: FilePath | None = None
    """A PEM file with the client certificate; ``key_file`` has its key."""
    key_file: FilePath | None = None
    connect_timeout: float = Field(default=10, gt=0, le=600)
    """Connect timeout, TLS included, in seconds."""
    answer_timeout: float = Field(default=60, gt=0, le=3600)
    """Timeout of each response, for example a page, in seconds."""
    page_size: int = Field(default=1000, ge=1, le=100_000)
    sets: Mapping[str, SetSettings] = Field(default_factory=dict)
    """Changes to the sets of the preset, and further sets."""
    account_expiry: bool = True
    """Whether expired accounts lose their access, if the preset has the attribute."""
    lists: tuple[Attribute, ...] = ()
    """Further attributes with several values."""
    convert: Mapping[Attribute, Conversion] = Field(default_factory=dict)
    """Further attributes that are not text."""
    elsewhere: tuple[Dn, ...] = ()
    """Parts of the directory on other servers, which are left out deliberately."""

    @model_validator(mode="after")
    def _check(self) -> "LdapConnectionSettings":
        self._check_transport()
        self._check_credentials()
        self._check_sets()
        return self

    def _check_transport(self) -> None:
        for url in self.urls:
            scheme = urlsplit(url).scheme
            if scheme != "ldap" and self.starttls:
                raise ValueError("starttls belongs to ldap:// addresses; ldaps:// is TLS from its first byte on")
            if is_plaintext(url) and not (self.starttls or self.allow_plaintext):
                raise ValueError(
                    "url: ldap:// without starttls would send names and the password readable to everybody on the way;"
                    " use ldaps://, or starttls: true (allow_plaintext: true, if the network is private)"
                )

    def _check_credentials(self) -> None:
        password = self.bind_password.get_secret_value()
        if self.sasl and (self.bind_dn or password):
            raise ValueError(f"sasl: {self.sasl} needs no bind_dn and no bind_password; remove one or the other")
        if self.bind_dn and not password:
            raise ValueError(
                "bind_password is empty: servers treat a bind_dn without a password as anonymous and refuse nothing;"
                " set bind_password or bind_password_file"
            )
        if password and not self.bind_dn:
            raise ValueError("bind_password is given without bind_dn; add the name that it belongs to")
        if "\0" in password + self.bind_dn:
            raise ValueError("bind_dn and bind_password cannot hold a NUL character")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together; set both")

    def _check_sets(self) -> None:
        for name, settings in self.sets_in_force().items():
            if not name or len(name) > 200:
                raise ValueError("sets: a set needs a name of 1 to 200 characters")
            if ORIGIN_SEPARATOR in name:
                raise ValueError("sets: the name of a set cannot contain the control character U+001F")
            if settings.filter is None or settings.id is None:
                raise ValueError(f"sets.{name}: the preset has no such set, so it needs a filter and an id")

    @property
    def urls(self) -> tuple[str, ...]:
        """The servers, in the order in which they are tried."""
        return (self.url,) if isinstance(self.url, str) else self.url

    @property
    def server(self) -> str:
        """The first server. The settings of a session have only this one."""
        return self.urls[0]

    def sets_in_force(self) -> Mapping[str, SetSettings]:
        """The sets of the preset with the changes of the settings, then further sets."""
        base = preset(self.preset).sets
        changed = {
            name: base[name].model_copy(update={field: getattr(own, field) for field in own.model_fields_set})
            if name in base
            else own
            for name, own in self.sets.items()
        }
        return {**base, **changed}

    def preset_in_force(self) -> Preset:
        """The preset with the changes of the settings."""
        base = preset(self.preset)
        return base.model_copy(
            update={
                "lists": base.lists | set(self.lists),
                "convert": {**base.convert, **self.convert},
                "ends": base.ends if self.account_expiry else {},
            }
        )
