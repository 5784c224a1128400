"""The base class of all models.

Every model is a ``WireModel``: snake_case attributes, camelCase on the wire. Undeclared fields are kept and sent back
unchanged. Types are strict: ``"5"`` and ``true`` are not numbers, ``1`` is not a string. JSON has one kind of number,
so ``10.0`` is accepted as an integer. ``null`` means that the field is not given.
"""

import json
from typing import Annotated, Literal, Self, TypeVar
from urllib.parse import urlsplit

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from app.contract import limits
from app.contract.errors import InvalidArgument
from app.contract.storable import refuse_unstorable
from app.contract.validation import first_error

NO_NUL = r"^[^\x00]*$"
"""Databases and C libraries end a string at NUL: such text is refused, not cut. (Lone surrogates are refused
by pydantic itself.)"""


def _fits_an_index(text: str) -> str:
    if len(text) * 4 > limits.ID_BYTES and len(text.encode()) > limits.ID_BYTES:
        raise ValueError(f"must be at most {limits.ID_BYTES} bytes long in UTF-8")
    return text


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _web_address(text: str) -> str:
    try:
        parts = urlsplit(text)
        readable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        readable = False
    if not readable:
        raise ValueError("must be an http or https URL")
    return text


def _web_address_or_empty(text: str) -> str:
    return _web_address(text) if text else text


Id = Annotated[
    str,
    StringConstraints(min_length=1, max_length=limits.ID_LENGTH, pattern=NO_NUL),
    AfterValidator(_fits_an_index),
]
"""An opaque id. Any characters but NUL; not empty."""

Text = Annotated[str, StringConstraints(max_length=limits.TEXT_LENGTH, pattern=NO_NUL)]
LongText = Annotated[str, StringConstraints(max_length=limits.LONG_TEXT_LENGTH, pattern=NO_NUL)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=limits.WORKSPACE_NAME_LENGTH, pattern=NO_NUL)]
"""A workspace's or person's name where the reference bounds it: not empty when given."""
Email = Annotated[str, StringConstraints(min_length=1, max_length=limits.EMAIL_LENGTH, pattern=NO_NUL)]
"""Checks only length and characters. Modules that need a valid address check it with a library."""
OwnerEmail = Annotated[Email, Field(json_schema_extra={"format": "email"})]
"""One that is judged: the owner's of a workspace."""

# The JSON Schema's words for `_web_address`, so that clients that check beforehand come to the same verdict.
_USER = r"([^\s\x00-\x20\x7f-\xa0/?#@\[\]\\]*@)?"
_HEX = "[0-9A-Fa-f]{1,4}"
# IPv6 in full, with its start left out, or with its middle left out after at most three groups.
_IPV6 = rf"\[(({_HEX}:){{7}}{_HEX}|::({_HEX}(:{_HEX}){{0,6}})?|{_HEX}(:{_HEX}){{0,2}}::({_HEX}(:{_HEX}){{0,3}})?)\]"
_HOST = rf"({_IPV6}|[^\s\x00-\x2c/\x3a-\x40\x5b-\x5e\x60\x7b-\xa0]+)"
_PORT = r"(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
_REST = r"([/?#][^\s\x00-\x20\x7f-\xa0]*)?"
_ADDRESS = f"[Hh][Tt][Tt][Pp][Ss]?://{_USER}{_HOST}{_PORT}{_REST}"
Url = Annotated[
    str,
    StringConstraints(max_length=limits.URL_LENGTH, pattern=rf"^{_ADDRESS}$"),
    AfterValidator(_web_address),
]
UrlOrEmpty = Annotated[
    str,
    StringConstraints(max_length=limits.URL_LENGTH, pattern=rf"^({_ADDRESS})?$"),
    AfterValidator(_web_address_or_empty),
]
"""A URL, or the empty string that takes a configured one away."""

AsWhole = BeforeValidator(_whole)
"""Makes an ``Annotated[int, ...]`` take ``10.0`` for 10. It must be the last item, or the schema loses the bounds."""
PageSize = Annotated[int, Field(ge=limits.PAGE_SIZE_MIN), AsWhole]
"""Rows of a page, at most. A wish without an upper bound: an answer has ``limits.PAGE_SIZE_MAX`` however many were
asked for."""
PageToken = Annotated[str, StringConstraints(max_length=limits.PAGE_TOKEN_LENGTH, pattern=NO_NUL)]
"""Where the page before ended; empty, as left out, for the first page."""
EpochSeconds = Annotated[int, Field(ge=0, le=limits.EPOCH_SECONDS_MAX), AsWhole]
EpochMs = Annotated[int, Field(ge=0, le=limits.EPOCH_MS_MAX), AsWhole]

Ids = Annotated[list[Id], Field(max_length=limits.BATCH_ITEMS)]
ReadIds = Annotated[list[Id], Field(max_length=limits.IDS_PER_READ)]

AccessRole = Literal["viewer", "editor"]
AccessType = Literal["public", "organizationPrivate", "restricted"]
Order = Literal["asc", "desc"]
JsonObject = dict[str, JsonValue]

DEFAULT_ACCESS_ROLE: AccessRole = "editor"
"""What an absent ``accessRole`` means."""


