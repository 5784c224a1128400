"""The limits of the contract, with values below, at and above each."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from werkzeug.test import TestResponse

import app.backend
from app.backend.editor.editor_data import STATE_BYTES
from app.contract import limits
from app.contract.operation import AnyOperation
from app.contract.operations import OPERATIONS, by_name
from app.http import strict_json, throttle
from tests.choice import sampled

from .conftest import BackendWorld, Caller, error_of
from .sampling import Actor

LIMITS: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "data" / "limits.yaml").read_text())
BATCHES = [operation for operation in OPERATIONS if operation.items_field is not None]


def items_like(sample: Any, number: int) -> list[Any]:
    """Copies of the sample's item with different ids (the first field)."""
    (first, *_) = sample
    if isinstance(first, dict):
        key = next(iter(first))
        return [first | {key: f"n{index}"} for index in range(number)]
    return [f"n{index}.example" for index in range(number)]


def value_of(limit: dict[str, Any], sample: Any, size: int) -> Any:
    if "items" in limit:
        return items_like(sample, size)
    if "length" in limit:
        beginning = limit.get("text", "")
        return beginning + "x" * (size - len(beginning))
    return size


def is_refused(response: TestResponse, field: str) -> bool:
    if response.status_code == 200:
        return False
    status, message = error_of(response)
    return response.status_code == 400 and status == "INVALID_ARGUMENT" and message.startswith(f"data.{field}: ")


@pytest.mark.parametrize("limit", sampled(LIMITS, sample=8), ids=lambda limit: f"{limit['operation']} {limit['field']}")
def test_a_field_is_accepted_within_its_limits_and_refused_beyond(
    standing: BackendWorld, limit: dict[str, Any]
) -> None:
    operation, field = by_name(limit["operation"]), limit["field"]
    kind = next(kind for kind in ("items", "number", "length") if kind in limit)
    least, most = limit[kind]
    accepted = {least, min(least + 1, most), most - 1, most}
    refused = {most + 1, most * 2, least - 1} - ({-1} if kind != "number" else set())
    for size in sorted(accepted):
        assert good(call(standing, operation, limit, size), limit), size
    for size in sorted(refused):
        if not (kind == "length" and size < len(limit.get("text", ""))):
            assert is_refused(call(standing, operation, limit, size), field), size
    if kind == "number":
        for wrong in (str(least), least + 0.5, True, [least]):
            assert is_refused(call(standing, operation, limit, least, wrong), field), wrong


def call(
    world: BackendWorld, operation: AnyOperation, limit: dict[str, Any], size: int, value: Any = None
) -> TestResponse:
    actor = Actor(world)
    actor.prepare(operation)
    data = actor.data(operation)
    if operation.name == "create_workspace":
        data["ownerEmail"] = f"new-{actor.names['email']}"
    data[limit["field"]] = value_of(limit, data.get(limit["field"]), size) if value is None else value
    return actor.caller(operation).call(operation.name, **data)


def good(response: TestResponse, limit: dict[str, Any]) -> bool:
    """Whether the call succeeded, or failed only because the ids do not exist."""
    return response.status_code == 200 or (limit.get("missing", False) and response.status_code == 404)


@pytest.mark.extended
def test_batch_limits(standing: BackendWorld) -> None:
    for operation in BATCHES:
        assert operation.items_field is not None
        for size, is_good in (
            (operation.max_items - 1, True),
            (operation.max_items, True),
            (operation.max_items + 1, False),
        ):
            limit = {"operation": operation.name, "field": operation.items_field, "items": [0, 0], "missing": True}
            response = call(standing, operation, limit, size)
            assert good(response, limit) == is_good, (operation.name, size, response.data[:200])
            assert is_good or is_refused(response, operation.items_field), operation.name


