"""Base classes and field types of all models.

Every model is a ``WireModel``: snake_case attributes, camelCase on the wire. Undeclared fields are kept and sent back
unchanged. Types are strict: ``"5"`` and ``true`` are not numbers, ``1`` is not a string. JSON has one kind of number,
so ``10.0`` is accepted as an integer.
"""

from typing import Annotated, Literal, Self, TypeVar, cast

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    model_validator,
)
from pydantic.alias_generators import to_camel

from app.contract import limits
from app.foundation.outbound.urls import is_http_url

NO_NUL = r"^[^\x00]*$"
"""Databases and C libraries end a string at NUL. Pydantic itself refuses lone surrogates."""


def _fits_index(text: str) -> str:
    if len(text) * 4 > limits.ID_BYTES and len(text.encode()) > limits.ID_BYTES:
        raise ValueError(f"must be at most {limits.ID_BYTES} bytes long in UTF-8")
    return text


Id = Annotated[
    str, StringConstraints(min_length=1, max_length=limits.ID_LENGTH, pattern=NO_NUL), AfterValidator(_fits_index)
]
"""An opaque id. It has any characters but NUL, and at least one."""

Text = Annotated[str, StringConstraints(max_length=limits.TEXT_LENGTH, pattern=NO_NUL)]
LongText = Annotated[str, StringConstraints(max_length=limits.LONG_TEXT_LENGTH, pattern=NO_NUL)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=limits.WORKSPACE_NAME_LENGTH, pattern=NO_NUL)]
"""The name of a workspace, an API key or an owner."""
Email = Annotated[str, StringConstraints(min_length=1, max_length=limits.EMAIL_LENGTH, pattern=NO_NUL)]
"""Checks only length and characters. The backend validates owners' addresses with a library."""

AsWhole = BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value)
"""Makes an ``Annotated[int, ...]`` accept ``10.0`` as 10. It must be the last item, or the schema loses the bounds."""
PageSize = Annotated[int, Field(ge=limits.PAGE_SIZE_MIN), AsWhole]
"""The maximum number of rows of a page. A value above ``limits.PAGE_SIZE_MAX`` is accepted and means that limit."""
PageToken = Annotated[str, StringConstraints(max_length=limits.PAGE_TOKEN_LENGTH, pattern=NO_NUL)]
"""The token of a page, from the response with the page before. Empty or absent: the first page."""
EpochSeconds = Annotated[int, Field(ge=0, le=limits.EPOCH_SECONDS_MAX), AsWhole]
EpochMs = Annotated[int, Field(ge=0, le=limits.EPOCH_MS_MAX), AsWhole]

ItemT = TypeVar("ItemT")
Batch = Annotated[list[ItemT], Field(max_length=limits.BATCH_ITEMS)]
Ids = Batch[Id]
ReadIds = Annotated[list[Id], Field(max_length=limits.IDS_PER_READ)]

AccessRole = Literal["viewer", "editor"]
AccessType = Literal["public", "organizationPrivate", "restricted"]
Order = Literal["asc", "desc"]
JsonObject = dict[str, JsonValue]

DEFAULT_ACCESS_ROLE: AccessRole = "editor"
"""The meaning of an absent ``accessRole``."""


def wire_name(attribute: str) -> str:
    """The name of an attribute on the wire: ``user_id`` is ``userId``, ``from_`` is ``from``.

    With an alias per field (``Field(alias="from")``), type checkers would accept only the alias.
    """
    return to_camel(attribute.removesuffix("_"))


class WireModel(BaseModel):
    """A JSON object of the contract."""

    model_config = ConfigDict(
        alias_generator=wire_name,
        validate_by_alias=True,
        validate_by_name=True,
        extra="allow",
        strict=True,
        frozen=True,
        # Error texts may be logged, and the input may be a secret.
        hide_input_in_errors=True,
    )

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """Parses a JSON object with wire names (``user_id`` is undeclared). Raises ``pydantic.ValidationError``."""
        return cls.model_validate(value, by_alias=True, by_name=False)

    def to_wire(self) -> dict[str, object]:
        """The JSON object with wire names, without absent fields. Undeclared fields are unchanged."""
        return self.model_dump(by_alias=True, exclude_unset=True)

    def unknown_fields(self) -> dict[str, object]:
        """The undeclared fields, unchanged."""
        return dict(self.model_extra or {})


