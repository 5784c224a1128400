"""The permission-provider call: its request and response.

Each question is parsed by hand, because page loads wait for the response, and because one malformed question must not
affect the others.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, NotRequired, TypeGuard

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from app.contract import limits
from app.contract.errors import InvalidArgument

ResourceType = Literal["organization", "folder", "document", "context"]
RESOURCE_TYPES: Final[frozenset[str]] = frozenset({"organization", "folder", "document", "context"})

_NO_CONTEXT: Mapping[str, str] = MappingProxyType({})


class ContextWire(TypedDict):
    """``resource.context``: one value per field name; a user must hold every one."""

    access: dict[str, str | int | float]


class ResourceWire(TypedDict):
    """``resource`` of a request. ``organizationId`` may be missing for an organization: then it equals ``id``."""

    type: ResourceType
    id: str
    organizationId: NotRequired[str]
    source: NotRequired[str]
    parentFolderId: NotRequired[str]
    context: NotRequired[ContextWire]


class RequestWire(TypedDict):
    """One entry of ``data.requests``."""

    userId: str
    resource: ResourceWire


class ResultWire(TypedDict):
    """One entry of the answer's ``data``. ``expiresAt`` is epoch milliseconds; a deny has neither it nor a role.

    ``error``: why a question is malformed.
    """

    userId: str
    resourceId: str
    type: str
    organizationId: str
    hasAccess: bool
    accessRole: NotRequired[Literal["viewer", "editor"]]
    expiresAt: NotRequired[int]
    error: NotRequired[str]


class RequestEntry(NamedTuple):
    """May this user reach this resource? For a ``context``, ``resource_id`` is the document that it belongs to.

    ``context`` maps each field to its value as text (see ``value_text``); it is empty when nothing was asked for,
    which is for the decision to deny. ``parent_folder_id`` is a hint from a browser and never a reason to allow
    by itself.
    """

    user_id: str
    type: ResourceType
    resource_id: str
    organization_id: str
    context: Mapping[str, str] = _NO_CONTEXT
    source: str | None = None
    parent_folder_id: str | None = None


class EntryError(NamedTuple):
    """A question that cannot be understood, with those of its ids that could be read (empty text for the
    others)."""

    user_id: str
    type: str
    resource_id: str
    organization_id: str
    error: str


def requests_of(body: object) -> list[object]:
    """The entries of ``data.requests`` in a decoded body, each still to be read with ``parse_entry``.

    Raises ``InvalidArgument`` when the envelope itself cannot be read.
    """
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, dict):
        raise InvalidArgument('the body must be an object of the form {"data": {"requests": [...]}}')
    requests = data.get("requests")
    if not isinstance(requests, list):
        raise InvalidArgument(
            "data.requests: field required" if requests is None else "data.requests: must be an array"
        )
    return requests


def parse_entry(item: object) -> RequestEntry | EntryError:
    """The question in one entry of ``data.requests``. Never raises; fields that nobody declared are ignored."""
    if type(item) is not dict:
        return EntryError("", "", "", "", "the request must be an object")
    resource = item.get("resource")
    if type(resource) is not dict:
        return EntryError(_echo(item.get("userId")), "", "", "", "resource: must be an object")
    user_id = item.get("userId")
    kind = resource.get("type")
    resource_id = resource.get("id")
    organization_id = resource.get("organizationId")
    if organization_id is None and kind == "organization":
        organization_id = resource_id
    if not (_is_id(user_id) and _is_id(resource_id) and _is_id(organization_id)):
        return _refuse(user_id, kind, resource_id, organization_id, _bad_id(user_id, resource_id, organization_id))
    if type(kind) is not str or kind not in RESOURCE_TYPES:
        return _refuse(user_id, kind, resource_id, organization_id, f"resource.type: must be one of {_TYPES_TEXT}")
    if kind == "organization" and organization_id != resource_id:
        problem = "resource.organizationId: must equal resource.id when type is organization"
        return _refuse(user_id, kind, resource_id, organization_id, problem)
    context = _NO_CONTEXT
    if kind == "context":
        read = _context_of(resource.get("context"))
        if isinstance(read, str):
            return _refuse(user_id, kind, resource_id, organization_id, read)
        context = read
    # Hints that make no sense are no hints; they are not worth an error.
    parent = resource.get("parentFolderId")
    source = resource.get("source")
    return RequestEntry(
        user_id,
        kind,  # type: ignore[arg-type]  # a member of RESOURCE_TYPES
        resource_id,
        organization_id,
        context,
        source if _is_id(source) else None,
        parent if _is_id(parent) else None,
    )


def value_text(value: object) -> str | None:
    """The text by which a context value is compared, None for what is neither text nor a number.

    Text is itself. A number is written as briefly as it can be without losing any of it: whole ones without a
    fraction (2 and 2.0 are ``2``, -0.0 is ``0``), others as Python writes them (``1.5``, ``1e-07``, ``1e+300``). True
    and false are neither.
    """
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value) if -_EXACT <= value <= _EXACT else None
    if type(value) is float and math.isfinite(value):
        return str(int(value)) if value.is_integer() and -_EXACT <= value <= _EXACT else repr(value)
    return None


_TYPES_TEXT: Final = "organization, folder, document, context"
_EXACT: Final = 2**63
"""Whole numbers beyond 64 bits do not travel through JSON readers unharmed."""


def _is_id(value: object) -> TypeGuard[str]:
    return (
        type(value) is str
        and 0 < len(value) <= limits.ID_LENGTH
        and "\0" not in value
        and (value.isascii() or _is_text(value, limits.ID_BYTES))
    )


def _is_text(value: str, max_bytes: int) -> bool:
    try:
        return len(value.encode()) <= max_bytes
    except UnicodeEncodeError:
        return False


def _context_of(context: object) -> Mapping[str, str] | str:
    """The requested context fields and values, or an error message."""
    if context is None:
        return _NO_CONTEXT
    if type(context) is not dict:
        return "resource.context: must be an object"
    access = context.get("access")
    if access is None:
        return _NO_CONTEXT
    if type(access) is not dict:
        return "resource.context.access: must be an object"
    if len(access) > limits.CONTEXT_ITEMS:
        return f"resource.context.access: must hold at most {limits.CONTEXT_ITEMS} items, not {len(access)}"
    values: dict[str, str] = {}
    for field, value in access.items():
        text = value_text(value)
        if text is None:
            return "resource.context.access: each value must be a string, or a number within 64 bits"
        if not (_is_id(field) and _is_value(text)):
            return "resource.context.access: holds text that is empty, too long or not valid"
        values[field] = text
    return values


def _is_value(text: str) -> bool:
    return text == "" or _is_id(text)


def _bad_id(user_id: object, resource_id: object, organization_id: object) -> str:
    for name, value in (
        ("userId", user_id),
        ("resource.id", resource_id),
        ("resource.organizationId", organization_id),
    ):
        if value is None:
            return f"{name}: field required"
        if type(value) is not str:
            return f"{name}: must be a string"
        if not value:
            return f"{name}: must not be empty"
        if not _is_id(value):
            return f"{name}: must be valid text without NUL of at most {limits.ID_BYTES} bytes"
    return ""


def _refuse(user_id: object, kind: object, resource_id: object, organization_id: object, problem: str) -> EntryError:
    return EntryError(_echo(user_id), _echo(kind), _echo(resource_id), _echo(organization_id), problem)


def _echo(value: object) -> str:
    """The value, if it can be returned in the response; otherwise an empty string."""
    return value if type(value) is str and len(value) <= limits.ID_LENGTH and _is_text(value, limits.ID_BYTES) else ""
