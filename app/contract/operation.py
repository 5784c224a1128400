"""An operation of the API: a row of the table in ``operations``, with everything needed to call or serve it.

A success is ``{"result": {"status": "success", "message": ..., "data": ...}}``, with the token of the next page beside
``data``. Rows of the table state exceptions: the token may be named ``pageToken``, Search Judgments has its fields in
``result`` itself, and some operations have no ``data``. Failures are in ``errors``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from app.contract import limits
from app.contract.base import ItemResult, Request, wire_value
from app.contract.errors import Status
from app.contract.validation import first_error, parse_request

RequestT = TypeVar("RequestT", bound=Request)
ResultT = TypeVar("ResultT")

TokenField = Literal["nextPageToken", "pageToken"]


class AuthLevel(StrEnum):
    """Where a request has its credentials."""

    NONE = "none"
    """Public."""
    BODY = "body"
    """``apiKey`` and ``authToken`` inside ``data``."""
    K = "api-key"
    """API key and its auth token in headers."""
    W = "workspace"
    """Workspace id and its auth token in headers."""


DEFAULT_PREFIX = "x-service-"
"""The prefix of the reference. Vendors of this API use different ones, so the prefix is a setting."""


@dataclass(frozen=True, slots=True)
class HeaderNames:
    """The four credential headers with one prefix, in lower case."""

    prefix: str = DEFAULT_PREFIX

    @property
    def api_key(self) -> str:
        return f"{self.prefix}api-key"

    @property
    def auth_token(self) -> str:
        return f"{self.prefix}auth-token"

    @property
    def workspace_id(self) -> str:
        return f"{self.prefix}workspace-id"

    @property
    def workspace_auth_token(self) -> str:
        return f"{self.prefix}workspace-auth-token"


class Tier(StrEnum):
    """Whether every backend has the operation."""

    CORE = "core"
    """One of the reference's 26."""
    EXTENDED = "extended"
    """A deployment may lack it, and then returns 404."""


class Verb(StrEnum):
    """The effect of an operation on its items."""

    READ = "read"
    ADD = "add"
    UPDATE = "update"
    """Any change of existing items."""
    DELETE = "delete"


_VERBS = {"add": Verb.ADD, "create": Verb.ADD, "delete": Verb.DELETE, "remove": Verb.DELETE}
_IN_ONE_VERSION = ("auth/", "workspace/", "organizations/get")
"""Paths below the version that exist in one version, or differ between the two."""
_OF_EVERY_OPERATION = (Status.INVALID_ARGUMENT, Status.RESOURCE_EXHAUSTED, Status.INTERNAL, Status.UNAVAILABLE)
_OF_CREDENTIALS = (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED)


@dataclass(frozen=True, slots=True)
class Answer(Generic[ResultT]):
    """A parsed success. ``next_page_token`` is None on the last page."""

    data: ResultT
    message: str = ""
    next_page_token: str | None = None
    items: Mapping[str, ItemResult] | None = None
    """Outcomes of single items in a response whose operation does not promise them."""
    maybe_applied_earlier: bool = False
    """Whether an earlier try had an unknown outcome. It may have processed items that this response rejects."""


class UnreadableAnswerError(ValueError):
    """A response with a success code and a body that violates the contract. The outcome is unknown."""