@pytest.fixture(scope="module")
def many(shared_world: BackendWorld) -> Caller:
    """A tenant with one more user, document and activity than the default page size. Tests do not change them."""
    tenant = shared_world.tenant()
    for start, number in ((0, 1000), (1000, 1)):
        ids = [f"{index:05}" for index in range(start, start + number)]
        tenant("add_users", organizationId="acme", users=[{"userId": one} for one in ids])
        tenant("add_documents", organizationId="acme", documents=[{"documentId": one} for one in ids])
        activities = [
            {"id": one, "featureType": "custom", "actionType": "x", "actionUser": {"userId": "ada"}} for one in ids
        ]
        tenant("add_activities", organizationId="acme", documentId="00000", activities=activities)
    return tenant


@pytest.mark.parametrize(
    ("operation", "id_field"),
    [("get_users", "userId"), ("get_documents", "id"), ("get_activity_logs", "id")],
)
def test_default_page_size(many: Caller, operation: str, id_field: str) -> None:
    token_field = by_name(operation).page_token_field
    assert token_field is not None
    pages = []
    request: dict[str, Any] = {"organizationId": "acme"}
    while True:
        body: Any = many.call(operation, **request).json
        pages.append([one[id_field] for one in body["result"]["data"]])
        token = body["result"].get(token_field)
        if not token:
            break
        request["pageToken"] = token

    assert [len(page) for page in pages] == [1000, 1]
    assert len({one for page in pages for one in page}) == 1001


PAGED = [operation for operation in OPERATIONS if "page_size" in operation.request.model_fields]
WITH_TOKEN = [
    (operation, field)
    for operation in OPERATIONS
    for field in ("pageToken", "iterator")
    if field in {one.alias for one in operation.request.model_fields.values()}
]


def test_there_are_operations_with_pages() -> None:
    assert {"get_organizations", "get_users", "get_activity_logs"} <= {operation.name for operation in PAGED}
    assert {"get_all_user_data", "list_advanced_webhook_endpoints"} <= {operation.name for operation, _ in WITH_TOKEN}


@pytest.mark.parametrize(
    ("operation", "id_field"), [("get_users", "userId"), ("get_documents", "id"), ("get_activity_logs", "id")]
)
def test_page_size_above_the_maximum(many: Caller, operation: str, id_field: str) -> None:
    token_field = by_name(operation).page_token_field
    assert token_field is not None
    pages, token = [], ""
    for size in (1001, 2**63 - 1):
        # An empty token is the first page.
        request = {"organizationId": "acme", "pageSize": size, "pageToken": token}
        result = many.call(operation, **request).get_json()["result"]
        pages.append({one[id_field] for one in result["data"]})
        token = result.get(token_field)

    assert [len(page) for page in pages] == [1000, 1]
    assert len(set.union(*pages)) == 1001
    assert not token


@pytest.mark.parametrize("operation", sampled(PAGED, sample=2), ids=lambda operation: operation.name)
def test_page_size_has_only_a_minimum(standing: BackendWorld, operation: AnyOperation) -> None:
    limit = {"operation": operation.name, "field": "pageSize"}
    for size in (1, 2, 1000, 1001, 10**9, 10.0):
        assert call(standing, operation, limit, 0, size).status_code == 200, size
    for wrong in (0, -1, 1.5, "10", True, [10]):
        assert is_refused(call(standing, operation, limit, 0, wrong), "pageSize"), wrong


@pytest.mark.parametrize(("operation", "field"), WITH_TOKEN, ids=lambda value: getattr(value, "name", value))
def test_empty_token_is_the_first_page(standing: BackendWorld, operation: AnyOperation, field: str) -> None:
    actor = Actor(standing)
    actor.prepare(operation)
    caller, data = actor.caller(operation), actor.data(operation)
    first = caller(operation.name, **data)
    assert caller(operation.name, **data | {field: ""}) == first
    assert caller(operation.name, **data | {field: None}) == first
    assert is_refused(caller.call(operation.name, **data | {field: "x"}), field)


