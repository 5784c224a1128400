"""The service's own OpenAPI document.

One OpenAPI 3.1 document of its endpoints: the permission-provider call and its explanation from the contract's shapes,
the endpoints for operators from this package's.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from flask import Blueprint, Response
from pydantic import JsonValue, TypeAdapter

from app.admin.resync import DecisionRequest, ItemKind, ItemStatus, ResyncRequest
from app.contract.envelope import FailureEnvelope
from app.contract.permission_call import RequestWire, ResultWire
from app.edge.json import json_response
from app.ingest.openapi import push_paths, push_schemas

Json = dict[str, JsonValue]
_REF = "#/components/schemas/{model}"
_BODY_CODES = (413, 415)
_RUN_ID: Json = {
    "name": "runId",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}


def openapi_blueprint(*, version: str, provider_path: str, explain_path: str, max_requests: int) -> Blueprint:
    """``/openapi.json``."""
    blueprint = Blueprint("openapi", __name__)
    described = document(
        version=version, provider_path=provider_path, explain_path=explain_path, max_requests=max_requests
    )

    @blueprint.get("/openapi.json")
    def openapi() -> Response:
        return json_response(described)

    return blueprint


def document(*, version: str, provider_path: str, explain_path: str, max_requests: int) -> Json:
    """The document of a service that answers at these paths, at most so many questions a call."""
    schemas = _schemas(max_requests)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Usher",
            "version": version,
            "description": "Permission answers for a collaboration backend, and what keeps that backend in step.",
        },
        "paths": {
            provider_path: {"post": _permissions("check", "Decide what was asked.", "provider")},
            explain_path: {
                "post": _permissions("explain", "Decide what was asked, with reasons.", "admin", "Explanations")
            },
            **_resync_paths(),
            **push_paths(),
            **_open_paths(),
        },
        "components": {
            "schemas": schemas,
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
    named: list[tuple[str, Literal["validation", "serialization"], TypeAdapter[Any]]] = [
        ("Request", "validation", TypeAdapter(RequestWire)),
        ("Result", "serialization", TypeAdapter(ResultWire)),
        ("ResyncRequest", "validation", TypeAdapter(ResyncRequest)),
        ("DecisionRequest", "validation", TypeAdapter(DecisionRequest)),
        ("Failure", "serialization", TypeAdapter(FailureEnvelope)),
    ]
    by_key, shared = TypeAdapter.json_schemas(named, ref_template=_REF)
    schemas: Json = dict(shared.get("$defs", {}))
    requests: Json = {
        "type": "array",
        "maxItems": max_requests,
        "items": by_key["Request", "validation"],
    }
    answers: Json = {
        "data": {"type": "array", "items": by_key["Result", "serialization"]},
        "success": {"const": True},
        "statusCode": {"const": 200},
        "message": {"type": "string"},
    }
    schemas["Questions"] = {
        "type": "object",
        "required": ["data"],
        "properties": {"data": {"type": "object", "required": ["requests"], "properties": {"requests": requests}}},
    }
    required: list[JsonValue] = list(answers)
    # Over `data`, for answers that go to a browser.
    answers["signature"] = {"type": "string"}
    schemas["Answers"] = {"type": "object", "required": required, "properties": answers}
    explained: Json = {"type": "array", "items": {"$ref": _REF.format(model="Explanation")}}
    schemas["Explanations"] = {"type": "object", "required": required, "properties": answers | {"data": explained}}
    schemas["Explanation"] = _explanation(by_key["Result", "serialization"])
    schemas["Origin"] = _origin()
    schemas["Run"] = {
        "type": "object",
        "required": ["runId", "status"],
        "properties": {
            "runId": {"type": "string"},
            "status": {"type": "string"},
            "continuedBy": {
                "type": ["string", "null"],
                "description": "The run that goes on from where this one was interrupted.",
            },
        },
    }
    schemas["Changes"] = {
        "type": "object",
        "required": ["changes"],
        "properties": {
            "changes": {"type": "array", "items": {"$ref": _REF.format(model="Change")}},
            "nextPageToken": {"type": "string"},
        },
    }
    schemas["Change"] = _change()
    schemas |= push_schemas()
    return schemas


def _explanation(result: JsonValue) -> Json:
    """A result with what led to it; one that could not be understood has neither."""
    record: Json = {
        "type": "object",
        "required": ["kind", "origins"],
        "description": "A record in force by its fields, and where it comes from; times are epoch milliseconds.",
        "properties": {
            "kind": {"type": "string"},
            "origins": {
                "type": "array",
                "items": {"$ref": _REF.format(model="Origin")},
                "description": "Every row of the sources that gives something of it.",
            },
        },
    }
    path: Json = {"type": "array", "items": record, "description": "In the order in which they were looked at."}
    return {"allOf": [result, {"type": "object", "properties": {"reason": {"type": "string"}, "path": path}}]}


def _origin() -> Json:
    properties: Json = {
        "source": {"type": "string", "description": "The source's name."},
        "retained": {"type": "boolean", "description": "Whether it is no longer configured."},
        "place": {"type": "string", "description": "Where the row stood when it last changed."},
        "set": {"type": ["string", "null"], "description": "The set of the object that it was made from."},
        "id": {"type": ["string", "null"], "description": "The object's id; null where it is too long to be kept."},
        "rule": {"type": ["integer", "string", "null"], "description": "The rule that made the record, from 1."},
        "gives": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The fields whose value in force it gives.",
        },
        "alias": {
            "type": ["string", "null"],
            "description": "The alias by which it disables the user, if others have it or the user had it; else null.",
        },
    }
    return {"type": "object", "required": list(properties), "additionalProperties": False, "properties": properties}


def _change() -> Json:
    def of(kind: JsonValue, description: str = "") -> JsonValue:
        return {"type": kind} | ({"description": description} if description else {})

    field: Json = {
        "type": "object",
        "required": ["field", "new"],
        "properties": {
            "field": of("string", "Its name in the directory's records."),
            "old": {"description": "What the backend was told last; null: nothing. Left out where that is not known."},
            "new": {"description": "null: nothing, or inherited, or the top of the tree."},
        },
    }
    properties: dict[str, JsonValue] = {
        "ordinal": of("integer"),
        "phase": of("integer"),
        "action": {"type": "string", "enum": ["add", "update", "delete"]},
        "kind": {"type": "string", "enum": list(get_args(ItemKind))},
        "organizationId": of("string"),
        "containerId": of(["string", "null"], "The folder, document or group that a user's entry is in."),
        "id": of("string"),
        "name": of(["string", "null"], "What the item, or the user of an entry, is called."),
        "containerName": of(["string", "null"]),
        "operation": of("string"),
        "reason": of("string", "Which record brought it about."),
        "status": {"type": "string", "enum": list(get_args(ItemStatus))},
        "message": of(["string", "null"], "What became of it."),
    }
    required: list[JsonValue] = list(properties)
    properties["fields"] = {"type": "array", "items": field, "description": "What an update changes."}
    properties["allFieldsKnown"] = of(
        "boolean", "Of an update: false where what the backend was told of names and further fields is not known."
    )
    return {"type": "object", "required": required, "properties": properties}


def _permissions(name: str, summary: str, token: str, answers: str = "Answers") -> Json:
    return {
        "operationId": name,
        "summary": summary,
        "security": [{token: []}],
        "requestBody": _body("Questions", required=True),
        "responses": _responses({"200": answers}, (400, 401, 429, 503, *_BODY_CODES)),
    }


def _resync_paths() -> Json:
    key: Json = {
        "name": "Idempotency-Key",
        "in": "header",
        "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
    }
    parameters: list[JsonValue] = [
        _RUN_ID,
        _query("status", {"type": "string", "enum": list(get_args(ItemStatus))}),
        _query("kind", {"type": "string", "enum": list(get_args(ItemKind))}),
        _query("pageToken", {"type": "string"}),
        _query("pageSize", {"type": "integer", "minimum": 1, "maximum": 1000}),
    ]
    start = _admin("startRun", "Queue a run.", {"202": "Run"}, (400, *_BODY_CODES))
    start |= {"parameters": [key], "requestBody": _body("ResyncRequest", required=False)}
    return {
        "/resync": {"post": start},
        "/resync/{runId}": {"get": _admin("getRun", "How a run goes.", {"200": "Run"}, (404,), [_RUN_ID])},
        "/resync/{runId}/changes": {
            "get": _admin("getChanges", "What a run changes, and why.", {"200": "Changes"}, (400, 404), parameters)
        },
        "/resync/{runId}/approve": {"post": _deciding("approveRun", "Apply what was held.")},
        "/resync/{runId}/cancel": {"post": _deciding("cancelRun", "Stop it, or drop what was held.")},
    }


def _deciding(name: str, summary: str) -> Json:
    described = _admin(name, summary, {"202": "Run"}, (400, 404, *_BODY_CODES), [_RUN_ID])
    return described | {"requestBody": _body("DecisionRequest", required=False)}


def _open_paths() -> Json:
    def plain(name: str, summary: str, codes: Sequence[int] = (), media_type: str = "application/json") -> JsonValue:
        responses: Json = {"200": {"description": "Success", "content": {media_type: {}}}}
        responses |= {str(code): {"description": "Failure"} for code in codes}
        return {"get": {"operationId": name, "summary": summary, "responses": responses}}

    return {
        "/": plain("landing", "What this is."),
        "/healthz": plain("healthz", "The process lives."),
        "/readyz": plain("readyz", "It can answer, and the state of each check.", (503,)),
        "/metrics": plain("metrics", "For Prometheus.", (401, 429), "text/plain"),
        "/openapi.json": plain("openapi", "This document."),
    }


def _admin(
    name: str,
    summary: str,
    successes: dict[str, str | None],
    codes: Sequence[int],
    parameters: Sequence[JsonValue] = (),
) -> Json:
    return {
        "operationId": name,
        "summary": summary,
        "security": [{"admin": []}],
        "parameters": list(parameters),
        "responses": _responses(successes, (*codes, 401, 429, 503)),
    }


def _body(schema: str, *, required: bool) -> Json:
    return {"required": required, "content": {"application/json": {"schema": {"$ref": _REF.format(model=schema)}}}}


def _query(name: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "schema": schema}


def _responses(successes: dict[str, str | None], codes: Sequence[int]) -> Json:
    responses: Json = {
        code: {
            "description": "Success",
            "content": {"application/json": {"schema": {"$ref": _REF.format(model=name)} if name else {}}},
        }
        for code, name in successes.items()
    }
    failure: Json = {"application/json": {"schema": {"$ref": _REF.format(model="FailureEnvelope")}}}
    return responses | {str(code): {"description": "Failure", "content": failure} for code in sorted(codes)}