@dataclass(frozen=True, eq=False)
class Operation(Generic[RequestT, ResultT]):
    """One operation of the API. Compared by identity: there is one object per operation."""

    name: str
    """Unique, in snake_case. The backend's handler has the same name."""
    title: str
    """The name in the reference."""
    path: str
    request: type[RequestT]
    """The model of the body's ``data``."""
    result: TypeAdapter[ResultT]
    """The type of ``result.data``, or with ``bare_result`` of ``result`` itself."""
    summary: str
    auth: AuthLevel = AuthLevel.K
    tier: Tier = Tier.CORE
    errors: tuple[Status, ...] = ()
    """Statuses of this operation in particular. NOT_FOUND: it may refer to an item, and not only to the path."""
    is_read: bool = False
    """Changes nothing, so it may be repeated."""
    page_token_field: TokenField | None = None
    """The field of ``result`` with the token of the next page. None if there are no pages."""
    items_field: str | None = None
    """The wire name of the field of ``data`` with the items of a batch."""
    max_items: int = limits.BATCH_ITEMS
    """The maximum number of items in ``items_field``."""
    bare_result: bool = False
    """Whether the fields of the result are in ``result`` itself, without status and message."""
    has_data: bool = True
    """False if the response contains only ``status`` and ``message``."""
    is_repeatable: bool = True
    """False if a second call creates a second item. It is repeated only if the first call certainly had no effect."""
    is_ordered: bool = False
    """Whether an item may depend on an item of an earlier call, as a folder depends on its parent."""
    counterpart: str | None = None
    """The name of the update to send instead of an add if the item exists, or of the add to send instead of an update
    if it does not."""
    roles_in_other_version: bool = False
    """Whether only the path in the other version of the API accepts roles and access types."""
    probe: Mapping[str, object] | None = None
    """Further fields of ``empty_request``."""
    probed_by: str | None = None
    """The name of the operation to probe instead of this one. A delete cannot be probed without an effect, and
    deployments have both operations or neither."""

    @property
    def verb(self) -> Verb:
        return Verb.READ if self.is_read else _VERBS.get(self.name.split("_", 1)[0], Verb.UPDATE)

    @property
    def other_version_path(self) -> str | None:
        """The equivalent path in the other version of the API. None if there is none."""
        _, version, rest = self.path.split("/", 2)
        if rest.startswith(_IN_ONE_VERSION):
            return None
        return f"/{'v2' if version == 'v1' else 'v1'}/{rest}"

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path of this operation, its own first."""
        other = self.other_version_path
        return (self.path,) if other is None else (self.path, other)

    @property
    def all_errors(self) -> tuple[Status, ...]:
        """Every status that it may return, in the order of ``Status``."""
        possible = {*self.errors, *_OF_EVERY_OPERATION}
        if self.auth in {AuthLevel.K, AuthLevel.W}:
            possible.update(_OF_CREDENTIALS)
        if "organization_id" in self.request.model_fields:
            possible.add(Status.NOT_FOUND)
        return tuple(status for status in Status if status in possible)

    def parse(self, body: object) -> RequestT:
        """Parses a decoded JSON body. Raises ``InvalidArgument`` with the name of the field."""
        return parse_request(self.request, body)

    def empty_request(self, organization_id: str) -> RequestT:
        """A request that changes nothing. It probes whether a deployment has the operation.

        For operations on items of one organization, unless they are ``probed_by`` another operation.
        """
        data: dict[str, object] = {"organizationId": organization_id, **(self.probe or {})}
        if self.items_field is not None:
            data[self.items_field] = []
        return self.request.from_wire(data)

    def body(self, request: RequestT) -> dict[str, object]:
        """The JSON body of a request."""
        return {"data": request.to_wire()}

    def respond(self, message: str, data: object = None, *, next_page_token: str | None = None) -> dict[str, object]:
        """The body of a success. ``data`` consists of models and plain JSON."""
        if self.bare_result:
            return {"result": wire_value(data)}
        result: dict[str, object] = {"status": "success", "message": message}
        if self.has_data:
            result["data"] = wire_value(data)
        if next_page_token is not None:
            result[self.page_token_field or "nextPageToken"] = next_page_token
        return {"result": result}

    def read(self, body: object) -> Answer[ResultT]:
        """Parses the decoded body of a response with a success code.

        Raises ``UnreadableAnswerError`` if it violates the contract.
        """
        if not isinstance(body, Mapping):
            raise UnreadableAnswerError("the response is not a JSON object")
        result = body.get("result")
        if not isinstance(result, Mapping):
            raise UnreadableAnswerError("the response has no result object")
        value = result if self.bare_result else result.get("data")
        if not self.has_data:
            value = None
        try:
            data = self.result.validate_python(value, by_alias=True, by_name=False)
        except ValidationError as error:
            raise UnreadableAnswerError(first_error(error, value, root="result.data")) from error
        message = result.get("message")
        return Answer(data, message if isinstance(message, str) else "", self._page_token(result))

    def _page_token(self, result: Mapping[object, object]) -> str | None:
        if self.page_token_field is None:
            return None
        # Deployments use different names.
        for field in (self.page_token_field, "nextPageToken", "pageToken"):
            token = result.get(field)
            if isinstance(token, str) and token:
                return token
        return None


AnyOperation = Operation[Any, Any]
"""An operation of any types."""
