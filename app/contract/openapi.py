"""Generates the OpenAPI 3.1 document from the table of operations.

It contains every path under both versions, request and response schemas from the models, errors by HTTP code and
credentials by auth level.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter

from app.contract.base import ItemResult
from app.contract.errors import HTTP_CODE, METHOD_NOT_ALLOWED, PAYLOAD_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, Status
from app.contract.operation import DEFAULT_PREFIX, AnyOperation, AuthLevel, HeaderNames, Tier
from app.contract.operations import OPERATIONS

JsonSchema = dict[str, JsonValue]
_SchemaKey = tuple[str, Literal["request", "result", "error"]]
_Mode = Literal["validation", "serialization"]

_FAILURE: _SchemaKey = ("", "error")
_REF = "#/components/schemas/{model}"
_FAILURE_REF = "#/components/responses/Failure{code}"
_SECURITY: dict[AuthLevel, JsonValue] = {
    AuthLevel.K: [{"apiKey": [], "authToken": []}],
    AuthLevel.W: [{"workspaceId": [], "workspaceAuthToken": []}],
}
_EARLY_CODES = (METHOD_NOT_ALLOWED, PAYLOAD_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE)
"""Codes that any request may get before its operation is determined."""


class ErrorInfo(BaseModel):
    """``error`` of a failure. ``details`` maps item ids to their outcome."""

    model_config = ConfigDict(extra="allow")

    status: str
    message: str
    code: int | None = None
    details: dict[str, ItemResult] | None = None


class FailureEnvelope(BaseModel):
    """The body of a failure."""

    error: ErrorInfo


def document(server_url: str, header_prefix: str = DEFAULT_PREFIX) -> dict[str, JsonValue]:
    """The OpenAPI 3.1 document of the API at ``server_url``, with credential headers of this prefix."""
    schemas, definitions = _schemas()
    paths: JsonSchema = {
        path: {"post": _operation(operation, path, schemas)} for operation in OPERATIONS for path in operation.paths
    }
    definitions["Failure"] = schemas[_FAILURE]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Collaboration backend",
            "version": "1.0.0",
            "description": 'Every operation is a POST of `{"data": {...}}`. '
            "Fields that are not listed are kept unchanged. A listed field that is null is treated as absent.",
        },
        "servers": [{"url": server_url}],
        "tags": [
            {"name": Tier.CORE.value, "description": "Every deployment has these."},
            {"name": Tier.EXTENDED.value, "description": "A deployment may lack these. Then it returns 404."},
        ],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(definitions.items())),
            "responses": _failure_responses(),
            "securitySchemes": _security_schemes(HeaderNames(header_prefix)),
        },
    }


def _schemas() -> tuple[dict[_SchemaKey, JsonValue], JsonSchema]:
    """The schema of each request and result, and the shared definitions."""
    failure: TypeAdapter[Any] = TypeAdapter(FailureEnvelope)
    inputs: list[tuple[_SchemaKey, _Mode, TypeAdapter[Any]]] = [(_FAILURE, "validation", failure)]
    for operation in OPERATIONS:
        inputs.append(((operation.name, "request"), "validation", TypeAdapter(operation.request)))
        inputs.append(((operation.name, "result"), "validation", operation.result))
    by_key, shared = TypeAdapter.json_schemas(inputs, ref_template=_REF)
    definitions = shared.get("$defs", {})
    return {key: schema for (key, _), schema in by_key.items()}, definitions


def _operation(operation: AnyOperation, path: str, schemas: dict[_SchemaKey, JsonValue]) -> JsonSchema:
    is_other_version = path != operation.path
    responses: JsonSchema = {
        "200": _json_response("Success", _success_schema(operation, schemas[operation.name, "result"]))
    }
    for code, statuses in _failures(operation).items():
        responses[str(code)] = {"$ref": _FAILURE_REF.format(code=code), "description": ", ".join(statuses)}
    return {
        "operationId": f"{operation.name}_{path.split('/', 2)[1]}" if is_other_version else operation.name,
        "summary": operation.title,
        "description": operation.summary,
        "tags": [operation.tier.value],
        "security": _SECURITY.get(operation.auth, []),
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["data"],
                        "properties": {"data": schemas[operation.name, "request"]},
                    }
                }
            },
        },
        "responses": responses,
    }


def _success_schema(operation: AnyOperation, result: JsonValue) -> JsonSchema:
    inner = result
    if not operation.bare_result:
        properties: JsonSchema = {"status": {"const": "success"}, "message": {"type": "string"}}
        required: list[JsonValue] = ["status", "message"]
        if operation.has_data:
            properties["data"] = result
            required.append("data")
        if operation.page_token_field is not None:
            properties[operation.page_token_field] = {"type": ["string", "null"]}
        inner = {"type": "object", "required": required, "properties": properties}
    return {"type": "object", "required": ["result"], "properties": {"result": inner}}


def _failures(operation: AnyOperation) -> dict[int, list[str]]:
    """The statuses that an operation may return, by HTTP code."""
    by_code: dict[int, list[str]] = {}
    for status in operation.all_errors:
        by_code.setdefault(HTTP_CODE[status], []).append(status.value)
    by_code |= {code: [Status.INVALID_ARGUMENT.value] for code in _EARLY_CODES}
    return dict(sorted(by_code.items()))


def _failure_responses() -> JsonSchema:
    schema: JsonSchema = {"$ref": _REF.format(model="Failure")}
    codes = sorted({*HTTP_CODE.values(), *_EARLY_CODES})
    return {f"Failure{code}": _json_response(f"Failure with HTTP code {code}", schema) for code in codes}


def _json_response(description: str, schema: JsonSchema) -> JsonSchema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _security_schemes(names: HeaderNames) -> JsonSchema:
    headers = {
        "apiKey": names.api_key,
        "authToken": names.auth_token,
        "workspaceId": names.workspace_id,
        "workspaceAuthToken": names.workspace_auth_token,
    }
    return {scheme: {"type": "apiKey", "in": "header", "name": header} for scheme, header in headers.items()}