def wire_name(attribute: str) -> str:
    """What an attribute is called on the wire: ``user_id`` is ``userId``, and ``from_`` (a word of Python's) is
    ``from``.

    With an alias per field (``Field(alias="from")``), type checkers would accept only the alias.
    """
    return to_camel(attribute.removesuffix("_"))


def json_size(value: object) -> int:
    """Bytes of ``value`` as JSON."""
    try:
        return len(orjson.dumps(value))
    except orjson.JSONEncodeError:
        # Whole numbers beyond 64 bits: whether they are fit to be stored is not asked here.
        return len(json.dumps(value).encode())


class WireModel(BaseModel):
    """A JSON object of the contract."""

    model_config = ConfigDict(
        alias_generator=wire_name,
        validate_by_alias=True,
        validate_by_name=True,
        extra="allow",
        strict=True,
        frozen=True,
        # An error's text may end in a log; what it was about may be a secret.
        hide_input_in_errors=True,
    )

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """The model of a JSON object as it came (wire names only: ``user_id`` is an unknown field there).

        Raises ``pydantic.ValidationError``.
        """
        return cls.model_validate(value, by_alias=True, by_name=False)

    def to_wire(self) -> dict[str, object]:
        """The JSON object: wire names, unknown fields as they came, nothing that was not given."""
        return self.model_dump(by_alias=True, exclude_unset=True)

    def unknown_fields(self) -> dict[str, object]:
        """The undeclared fields, unchanged."""
        return dict(self.model_extra or {})


class Request(WireModel):
    """A request's ``data``, or an object within it: a declared field that is null counts as not given."""

    def model_post_init(self, _context: object, /) -> None:
        """Removes nulls, so that ``model_fields_set`` and ``to_wire`` contain only the given fields."""
        values = self.__dict__
        given = self.__pydantic_fields_set__
        for name in [name for name in given if values.get(name, given) is None]:
            given.discard(name)


class InOrganization(Request):
    """A request, or an object in one, about one organization."""

    organization_id: Id


class Described(Request):
    """Something that is kept with whatever fields came along: they are its metadata, and bounded."""

    @model_validator(mode="after")
    def _metadata_fits(self) -> Self:
        if self.model_extra and json_size(self.model_extra) > limits.METADATA_BYTES:
            raise ValueError(f"must have at most {limits.METADATA_BYTES} bytes of metadata as JSON")
        return self


RequestT = TypeVar("RequestT", bound=Request)


def at_most_one_of(request: Request, *names: str) -> None:
    """Raises ``ValueError`` (for a model validator) when more than one of the fields was given."""
    if len(request.model_fields_set.intersection(names)) > 1:
        raise ValueError(f"give either {_either(names)}, not both")


def at_least_one_of(request: Request, *names: str) -> None:
    """Raises ``ValueError`` (for a model validator) when none of the fields was given."""
    if request.model_fields_set.isdisjoint(names):
        raise ValueError(f"give {_either(names)}")


def not_both_schema(first: str, second: str) -> dict[str, JsonValue]:
    """The JSON Schema of ``at_most_one_of`` two fields, by wire name."""
    absent: JsonValue = [{"properties": {name: {"type": "null"}}} for name in (first, second)]
    return {"anyOf": absent}


def some_schema(*names: str) -> dict[str, JsonValue]:
    """The JSON Schema of ``at_least_one_of``, by wire name."""
    present: JsonValue = [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]
    return {"anyOf": present}


def _either(names: tuple[str, ...]) -> str:
    wire = [to_camel(name) for name in names]
    return " or ".join([", ".join(wire[:-1]), wire[-1]])


class NoParameters(Request):
    """The ``data`` of an operation that takes none. Fields are ignored, as everywhere."""


class ItemResult(WireModel):
    """The outcome of one item of a batch: the values of ``result.data``, and of ``error.details`` in a failure.

    ``code`` comes in failures only: ``already-exists``, ``not-found`` (final), ``internal`` (may pass).
    """

    success: bool
    message: str | None = None
    id: str | None = None
    code: str | None = None
    organization_user_group_id: str | None = None
    access_type: str | None = None


class UserReference(Request):
    """A user as other resources name one: ``actionUser``, ``from``, ``notifyUsers``."""

    user_id: Id
    name: Text | None = None
    email: Text | None = None


def wire_value(value: object) -> object:
    """``value`` with every model in it, at any depth of lists and mappings, as a JSON object."""
    if isinstance(value, WireModel):
        return value.to_wire()
    if isinstance(value, dict):
        return {key: wire_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [wire_value(inner) for inner in value]
    return value


def parse_request(model: type[RequestT], body: object) -> RequestT:
    """The request in a body of the form ``{"data": {...}}``.

    Raises ``InvalidArgument`` with a message that names the place, ``data.users[3].userId: field required``.
    """
    if not isinstance(body, dict):
        raise InvalidArgument('the body must be an object of the form {"data": {...}}')
    if "data" not in body:
        raise InvalidArgument("data: field required")
    data = body["data"]
    if not isinstance(data, dict):
        raise InvalidArgument("data: must be an object")
    refuse_unstorable(data)
    try:
        return model.from_wire(data)
    except ValidationError as error:
        raise InvalidArgument(first_error(error, data)) from error