def test_full_last_page_has_no_token(many: Caller) -> None:
    many("delete_users", organizationId="acme", userIds=["00000"])
    try:
        body: Any = many.call("get_users", organizationId="acme").json
    finally:
        many("add_users", organizationId="acme", users=[{"userId": "00000"}])

    assert len(body["result"]["data"]) == 1000
    assert not body["result"].get("nextPageToken")


def test_page_size_of_get_all_user_data(world: BackendWorld) -> None:
    tenant = world.tenant()
    tenant("add_users", organizationId="acme", documentId="d", users=[{"userId": "ada"}])
    annotations = [
        {"annotationId": f"t{index}", "commentData": [{"commentText": "x", "from": {"userId": "ada"}}]}
        for index in range(101)
    ]
    tenant("add_comment_annotations", organizationId="acme", documentId="d", commentAnnotations=annotations)
    first: Any = tenant.call("get_all_user_data", organizationId="acme", userId="ada").json
    token = first["result"]["nextPageToken"]
    second: Any = tenant.call("get_all_user_data", organizationId="acme", userId="ada", pageToken=token).json

    sizes = {
        name: [len(page["result"]["data"][name]) for page in (first, second)]
        for name in ("comments", "reactions", "recordings", "notifications")
    }
    assert sizes["comments"] == [100, 1]
    assert max(size for pages in sizes.values() for size in pages) == 100
    assert not second["result"].get("nextPageToken")


@pytest.mark.parametrize(("operation", "default"), [("search_judgments", 10), ("query_judgments", 20)])
def test_judgments_have_a_default_limit(world: BackendWorld, operation: str, default: int) -> None:
    actor = Actor(world)
    actor.import_judgments(
        [{"recordId": f"r{index}", "organizationId": "acme", "decision": "approve"} for index in range(30)]
    )
    data: dict[str, Any] = {"organizationId": "acme"} | ({"query": "x"} if operation == "search_judgments" else {})
    body: Any = actor.tenant.call(operation, **data).json

    results = body["result"]["results"] if operation == "search_judgments" else body["result"]["data"]
    assert len(results) == default


def test_limits_in_the_readme() -> None:
    text = (Path(app.backend.__file__).parent / "README.md").read_text()
    section = text.split("## Limits where the reference shows none\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]

    numbers = [int(limit.replace(",", "").split("to ")[-1].split()[0]) for _, limit in rows]
    assert numbers == [
        limits.BATCH_ITEMS,
        limits.PERMISSION_QUESTIONS,
        limits.PAGE_SIZE_MAX,
        limits.ID_BYTES,
        limits.TEXT_LENGTH,
        limits.LONG_TEXT_LENGTH,
        limits.URL_LENGTH,
        limits.EMAIL_LENGTH,
        limits.WEBHOOK_TRIGGERS,
        limits.ENDPOINT_RATE_MAX,
        limits.ENDPOINTS_PER_PAGE_DEFAULT,
        limits.DOMAINS_PER_KEY,
        limits.API_KEYS_PER_WORKSPACE,
        limits.METADATA_BYTES // 2**10,
        limits.STORED_METADATA_BYTES // 2**10,
        limits.EDITOR_DATA_BYTES // 2**20,
        limits.EDITOR_VALUES,
        limits.EDITOR_XML_NODES,
        STATE_BYTES // 2**20,
        strict_json.MAX_DEPTH,
    ]
    assert limits.PAGE_SIZE_DEFAULT == limits.PAGE_SIZE_MAX
    assert f"({throttle.FAILURES} a minute from one address" in text


def test_limit_of_api_keys(standing: BackendWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "API_KEYS_PER_WORKSPACE", 3)
    owner = standing.workspace(email := "many@keys.example")
    for kind in ("testing", "production"):
        owner("create_api_key", ownerEmail=email, type=kind)

    refused = owner.refused("create_api_key", ownerEmail=email, type="testing")

    assert refused == (429, "RESOURCE_EXHAUSTED", "a workspace has at most 3 API keys")
    assert len(owner("get_workspace")["apiKeyList"]) == 3
