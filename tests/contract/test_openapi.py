"""The OpenAPI document is complete, valid and consistent with the models."""

import copy
import functools
import operator
import re
from typing import Any

import jsonschema_rs
import pytest

from app.contract.errors import HTTP_CODE, InvalidArgument, NotFound, error_envelope
from app.contract.openapi import document
from app.contract.operation import AuthLevel, HeaderNames
from app.contract.operations import OPERATIONS, by_name

BEYOND_SCHEMA = re.compile(
    "must not contain NUL|must be an ISO 8601 time|must not be after end"
    "|must equal id when type is organization|must ask at most"
)
"""Errors that JSON Schema cannot express."""


@pytest.fixture(scope="module")
def spec():
    return document("http://127.0.0.1:8090", header_prefix="x-acme-")


def refs(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from refs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from refs(inner)


def validator(spec, schema):
    return jsonschema_rs.Draft202012Validator({**schema, "components": spec["components"]})


def test_document_has_every_path_with_a_unique_operation_id(spec):
    assert set(spec["paths"]) == {path for op in OPERATIONS for path in op.paths}
    ids = [path["post"]["operationId"] for path in spec["paths"].values()]
    assert len(ids) == len(set(ids))
    assert {op.name for op in OPERATIONS} <= set(ids)


def test_references_of_the_document_exist(spec):
    for ref in set(refs(spec)):
        kind, name = ref.removeprefix("#/components/").split("/")
        assert name in spec["components"][kind]


def test_document_schemas_are_valid_json_schema(spec):
    schemas = spec["components"]["schemas"]
    assert schemas
    assert [name for name, schema in schemas.items() if not jsonschema_rs.meta.is_valid(schema)] == []


def test_security_by_auth_level(spec):
    schemes = spec["components"]["securitySchemes"]
    names = HeaderNames("x-acme-")
    assert {scheme["name"] for scheme in schemes.values()} == {
        names.api_key,
        names.auth_token,
        names.workspace_id,
        names.workspace_auth_token,
    }
    expected: dict[AuthLevel, list[dict[str, list[str]]]] = {
        AuthLevel.K: [{"apiKey": [], "authToken": []}],
        AuthLevel.W: [{"workspaceId": [], "workspaceAuthToken": []}],
        AuthLevel.NONE: [],
        AuthLevel.BODY: [],
    }
    for op in OPERATIONS:
        assert spec["paths"][op.path]["post"]["security"] == expected[op.auth]


def test_responses_contain_every_failure_of_an_operation(spec):
    for op in OPERATIONS:
        responses = spec["paths"][op.path]["post"]["responses"]
        wanted = {HTTP_CODE[status] for status in op.all_errors} | {405, 413, 415}
        assert {int(code) for code in responses} == {200, *wanted}


def test_schema_of_failures(spec):
    failure = validator(spec, {"$ref": "#/components/schemas/Failure"})
    assert failure.is_valid(error_envelope(NotFound("no")))
    assert not failure.is_valid({"error": {"message": "no status"}})


def test_schemas_accept_the_same_sample_requests_as_the_models(spec, request_case):
    name, case = request_case
    schema = spec["paths"][by_name(name).path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    accepted = "error" not in case or case.get("beyond_schema", False)
    assert validator(spec, schema).is_valid({"data": case["data"]}) == accepted


INVALID_VALUES: list[Any] = [
    *(None, [], {}, "", 0, -1, 1.5, 10**6, True, "x", "x" * 600, "\x00"),
    *([None], [[]], [{}], [""], {"x": None}),
]
"""Values of wrong types and sizes."""


def paths_in(value, path=()):
    """The paths of all values in `value`."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from paths_in(item, (*path, key))


def mutated(data):
    """Copies of `data`, each with one value replaced or removed."""
    for path in paths_in(data):
        for invalid in INVALID_VALUES:
            changed = copy.deepcopy(data)
            around = functools.reduce(operator.getitem, path[:-1], changed)
            around[path[-1]] = invalid
            yield path, changed
        changed = copy.deepcopy(data)
        del functools.reduce(operator.getitem, path[:-1], changed)[path[-1]]
        yield path, changed


def test_schemas_accept_the_same_mutated_requests_as_the_models(spec, request_case):
    name, case = request_case
    asked = by_name(name)
    check = validator(spec, spec["paths"][asked.path]["post"]["requestBody"]["content"]["application/json"]["schema"])
    differ = []
    for place, data in mutated(case["data"]):
        try:
            asked.parse({"data": data})
        except InvalidArgument as error:
            if check.is_valid({"data": data}) and not BEYOND_SCHEMA.search(error.message):
                differ.append((place, data, error.message))
        else:
            if not check.is_valid({"data": data}):
                differ.append((place, data, next(check.iter_errors({"data": data})).message))
    assert differ == []


def test_schemas_accept_sample_responses(spec, answer_case):
    name, body = answer_case
    schema = spec["paths"][by_name(name).path]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    check = validator(spec, schema)
    assert check.is_valid(body)
    assert not check.is_valid({"result": None})


def test_default_header_names():
    names = HeaderNames()
    assert names.api_key == "x-service-api-key"
    assert names.auth_token == "x-service-auth-token"
    assert names.workspace_id == "x-service-workspace-id"
    assert names.workspace_auth_token == "x-service-workspace-auth-token"


def test_format_of_owner_email(spec):
    for name in ("create_workspace", "create_api_key"):
        schema = spec["paths"][by_name(name).path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        checked = jsonschema_rs.Draft202012Validator(
            {**schema, "components": spec["components"]}, validate_formats=True
        )
        assert checked.is_valid({"data": {"ownerEmail": "ada@acme.example", "type": "testing"}})
        assert not checked.is_valid({"data": {"ownerEmail": "ada", "type": "testing"}})
