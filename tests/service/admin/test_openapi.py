"""The OpenAPI document of the service agrees with what it accepts."""

from typing import Any

import jsonschema_rs
import pytest

from app.contract.errors import InvalidArgument
from app.contract.permission_call import MalformedQuestion
from app.service.admin.openapi import document
from app.service.admin.resync import ResyncRequest
from app.service.provider.answer import read_questions
from app.service.provider.settings import ProviderSettings

DOCUMENT: Any = document(ProviderSettings(path="/check", max_requests=2))
ASKED = {"userId": "ada", "resource": {"type": "document", "id": "d", "organizationId": "acme"}}


def is_valid(name: str, body: object) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(schema).is_valid(body)


@pytest.mark.parametrize(
    "body",
    [
        {"data": {"requests": []}},
        {"data": {"requests": [ASKED]}},
        {"data": {"requests": [ASKED, ASKED]}},
        {"data": {"requests": [ASKED, ASKED, ASKED]}},
        {"data": {"requests": [ASKED | {"more": 1}], "more": 1}, "more": 1},
        {"data": {"requests": [{}]}},
        {"data": {"requests": [ASKED | {"userId": 5}]}},
        {"data": {"requests": [ASKED | {"resource": {"type": "organization", "id": "acme"}}]}},
        {"data": {"requests": [ASKED | {"resource": {"type": "folderless", "id": "acme"}}]}},
        {"data": {"requests": [None]}},
        {"data": {"requests": None}},
        {"data": {"requests": {}}},
        {"data": {}},
        {"data": []},
        {},
        [],
    ],
    ids=str,
)
def test_questions_are_accepted_as_described(body: object) -> None:
    try:
        accepted = not any(isinstance(one, MalformedQuestion) for one in read_questions(body, 2))
    except InvalidArgument:
        accepted = False
    assert is_valid("Questions", body) == accepted


@pytest.mark.parametrize("field", ["organizationIds", "userIds"])
@pytest.mark.parametrize(
    "value", [None, [], ["a"], [""], [5], "a", {}, ["a"] * 1000, ["a"] * 1001, ["x" * 513]], ids=str
)
def test_runs_are_narrowed_as_described(field: str, value: object) -> None:
    body = {field: value}
    try:
        ResyncRequest.from_wire(body)
        accepted = True
    except ValueError:
        accepted = False
    assert is_valid("ResyncRequest", body) == accepted


def test_metrics_require_the_token_that_the_document_describes() -> None:
    with_token = DOCUMENT["paths"]["/metrics"]["get"]
    assert with_token["security"] == [{"admin": []}]
    assert {"401", "429"} <= with_token["responses"].keys()
    other: Any = document(ProviderSettings(path="/check", max_requests=2), metrics_need_token=False)
    open_to_all = other["paths"]["/metrics"]["get"]
    assert "security" not in open_to_all
    assert open_to_all["responses"].keys() == {"200"}
