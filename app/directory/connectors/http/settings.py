"""The settings of HTTP sources, and the presets for identity providers."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import orjson
import yaml
from pydantic import AfterValidator, Field, SecretStr, model_validator

from app.foundation.configuration.schema import SettingsSection
from app.foundation.outbound.route import CaFile, Proxy
from app.foundation.outbound.urls import checked_url, is_plaintext

PresetName = Literal["google_workspace", "keycloak", "microsoft_graph", "okta", "scim"]

Key = Annotated[str, Field(min_length=1, max_length=200)]
Path = Annotated[str, Field(max_length=1000, pattern=r"^[^/?#\s][^?#\s]*$")]
"""Relative to ``base_url``."""


def _has_id(path: str) -> str:
    if "{id}" not in path:
        raise ValueError("needs {id}, which is replaced by the id of the object")
    return path


PathOfObject = Annotated[Path, AfterValidator(_has_id)]
"""``{id}`` is the id of the object."""

Parameters = Mapping[Key, Annotated[str, Field(max_length=1000)]]

_FILTERS = frozenset({"$filter", "$search"})
"""Query parameters that leave out objects of a list, but not of its changes."""


class PagingSettings(SettingsSection):
    """How a list is divided into pages."""

    style: Literal["none", "link_header", "link", "token", "offset", "scim"]
    """The next page: ``link_header``: the link ``next`` in the header ``Link``; ``link``: a URL in the body;
    ``token``: a token in the body; ``offset``: the number of items so far, until an empty page; ``scim``: startIndex,
    until totalResults."""
    parameter: str = Field(default="", max_length=200)
    """The query parameter of a token or an offset."""
    next: str = Field(default="", max_length=200)
    """The key of the body with the link or the token."""

    @model_validator(mode="after")
    def _has_its_keys(self) -> "PagingSettings":
        if self.style in ("link", "token") and not self.next:
            raise ValueError(f"paging: style {self.style} needs next, the key of the body with the {self.style}")
        if self.style in ("token", "offset") and not self.parameter:
            raise ValueError(f"paging: style {self.style} needs parameter, the query parameter of the {self.style}")
        return self


class MembersSettings(SettingsSection):
    """Where the members of an object are."""

    attribute: str = Field(default="", max_length=200)
    """The attribute of the object with the list of members."""
    path: PathOfObject | None = None
    """The list of its members (``groups/{id}/members``), instead of ``attribute``."""
    query: Parameters = Field(default_factory=dict)
    """Query parameters of that list."""
    named_by: tuple[Key, ...] = ("id",)
    """The keys of a member with its name, of which the first that it has is used. Of ``$ref``, the last part."""

    @model_validator(mode="after")
    def _is_one_list(self) -> "MembersSettings":
        if bool(self.attribute) == (self.path is not None):
            raise ValueError("members: needs either attribute, a list in the object, or path, a list of its own")
        return self


class DeltaSettings(SettingsSection):
    """Where the changes of a set are."""

    path: Path
    """The list of its changes."""
    query: Parameters = Field(default_factory=dict)
    """Query parameters with which the list has only the link to the next changes."""
    members: str = Field(default="", max_length=200)
    """The attribute to select, so that changes of members are reported."""


class ApiSetSettings(SettingsSection):
    """A set of objects. Fields that are not set are those of the preset."""

    path: Path | None = None
    """The list of the objects."""
    query: Parameters = Field(default_factory=dict)
    """Query parameters, such as the page size and a filter."""
    count: Path | None = None
    """A resource with the number of all objects: a number, or ``{"count": number}``. A read of another number is
    partial."""
    id: Key = "id"
    """The key of an object with its permanent id."""
    named_by: tuple[Key, ...] = ("id",)
    """The keys with the names by which groups refer to the object."""
    members: MembersSettings | None = None
    children: PathOfObject | None = None
    """The list of the objects below an object (``groups/{id}/children``)."""
    child_count: str = Field(default="", max_length=200)
    """The key with the number of these objects."""
    delta: DeltaSettings | None = None
    """The changes of its objects, for incremental reads."""


class ApiPreset(SettingsSection):
    """The properties of an API, from a file in ``presets/``."""

    sets: Mapping[str, ApiSetSettings] = Field(default_factory=dict)
    paging: PagingSettings = PagingSettings(style="none")
    items: str = Field(default="", max_length=200)
    """The key of the body with the list; ``{set}`` is the name of the set, or ``members``. Empty: the body itself."""
    empty_if: str = Field(default="", max_length=200)
    """If the body has this key, a missing list is an empty one."""
    select: str = ""
    """The query parameter that names the attributes to return. Empty: all are returned."""
    delta_link: str = ""
    """The key of a list of changes with the link to the next changes."""
    removed: str = ""
    """The key of a change that means that the object was removed."""
    token_scheme: str = "Bearer"  # noqa: S105 - no token
    """The word before a token in its header."""
    scope: str = ""
    """The default scope of access tokens."""
    always: Mapping[str, frozenset[str]] = Field(default_factory=dict)
    """Set → attributes of all its objects. If an object does not have one, the client may not see it."""


@cache
def preset(name: PresetName | None) -> ApiPreset:
    """A preset. None: that of an API without one."""
    if name is None:
        return ApiPreset()
    return ApiPreset.model_validate(
        yaml.safe_load(files(__package__).joinpath("presets", f"{name}.yaml").read_text("utf-8"))
    )


def _usable_url(url: str) -> str:
    return checked_url(url, credentials="go into auth").rstrip("/")


def _usable_header(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    if not text.isascii() or not text.isprintable() or text != text.strip():
        raise ValueError("must be printable ASCII without blanks at its ends")
    return secret


def _usable_account_key(secret: SecretStr) -> SecretStr:
    if secret.get_secret_value():
        service_account(secret)
    return secret


def service_account(secret: SecretStr) -> Mapping[str, str]:
    """The fields of a service account's key file. Raises ``ValueError``, whose message does not contain it."""
    try:
        fields: Any = orjson.loads(secret.get_secret_value())
    except ValueError:
        fields = None
    needed = ("client_email", "private_key")
    if not isinstance(fields, dict) or not all(isinstance(fields.get(name), str) for name in needed):
        raise ValueError("not the key file of a service account: JSON with client_email and private_key")
    return {name: value for name, value in fields.items() if isinstance(value, str)}


