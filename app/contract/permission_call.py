"""The permission-provider call: its request and response.

Each question is parsed by hand instead of by a model: page loads wait for the response, and a malformed question must
not affect the others.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, NotRequired, TypeGuard, get_args

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from app.contract import limits
from app.contract.errors import InvalidArgument
from app.foundation.text import value_text

ResourceType = Literal["organization", "folder", "document", "context"]
RESOURCE_TYPES: Final[frozenset[str]] = frozenset(get_args(ResourceType))
_TYPES_TEXT: Final = ", ".join(get_args(ResourceType))

_NO_CONTEXT: Mapping[str, str] = MappingProxyType({})


class ContextWire(TypedDict):
    """``resource.context``: one value for each field. A user needs a grant for every field."""

    access: dict[str, str | int | float]


class ResourceWire(TypedDict):
    """``resource`` of a request. For an organization, ``organizationId`` may be absent: it equals ``id``."""

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
    """One entry of ``data`` in the response. ``expiresAt`` is epoch milliseconds. A deny has neither a role nor an end.

    ``error`` is the problem of a malformed question.
    """

    userId: str
    resourceId: str
    type: str
    organizationId: str
    hasAccess: bool
    accessRole: NotRequired[Literal["viewer", "editor"]]
    expiresAt: NotRequired[int]
    error: NotRequired[str]


class Question(NamedTuple):
    """The question whether a user has access to a resource. For a ``context``, ``resource_id`` is its document.

    ``context`` maps each requested field to its value as text (see ``value_text``). ``parent_folder_id`` is a hint from
    a browser.
    """

    user_id: str
    type: ResourceType
    resource_id: str
    organization_id: str
    context: Mapping[str, str] = _NO_CONTEXT
    source: str | None = None
    parent_folder_id: str | None = None


class MalformedQuestion(NamedTuple):
    """A malformed question. Ids that could not be read are empty."""

    user_id: str
    type: str
    resource_id: str
    organization_id: str
    error: str

    @property
    def field(self) -> str:
        """The path of the malformed field, such as ``resource.id``."""
        return self.error.partition(": ")[0]


def requests_of(body: object) -> list[object]:
    """The entries of ``data.requests`` in a decoded body, for ``parse_question``. Raises ``InvalidArgument``."""
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, dict):
        raise InvalidArgument('the body must be an object of the form {"data": {"requests": [...]}}')
    requests = data.get("requests")
    if not isinstance(requests, list):
        raise InvalidArgument(
            "data.requests: field required" if requests is None else "data.requests: must be an array"
        )
    return requests


def parse_question(item: object) -> Question | MalformedQuestion:
    """Parses one entry of ``data.requests`` into a question. Ignores undeclared fields and raises nothing."""
    if type(item) is not dict:
        return MalformedQuestion("", "", "", "", "the request must be an object")
    resource = item.get("resource")
    if type(resource) is not dict:
        return MalformedQuestion(_echo(item.get("userId")), "", "", "", "resource: must be an object")
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
        parsed = _context_of(resource.get("context"))
        if isinstance(parsed, str):
            return _refuse(user_id, kind, resource_id, organization_id, parsed)
        context = parsed
    # Invalid hints are ignored.
    parent = resource.get("parentFolderId")
    source = resource.get("source")
    return Question(
        user_id,
        kind,  # type: ignore[arg-type]  # a member of RESOURCE_TYPES
        resource_id,
        organization_id,
        context,
        source if _is_id(source) else None,
        parent if _is_id(parent) else None,
    )


def _is_id(value: object) -> TypeGuard[str]:
    return (
        type(value) is str
        and 0 < len(value) <= limits.ID_LENGTH
        and "\0" not in value
        and (value.isascii() or _is_text(value))
    )


def _is_text(value: str) -> bool:
    try:
        return len(value.encode()) <= limits.ID_BYTES
    except UnicodeEncodeError:
        return False


def _context_of(context: object) -> Mapping[str, str] | str:
    """The requested fields and their values as text, or an error message."""
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
        if not (_is_id(field) and (text == "" or _is_id(text))):
            return "resource.context.access: holds text that is empty, too long or not valid"
        values[field] = text
    return values


def id_problem(value: object) -> str:
    """The problem of an id, as the predicate of a sentence. Empty if it is valid."""
    if value is None:
        return "field required"
    if type(value) is not str:
        return "must be a string"
    if not value:
        return "must not be empty"
    return "" if _is_id(value) else f"must be valid text without NUL of at most {limits.ID_BYTES} bytes"


def _bad_id(user_id: object, resource_id: object, organization_id: object) -> str:
    """The path of the first invalid id, and its problem."""
    ids = {"userId": user_id, "resource.id": resource_id, "resource.organizationId": organization_id}
    return next(f"{name}: {problem}" for name, value in ids.items() if (problem := id_problem(value)))


def _refuse(
    user_id: object, kind: object, resource_id: object, organization_id: object, problem: str
) -> MalformedQuestion:
    return MalformedQuestion(_echo(user_id), _echo(kind), _echo(resource_id), _echo(organization_id), problem)


def _echo(value: object) -> str:
    """The value if it can be returned in the response, otherwise an empty string."""
    return value if type(value) is str and len(value) <= limits.ID_LENGTH and _is_text(value) else ""
