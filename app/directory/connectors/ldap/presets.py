"""Presets: what is known of a kind of directory, each in a data file, and what settings may change of it."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

PresetName = Literal["active_directory", "openldap", "freeipa", "posix"]
SearchScope = Literal["subtree", "one"]


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
"""The keys of ``values.CONVERSIONS``."""


ACCOUNT_EXPIRED = "account_expired"
"""The name in rules for whether an account has expired: true, or missing. Names of LDAP attributes have no ``_``."""


class SetSettings(BaseModel):
    """A set of objects: where they are, and what identifies them. What is not given is as the preset has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base: Dn | None = None
    """The DN below which its objects are; missing: the ``base`` of the source."""
    below: Dn = ""
    """The same, seen from the ``base`` of the source (``cn=users,cn=accounts``)."""
    filter: Filter | None = None
    scope: SearchScope = "subtree"
    """``subtree``: everything below the base; ``one``: what is right below it."""
    id: Attribute | None = None
    """The attribute that identifies an object for good; no rename or move may change it."""
    named_by: Attribute = "dn"
    """By what groups name it as a member: ``dn``, or an attribute (``uid``, where ``memberUid`` does)."""
    members: tuple[Attribute, ...] = ()
    """The attributes that name an object's members."""


class Preset(BaseModel):
    """A data file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sets: Mapping[str, SetSettings]
    extended_dn: bool = False
    """Whether the server tells the GUID of each DN when asked to (1.2.840.113556.1.4.529)."""
    ranges: bool = False
    """Whether the server gives the values of large attributes by and by (``member;range=0-1499``)."""
    primary_groups: bool = False
    """Whether there are members that only their own ``primaryGroupID`` names."""
    changes: Literal["syncrepl", "usn", "none"] = "none"
    """How the server is asked for changes."""
    silent: frozenset[str] = frozenset()
    """Attributes whose changes the server tells nobody of."""
    ends: Mapping[str, str] = Field(default_factory=dict)
    """Set → the attribute with the time at which an account ends, as FILETIME. Every object of the set has it, or the
    server hides it from the reader."""
    lists: frozenset[str] = frozenset()
    """Attributes that have any number of values: they become lists."""
    convert: Mapping[str, Conversion] = Field(default_factory=dict)
    """Attributes that are no text."""
    always: Mapping[str, frozenset[str]] = Field(default_factory=dict)
    """Set → the attributes that each of its objects has. The server hides one that is missing from the reader."""


@cache
def preset(name: PresetName) -> Preset:
    """The preset of this name."""
    text = files(__package__).joinpath("presets", f"{name}.yaml").read_text("utf-8")
    return Preset.model_validate(yaml.safe_load(text))
