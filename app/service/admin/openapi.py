"""The service's OpenAPI 3.1 document at ``/openapi.json``, generated from the models of its requests and responses."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

from flask import Blueprint, Response
from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, with_config
from typing_extensions import TypedDict

from app import __version__
from app.contract.permission_call import RequestWire, ResultWire
from app.http.json import json_response
from app.service.admin.listing_wire import (
    TIME_SCHEMA,
    ListResourcesRequest,
    ListUsersRequest,
    ResourcesPageWire,
    UsersPageWire,
)
from app.service.admin.resync import DecisionRequest, ResyncRequest
from app.service.admin.wire import AccessChanges, Changes, NewRun, RunWire
from app.service.provider.settings import (
    EXPLAIN_PATH,
    LIST_RESOURCES_PATH,
    LIST_USERS_PATH,
    MIN_REVISION_HEADER,
    ProviderSettings,
)
from app.service.push.wire import LINES_TYPES, PushAnswer, PushWire, SourceStateWire, UploadAnswer
from app.sync.ledger.items import ITEM_KINDS, ITEM_STATUSES

Json = dict[str, JsonValue]
_REF = "#/components/schemas/{model}"


class _Answer(TypedDict):
    success: Literal[True]
    statusCode: Literal[200]
    message: str
    signature: NotRequired[Annotated[str, Field(description="The signature of `data`, in a response to a browser.")]]


class Answers(_Answer):
    """The response to a permission call."""

    data: list[ResultWire]


@with_config(ConfigDict(extra="forbid"))
class OriginWire(TypedDict):
    """A record of a source."""

    source: Annotated[str, Field(description="The source's name.")]
    retained: Annotated[bool, Field(description="Whether the source is no longer configured.")]
    place: Annotated[str, Field(description="The record's place in the source when it last changed.")]
    set: Annotated[str | None, Field(description="The set of the object that the record was made from.")]
    id: Annotated[str | None, Field(description="The object's id; null if it is too long to be stored.")]
    rule: Annotated[int | str | None, Field(description="The rule that made the record, from 1.")]
    gives: Annotated[list[str], Field(description="The fields whose effective value comes from this record.")]
    alias: Annotated[
        str | None,
        Field(description="The alias by which it disables the user, if others have it or the user no longer has it."),
    ]


class ExplainedRecord(TypedDict):
    """An effective record with its fields and its origins. Times are epoch milliseconds."""

    kind: str
    origins: Annotated[list[OriginWire], Field(description="The records of the sources that contribute to it.")]


class ExplanationWire(ResultWire):
    """A result with its reason. The result of an invalid request has no reason."""

    reason: NotRequired[str]
    path: NotRequired[Annotated[list[ExplainedRecord], Field(description="In the order in which they were checked.")]]


class Explanations(_Answer):
    """The response to a permission call with reasons."""

    data: list[ExplanationWire]


class ErrorWire(TypedDict):
    """The error of a failure. ``details`` depends on the endpoint."""

    status: str
    message: str
    details: NotRequired[dict[str, Any]]


class FailureWire(TypedDict):
    """The body of a failure."""

    error: ErrorWire


_REQUESTS = (RequestWire, ListResourcesRequest, ListUsersRequest, ResyncRequest, DecisionRequest, PushWire)
_RESPONSES = (
    Answers,
    Explanations,
    ResourcesPageWire,
    UsersPageWire,
    NewRun,
    RunWire,
    Changes,
    AccessChanges,
    PushAnswer,
    UploadAnswer,
    SourceStateWire,
    FailureWire,
)
_BODY_FAILURES = (400, 413, 415)
"""The failures of endpoints with a body."""


class _Endpoint(NamedTuple):
    method: str
    path: str
    name: str
    summary: str
    scheme: str
    """The name of the security scheme."""
    response: str
    """The schema of a success."""
    failures: tuple[int, ...]
    """The status codes of failures, in addition to those of every endpoint with a token."""
    success: int = 200
    parameters: Sequence[JsonValue] = ()
    body: Json | None = None


def openapi_blueprint(make: Callable[[], Json]) -> Blueprint:
    """``/openapi.json``. The first request makes it, because that takes longer than the rest of the start."""
    blueprint = Blueprint("openapi", __name__)
    content = cache(make)

    @blueprint.get("/openapi.json")
    def openapi() -> Response:
        return json_response(content())

    return blueprint


def document(provider: ProviderSettings, *, metrics_need_token: bool = True) -> Json:
    """The document of a service with these settings."""
    paths: dict[str, Any] = {}
    for endpoint in _endpoints(provider.path):
        paths.setdefault(endpoint.path, {})[endpoint.method] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Usher",
            "version": __version__,
            "description": "Permission answers for a collaboration backend, and the synchronization of the backend.",
        },
        "paths": paths | _other_paths(metrics_need_token=metrics_need_token),
        "components": {
            "schemas": _schemas(provider.max_requests),
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": text}
                for name, text in (
                    ("provider", "One of provider.auth_tokens."),
                    ("admin", "One of admin.tokens."),
                    ("source", "One of the source's changes.tokens."),
                )
            },
        },
    }


def _schemas(max_requests: int) -> Json:
    models: list[tuple[str, Literal["validation", "serialization"], TypeAdapter[Any]]] = [
        *((model.__name__, "validation", TypeAdapter(model)) for model in _REQUESTS),
        *((model.__name__, "serialization", TypeAdapter(model)) for model in _RESPONSES),
    ]
    by_key, shared = TypeAdapter.json_schemas(models, ref_template=_REF)
    requests: Json = {"type": "array", "maxItems": max_requests, "items": by_key["RequestWire", "validation"]}
    at: Json = {**TIME_SCHEMA, "description": "Decide as of this moment, by the current revision. Left out: now."}
    schemas: Json = shared["$defs"]
    return schemas | {
        "Questions": _questions({"requests": requests}),
        "ExplainedQuestions": _questions({"requests": requests, "at": at}),
    }


def _questions(properties: Json) -> Json:
    data: Json = {"type": "object", "required": ["requests"], "properties": properties}
    return {"type": "object", "required": ["data"], "properties": {"data": data}}


def _endpoints(provider_path: str) -> tuple[_Endpoint, ...]:
    questions, decision = _body("Questions"), _body("DecisionRequest", required=False)
    key = _parameter("header", "Idempotency-Key", {"type": "string", "pattern": "^[!-~]{1,200}$"})
    run_id = _parameter("path", "runId", {"type": "string", "minLength": 1, "maxLength": 200})
    filters = [
        _parameter("query", "status", {"type": "string", "enum": [*ITEM_STATUSES]}),
        _parameter("query", "kind", {"type": "string", "enum": [*ITEM_KINDS]}),
    ]
    pages = [
        _parameter("query", "pageToken", {"type": "string"}),
        _parameter("query", "pageSize", {"type": "integer", "minimum": 1, "maximum": 1000}),
    ]
    revision = _parameter(
        "header",
        MIN_REVISION_HEADER,
        {"type": "string", "pattern": "^[0-9]{1,18}$"},
        "The oldest revision of the access model that the caller accepts. 503 until the node has it.",
    )
    source = _parameter("path", "name", {"type": "string", "minLength": 1}, "The source's name, URL-encoded.")
    shrink = _parameter(
        "query", "acceptShrink", {"type": "boolean"}, "Whether it may remove more than the source's guard allows."
    )
    lines: Json = {
        "required": True,
        "description": 'Records, one per line, and a last line {"end": true, "records": N}.',
        "content": {name: {} for name in LINES_TYPES},
    }
    run, directory = "/resync/{runId}", "/directory/{name}"
    # fmt: off
    # Two lines for each endpoint: what it is, and its response, failures and request.
    return (
        _Endpoint("post", provider_path, "check", "Decide permission requests.", "provider",
                  "Answers", _BODY_FAILURES, parameters=[revision], body=questions),
        _Endpoint("post", EXPLAIN_PATH, "explain", "Decide permission requests, with reasons.", "admin",
                  "Explanations", _BODY_FAILURES, parameters=[revision], body=_body("ExplainedQuestions")),
        _Endpoint("post", LIST_RESOURCES_PATH, "listResources", "List what a user may open.", "admin",
                  "ResourcesPageWire", _BODY_FAILURES, parameters=[revision], body=_body("ListResourcesRequest")),
        _Endpoint("post", LIST_USERS_PATH, "listUsers", "List who may open a resource.", "admin",
                  "UsersPageWire", _BODY_FAILURES, parameters=[revision], body=_body("ListUsersRequest")),
        _Endpoint("post", "/resync", "startRun", "Queue a run.", "admin",
                  "NewRun", _BODY_FAILURES, success=202, parameters=[key], body=_body("ResyncRequest", required=False)),
        _Endpoint("get", run, "getRun", "The state of a run.", "admin",
                  "RunWire", (404,), parameters=[run_id]),
        _Endpoint("get", f"{run}/changes", "getChanges", "The changes of a run, with reasons.", "admin",
                  "Changes", (400, 404), parameters=[run_id, *filters, *pages]),
        _Endpoint("get", f"{run}/access", "getAccessChanges", "Whose access a dry run would change.", "admin",
                  "AccessChanges", (400, 404), parameters=[run_id, *pages]),
        _Endpoint("post", f"{run}/approve", "approveRun", "Approve held deletes.", "admin",
                  "RunWire", (404, *_BODY_FAILURES), success=202, parameters=[run_id], body=decision),
        _Endpoint("post", f"{run}/cancel", "cancelRun", "Stop a run, or discard held deletes.", "admin",
                  "RunWire", (404, *_BODY_FAILURES), success=202, parameters=[run_id], body=decision),
        _Endpoint("get", directory, "getSource", "The state of a source.", "source",
                  "SourceStateWire", (403, 404), parameters=[source]),
        _Endpoint("put", directory, "putSource", "Upload a whole source.", "source",
                  "UploadAnswer", (403, 404, 409, 411, *_BODY_FAILURES), parameters=[source, shrink], body=lines),
        _Endpoint("post", f"{directory}/changes", "pushChanges", "Push changes of a source.", "source",
                  "PushAnswer", (403, 404, 409, *_BODY_FAILURES), parameters=[source], body=_body("PushWire")),
    )
    # fmt: on


def _parameter(place: str, name: str, schema: Json, description: str = "") -> Json:
    parameter: Json = {"name": name, "in": place, "schema": schema}
    if place == "path":
        parameter["required"] = True
    if description:
        parameter["description"] = description
    return parameter


def _operation(endpoint: _Endpoint) -> Json:
    failures = sorted({*endpoint.failures, 401, 429, 503})
    responses: Json = {str(endpoint.success): _response("Success", endpoint.response)}
    described: Json = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "security": [{endpoint.scheme: []}],
        "parameters": list(endpoint.parameters),
        "responses": responses | {str(code): _response("Failure", "FailureWire") for code in failures},
    }
    return described if endpoint.body is None else described | {"requestBody": endpoint.body}


def _other_paths(*, metrics_need_token: bool) -> Json:
    """The paths without a schema."""

    def plain(name: str, summary: str, codes: Sequence[int] = (), media_type: str = "application/json") -> Json:
        responses: Json = {"200": {"description": "Success", "content": {media_type: {}}}}
        responses |= {str(code): {"description": "Failure"} for code in codes}
        return {"operationId": name, "summary": summary, "responses": responses}

    metrics = plain("metrics", "Metrics for Prometheus.", (401, 429) if metrics_need_token else (), "text/plain")
    if metrics_need_token:
        metrics["security"] = [{"admin": []}]

    return {
        "/": {"get": plain("landing", "Name, version and links.")},
        "/healthz": {"get": plain("healthz", "The process is running.")},
        "/readyz": {"get": plain("readyz", "Readiness, with the result of each check.", (503,))},
        "/metrics": {"get": metrics},
        "/openapi.json": {"get": plain("openapi", "This document.")},
    }


def _body(schema: str, *, required: bool = True) -> Json:
    return {"required": required, "content": _json(schema)}


def _response(description: str, schema: str) -> Json:
    return {"description": description, "content": _json(schema)}


def _json(schema: str) -> Json:
    return {"application/json": {"schema": {"$ref": _REF.format(model=schema)}}}
