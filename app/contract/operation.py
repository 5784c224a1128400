"""An operation of the API: a row of the table in ``operations``, with everything needed to call or serve it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from app.contract.base import Request, parse_request
from app.contract.envelope import ABSENT, Answer, ResultT, TokenField, bare, success
from app.contract.errors import Status
from app.contract.validation import first_error

RequestT = TypeVar("RequestT", bound=Request)


class AuthLevel(StrEnum):
    """Where a request carries its credentials."""

    NONE = "none"
    """Public."""
    BODY = "body"
    """``apiKey`` and ``authToken`` inside ``data``."""
    K = "api-key"
    """API key and its auth token in headers."""
    W = "workspace"
    """Workspace id and its auth token in headers."""


class Tier(StrEnum):
    """Whether every backend has the operation."""

    CORE = "core"
    """One of the reference's 26."""
    EXTENDED = "extended"
    """A deployment may lack it, and then answers 404."""


class Verb(StrEnum):
    """What an operation does to the things that it names."""

    READ = "read"
    ADD = "add"
    UPDATE = "update"
    """Everything that changes what has to be there."""
    DELETE = "delete"


_VERBS = {"add": Verb.ADD, "create": Verb.ADD, "delete": Verb.DELETE, "remove": Verb.DELETE}


class UnreadableAnswerError(ValueError):
    """A response with a success code and a body that violates the contract. The outcome is unknown."""


_OF_EVERY_OPERATION = (Status.INVALID_ARGUMENT, Status.RESOURCE_EXHAUSTED, Status.INTERNAL, Status.UNAVAILABLE)
_OF_CREDENTIALS = (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED)


@dataclass(frozen=True, eq=False)
class Operation(Generic[RequestT, ResultT]):
    """One operation of the API. Compared by identity: there is one object per operation."""

    name: str
    """Unique, in snake_case; also the name of the backend's handler."""
    title: str
    """As the reference calls it."""
    path: str
    request: type[RequestT]
    """The model of the body's ``data``."""
    result: TypeAdapter[ResultT]
    """The type of ``result.data`` (of ``result`` itself where ``bare_result``)."""
    summary: str
    auth: AuthLevel = AuthLevel.K
    tier: Tier = Tier.CORE
    has_twin: bool = True
    """Whether the same path under the other version means the same thing."""
    errors: tuple[Status, ...] = ()
    """Statuses that this operation may return, in addition to those of all operations."""
    is_read: bool = False
    """Changes nothing, so it may be repeated at will."""
    page_token_field: TokenField | None = None
    """The field of ``result`` with the token of the next page; None if there are no pages."""
    items_field: str | None = None
    """The field of ``data`` that holds the items of a batch, by its wire name."""
    max_items: int | None = None
    """How many items ``items_field`` may hold."""
    bare_result: bool = False
    has_data: bool = True
    """False where the answer is ``status`` and ``message`` alone."""
    is_repeatable: bool = True
    """False where a second call makes a second thing: it is never repeated unless it is certain that nothing happened.
    """
    is_ordered: bool = False
    """Whether an item of one call may need an item of an earlier one, as a folder needs the one above it."""
    counterpart: str | None = None
    """Of an add the update that it becomes when the thing is there already, of an update the add that it becomes when
    there is nothing to update, by name; None: what is there needs no update, or cannot be added."""
    roles_under_twin: bool = False
    """Whether roles and access types are taken under the other version's path alone."""
    probe: Mapping[str, object] | None = None
    """What a request that changes nothing carries beside the organization and no items, to see whether a deployment
    has the operation."""
    probed_by: str | None = None
    """Name of the operation that is probed instead, to find out whether a deployment has this one: a delete cannot be
    probed without an effect, and deployments have both or neither."""

    @property
    def version(self) -> str:
        return self.path.split("/", 2)[1]

    @property
    def verb(self) -> Verb:
        return Verb.READ if self.is_read else _VERBS.get(self.name.split("_", 1)[0], Verb.UPDATE)

    @property
    def twin_path(self) -> str | None:
        """The path of the same operation under the other version, if both are equivalent."""
        if not self.has_twin:
            return None
        other = {"v1": "v2", "v2": "v1"}[self.version]
        return f"/{other}/{self.path.split('/', 2)[2]}"

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that serves this operation, its own first."""
        twin = self.twin_path
        return (self.path,) if twin is None else (self.path, twin)

    @property
    def all_errors(self) -> tuple[Status, ...]:
        """Every status that it may answer, in the order of ``Status``."""
        credentials = _OF_CREDENTIALS if self.auth in {AuthLevel.K, AuthLevel.W} else ()
        # What an operation names has to exist first.
        named = (Status.NOT_FOUND,) if "organization_id" in self.request.model_fields else ()
        possible = {*self.errors, *credentials, *named, *_OF_EVERY_OPERATION}
        return tuple(status for status in Status if status in possible)

    def parse(self, body: object) -> RequestT:
        """The request in a decoded JSON body. Raises ``InvalidArgument`` naming the field."""
        return parse_request(self.request, body)

    def empty_request(self, organization_id: str) -> RequestT:
        """A request about the organization that changes nothing, to see whether a deployment has the operation.

        Meant for operations on items of one organization that are not ``probed_by`` another one.
        """
        data: dict[str, object] = {"organizationId": organization_id, **(self.probe or {})}
        if self.items_field is not None:
            data[self.items_field] = []
        return self.request.from_wire(data)

    def body(self, request: RequestT) -> dict[str, object]:
        """The JSON body that carries ``request``."""
        return {"data": request.to_wire()}

    def respond(self, message: str, data: object = None, *, next_page_token: str | None = None) -> dict[str, object]:
        """The body of a success: ``data`` (models or plain JSON) in the operation's envelope."""
        if self.bare_result:
            return bare(data)
        return success(
            message,
            data if self.has_data else ABSENT,
            next_page_token=next_page_token,
            token_field=self.page_token_field or "nextPageToken",
        )

    def read(self, body: object) -> Answer[ResultT]:
        """Parses the decoded body of a response with a success code.

        Raises ``UnreadableAnswerError`` when it is not what the contract promises.
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
        # Deployments use different names; both are accepted if the operation has pages.
        if self.page_token_field is None:
            return None
        for field in (self.page_token_field, "nextPageToken", "pageToken"):
            token = result.get(field)
            if isinstance(token, str) and token:
                return token
        return None


AnyOperation = Operation[Any, Any]
"""An operation whose types do not matter to the reader."""