def _without_page_size(query: Parameters) -> Parameters:
    return {name: value for name, value in query.items() if name != "$top"}


Url = Annotated[str, Field(max_length=2000), AfterValidator(_usable_url)]


class AuthSettings(SettingsSection):
    """How the client authenticates itself, in one of four ways."""

    token: Annotated[SecretStr, AfterValidator(_usable_header)] = SecretStr("")
    """A token for the header ``token_header``."""
    token_header: str = Field(default="Authorization", pattern=r"^[A-Za-z0-9-]{1,100}$")
    token_scheme: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]{0,100}$")
    """The word before the token. Default: that of the preset, or Bearer."""
    username: str = Field(default="", max_length=1000)
    """Basic authentication, with ``password``."""
    password: SecretStr = SecretStr("")
    token_url: Url | None = None
    """The token endpoint of OAuth 2.0, for ``client_id`` (client credentials) or a service account."""
    client_id: str = Field(default="", max_length=1000)
    client_secret: SecretStr = SecretStr("")
    scope: str | None = Field(default=None, max_length=2000)
    """The scopes of the access token. Default: those of the preset."""
    service_account_key: Annotated[SecretStr, AfterValidator(_usable_account_key)] = SecretStr("")
    """The key of a service account, as JSON, for a signed assertion (RFC 7523)."""
    subject: str = Field(default="", max_length=1000)
    """The user for whom the service account acts."""

    @model_validator(mode="after")
    def _is_one_way(self) -> "AuthSettings":
        ways = {
            "token": self.token.get_secret_value(),
            "username": self.username,
            "client_id": self.client_id,
            "service_account_key": self.service_account_key.get_secret_value(),
        }
        if len(configured := [name for name, value in ways.items() if value]) > 1:
            raise ValueError(f"auth: has {' and '.join(configured)}; keep one of them")
        if bool(self.username) != bool(self.password.get_secret_value()):
            raise ValueError("auth: username and password belong together; set both")
        if bool(self.client_id) != bool(self.client_secret.get_secret_value()):
            raise ValueError("auth: client_id and client_secret belong together; set both")
        if self.client_id and self.token_url is None:
            raise ValueError("auth: client_id needs token_url, the token endpoint")
        if self.subject and not ways["service_account_key"]:
            raise ValueError("auth: subject belongs to service_account_key")
        if self.token_url and not (self.client_id or ways["service_account_key"]):
            raise ValueError("auth: token_url needs client_id and client_secret, or service_account_key")
        return self

    def token_endpoint(self) -> str:
        """The token endpoint. Empty: there are no access tokens."""
        key = self.service_account_key
        return self.token_url or (service_account(key).get("token_uri", "") if key.get_secret_value() else "")