class Request(WireModel):
    """A request's ``data``, or an object in it. A declared field that is null is treated as absent."""

    def model_post_init(self, _context: object, /) -> None:
        """Removes nulls from ``model_fields_set``, and so from ``to_wire``."""
        values = self.__dict__
        present = self.__pydantic_fields_set__
        present.difference_update([name for name in present if values.get(name, "") is None])


class InOrganization(Request):
    """A request about one organization, or an object in such a request."""

    organization_id: Id


class Paged(Request):
    """A read by page."""

    page_size: PageSize | None = None
    page_token: PageToken | None = None


class WithMetadata(Request):
    """An item whose undeclared fields are stored as its metadata, up to a limit."""

    @model_validator(mode="after")
    def _check_size_of_metadata(self) -> Self:
        if self.model_extra and len(orjson.dumps(self.model_extra)) > limits.METADATA_BYTES:
            raise ValueError(f"must have at most {limits.METADATA_BYTES} bytes of metadata as JSON")
        return self


def some_field_schema(*names: str) -> dict[str, JsonValue]:
    """The JSON Schema of objects with at least one of these fields."""
    return {"anyOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]}


def _require_some_field(schema: JsonObject) -> None:
    schema |= some_field_schema(*cast("JsonObject", schema["properties"]))


class SomeField(Request):
    """A request that must have at least one of its fields."""

    model_config = ConfigDict(json_schema_extra=_require_some_field)

    @model_validator(mode="after")
    def _check_some_field(self) -> Self:
        fields = type(self).model_fields
        if self.model_fields_set.isdisjoint(fields):
            *names, last = map(wire_name, fields)
            raise ValueError(f"give {', '.join(names)} or {last}")
        return self


class NoParameters(Request):
    """The ``data`` of an operation without parameters."""


class ItemResult(WireModel):
    """The outcome of one item of a batch: a value of ``result.data``, or of ``error.details`` in a failure.

    ``code`` is present only in failures: ``already-exists``, ``not-found`` (final) or ``internal`` (temporary).
    """

    success: bool
    message: str | None = None
    id: str | None = None
    code: str | None = None
    organization_user_group_id: str | None = None
    access_type: str | None = None


class UserReference(Request):
    """A user in another resource: ``actionUser``, ``from``, ``notifyUsers``."""

    user_id: Id
    name: Text | None = None
    email: Text | None = None


def wire_value(value: object) -> object:
    """Converts the models in ``value``, at any depth, to JSON objects."""
    if isinstance(value, WireModel):
        return value.to_wire()
    if isinstance(value, dict):
        return {key: wire_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [wire_value(inner) for inner in value]
    return value


def _is_url(text: str) -> str:
    if not is_http_url(text):
        raise ValueError("must be an http or https URL")
    return text


# The JSON Schema of `_is_url`, so that clients that validate in advance get the same result.
_USER = r"([^\s\x00-\x20\x7f-\xa0/?#@\[\]\\]*@)?"
_HEX = "[0-9A-Fa-f]{1,4}"
# IPv6 in full, without its start, or without its middle after at most three groups.
_IPV6 = rf"\[(({_HEX}:){{7}}{_HEX}|::({_HEX}(:{_HEX}){{0,6}})?|{_HEX}(:{_HEX}){{0,2}}::({_HEX}(:{_HEX}){{0,3}})?)\]"
_HOST = rf"({_IPV6}|[^\s\x00-\x2c/\x3a-\x40\x5b-\x5e\x60\x7b-\xa0]+)"
_PORT = r"(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
_REST = r"([/?#][^\s\x00-\x20\x7f-\xa0]*)?"
_URL = f"[Hh][Tt][Tt][Pp][Ss]?://{_USER}{_HOST}{_PORT}{_REST}"
Url = Annotated[str, StringConstraints(max_length=limits.URL_LENGTH, pattern=rf"^{_URL}$"), AfterValidator(_is_url)]
UrlOrEmpty = Annotated[
    str,
    StringConstraints(max_length=limits.URL_LENGTH, pattern=rf"^({_URL})?$"),
    AfterValidator(lambda text: text and _is_url(text)),
]
"""A URL. The empty string removes a stored one."""
