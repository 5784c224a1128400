"""The endpoint of SCIM, ``/scim/NAME/v2``: tokens, limits, strict JSON, and the transaction of a request.

The rules: ``app/service/scim/README.md``.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson
import structlog
from flask import Blueprint, Flask, Response, request
from scim2_models import Error, InvalidSyntaxException, InvalidValueException, Resource, ResourceType, SCIMException
from scim2_models import ResponseParameters as Parameters
from scim2_server.requests import ScimRequest
from scim2_server.responses import SCIM_MEDIA_TYPE, ScimResponse
from scim2_server.routing import Operation
from scim2_server.service import ScimService
from werkzeug.wrappers import Response as BaseResponse

from app.access.problem_list import ProblemList
from app.access.refresh.objects import apply_objects
from app.access.refresh.refresh import Refresh
from app.access.refresh.sources import configure_source, configured_source
from app.contract.errors import InvalidArgument
from app.directory.configured import scim_rules
from app.directory.settings import DirectorySettings, ScimSourceSettings
from app.foundation.clock import epoch_ms
from app.foundation.database.engine import reading
from app.http.body import check_type, parse_body
from app.http.errors import answer_error
from app.http.strict_json import MAX_INTEGER
from app.http.tokens import token_fingerprint
from app.service.push.blueprint import PushParts
from app.service.scim.handler import RequestHandler, check_expressions
from app.service.scim.protocol import new_service
from app.service.scim.records import RecordMaker
from app.service.scim.storage import StoredResources, keeps_members

MAX_BODY_BYTES = 10 * 1024 * 1024
"""The maximum size of a request, such as that of a group with its members."""

_log = structlog.stdlib.get_logger(__name__)

_WRITES = frozenset({Operation.create, Operation.replace, Operation.patch, Operation.delete})


@dataclass(frozen=True, slots=True)
class ScimParts:
    """The dependencies of the endpoint."""

    push: PushParts
    makers: Mapping[str, RecordMaker]
    """Source → the maker of its records."""
    new_id: Callable[[], str]
    """Creates the id of a resource."""
    public_url: str
    """The URL at which browsers reach the service. Empty: where it listens."""


def scim_parts(
    push: PushParts, settings: DirectorySettings, new_id: Callable[[], str], *, public_url: str
) -> ScimParts:
    sources = [source for source in settings.sources if isinstance(source, ScimSourceSettings)]
    makers = {source.source_name: RecordMaker(scim_rules(source)) for source in sources}
    return ScimParts(push, makers, new_id, public_url)


class _Resources(StoredResources):
    """The resources of a request, in one transaction for each operation. A write holds the lock of refreshes."""

    def __init__(self, parts: ScimParts, source: str, service: ScimService, *, writes: bool) -> None:
        super().__init__(service.provider, 0, new_id=parts.new_id, clock=parts.push.clock)
        self._parts = parts
        self._source = source
        self._writes = writes
        self.revision = 0

    def get(
        self, resource_type: ResourceType, resource_id: str, *, response_parameters: Parameters[Any] | None = None
    ) -> Resource[Any]:
        # Without parameters, the handler calls this for a resource that it changes, which needs no members.
        with_members = response_parameters is not None and keeps_members(response_parameters)
        return self.load(resource_type, resource_id, with_members=with_members)

    @contextmanager
    def operation(self) -> Iterator[None]:
        push = self._parts.push
        if not self._writes:
            with reading(push.engine) as self._connection:
                self.source_id = configured_source(self.connection, self._source) or 0
                yield
            return
        failure: SCIMException | None = None
        with Refresh(push.engine, clock=push.clock, problems=ProblemList(), covered=None) as refresh:
            # A refused request keeps the connection with its temporary tables.
            try:
                with refresh.changing() as connection:
                    self._connection = connection
                    source_id = configured_source(connection, self._source)
                    self.source_id = source_id or configure_source(connection, self._source, push.targets.configured)
                    yield
                    self._apply(refresh)
            except SCIMException as error:
                failure = error
        if failure is not None:
            raise failure

    def _apply(self, refresh: Refresh) -> None:
        """Applies the changes of the request to the access model."""
        push = self._parts.push
        objects = self._parts.makers[self._source].pushed_objects(self)
        if objects:
            self.revision = apply_objects(
                refresh,
                self.connection,
                self.source_id,
                objects,
                by=token_fingerprint(request),
                now_ms=epoch_ms(push.clock()),
                audit_hook=push.audit.push_audit_hook(self._source, f"{request.method} {request.path}"),
            )


def install_scim(app: Flask, parts: ScimParts) -> None:
    """Adds ``/scim/NAME/v2`` to the app. Each call needs a token of its source."""
    blueprint = Blueprint("scim", __name__)
    service = new_service()
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]

    @blueprint.route("/scim/<name>/v2", defaults={"path": ""}, methods=methods)
    @blueprint.route("/scim/<name>/v2/<path:path>", methods=methods)
    def scim(name: str, path: str) -> Response:
        parts.push.target(name, is_scim=True)
        return _response(_handle(parts, service, name, path))

    @blueprint.errorhandler(Exception)
    def answer_scim_error(error: Exception) -> BaseResponse:
        if isinstance(error, SCIMException):
            return _response(service.error_response(error))
        answer = answer_error(error)
        detail = orjson.loads(answer.get_data())["error"]["message"]
        scim_type = InvalidSyntaxException.scim_type if answer.status_code == HTTPStatus.BAD_REQUEST else None
        body = Error(status=answer.status_code, scim_type=scim_type, detail=detail).model_dump()
        answer.set_data(orjson.dumps(body))
        answer.content_type = SCIM_MEDIA_TYPE
        return answer

    app.register_blueprint(blueprint)


def _handle(parts: ScimParts, service: ScimService, name: str, path: str) -> ScimResponse:
    # A proxy for TLS may not forward the scheme.
    is_public = request.scheme == "http" and parts.public_url.partition("://")[2] == request.host.lower()
    root = parts.public_url if is_public else request.url_root.rstrip("/")
    scim_request = ScimRequest(
        request.method, f"{root}/scim/{name}/v2", f"/{path}", _checked_query(), list(request.headers.items())
    )
    if "\0" in path:
        raise InvalidValueException(detail="the path contains a NUL character")
    with service.provider:
        operation = service.match(scim_request).operation
    if request.method in ("POST", "PUT", "PATCH"):
        scim_request.body = _body()
    resources = _Resources(parts, name, service, writes=operation in _WRITES)
    response = RequestHandler(service, resources).handle(scim_request)
    if operation in _WRITES:
        parts.push.follow(resources.revision)
        _log.info(
            "scim",
            source=name,
            operation=operation.value,
            resources=len(resources.changes),
            revision=resources.revision,
        )
    return response


def _checked_query() -> Mapping[str, str]:
    """The query parameters. Raises ``InvalidValueException``."""
    for name, value in request.args.items(multi=True):
        if "\0" in value or "\ufffd" in value:
            raise InvalidValueException(detail=f"{name}: contains invalid characters")
        check_expressions([value])
        if name in ("startIndex", "count") and value.isdecimal() and (len(value) > 19 or int(value) > MAX_INTEGER):
            raise InvalidValueException(detail=f"{name}: must be a whole number of at most 63 bits")
    return request.args.to_dict()


def _body() -> bytes:
    """The body as JSON that every parser reads in the same way. Raises ``InvalidArgument``."""
    check_type(request, (SCIM_MEDIA_TYPE, "application/json"))
    value = parse_body(request.stream.read, request.content_length, max_bytes=MAX_BODY_BYTES)
    if not isinstance(value, dict):
        raise InvalidArgument("the body must be a JSON object")
    return orjson.dumps(value)


def _response(response: ScimResponse) -> Response:
    body = b"" if response.body is None else orjson.dumps(response.body)
    return Response(body, int(response.status), response.headers)