def _merged(base: ApiSetSettings, changes: ApiSetSettings) -> ApiSetSettings:
    """A set of the preset with the changes of the settings."""
    update = {field: getattr(changes, field) for field in changes.model_fields_set}
    merged = base.model_copy(update={**update, "query": {**base.query, **changes.query}})
    is_same_list = merged.path == base.path and _without_page_size(merged.query) == _without_page_size(base.query)
    keeps_delta = is_same_list or "delta" in changes.model_fields_set
    return merged if keeps_delta else merged.model_copy(update={"delta": None})


class HttpSettings(SettingsSection):
    """The API and its lists. ``HttpSourceSettings`` adds the settings of every source."""

    base_url: Url
    """The address below which all lists are."""
    preset: PresetName | None = None
    """The kind of API. Without one, ``sets`` and ``paging`` describe it."""
    auth: AuthSettings = Field(default_factory=AuthSettings)
    allow_plaintext: bool = False
    """Whether names and secrets may be sent over a network without TLS."""
    ca_file: CaFile = ""
    proxy: Proxy = SecretStr("")
    connect_timeout: float = Field(default=10, gt=0, le=600)
    """Connect timeout, in seconds."""
    answer_timeout: float = Field(default=60, gt=0, le=3600)
    """Timeout of each response, for example a page, in seconds."""
    max_in_flight: int = Field(default=4, ge=1, le=32)
    """Requests for members at a time."""
    sets: Mapping[Annotated[str, Field(min_length=1, max_length=100, pattern=r"^\w+$")], ApiSetSettings] = Field(
        default_factory=dict
    )
    """Changes to the sets of the preset, and further sets."""
    paging: PagingSettings | None = None
    """Default: that of the preset."""
    items: str | None = Field(default=None, max_length=200)
    """The key of the body with the list. Default: that of the preset."""

    @model_validator(mode="after")
    def _is_usable(self) -> "HttpSettings":
        urls = {"base_url": self.base_url, "auth.token_url": self.auth.token_endpoint()}
        for key, url in urls.items():
            if is_plaintext(url, self.proxy.get_secret_value()) and not self.allow_plaintext:
                raise ValueError(
                    f"{key}: without TLS, secrets could be read on the way; use https://, or allow_plaintext: true if"
                    " the network is private"
                )
        if self.auth.service_account_key.get_secret_value():
            try:
                _usable_url(self.auth.token_endpoint())
            except ValueError:
                problem = "service_account_key names no usable token_uri, so token_url is needed"
                raise ValueError(f"auth: {problem}") from None
        for name, settings in self.sets_in_force().items():
            if settings.path is None:
                raise ValueError(f"sets.{name}: the preset has no such set, so it needs a path")
            filters = sorted(_FILTERS & settings.query.keys())
            if settings.delta is not None and filters:
                raise ValueError(f"sets.{name}: delta reports all changes, so that it cannot be used with {filters[0]}")
        return self

    def sets_in_force(self) -> Mapping[str, ApiSetSettings]:
        """The sets of the preset with the changes of the settings, then further sets. Queries are merged.

        The changes in a preset are those of its own list, so they are not used for another path or query.
        """
        base = preset(self.preset).sets
        return {**base, **{name: _merged(base[name], own) if name in base else own for name, own in self.sets.items()}}

    def preset_in_force(self) -> ApiPreset:
        """The preset with the changes of the settings."""
        base = preset(self.preset)
        items = base.items if self.items is None else self.items
        return base.model_copy(update={"paging": self.paging or base.paging, "items": items})
