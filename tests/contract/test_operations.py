"""The table of operations, compared with the reference and with sample requests and responses."""

import pytest

from app.contract import operations
from app.contract.base import Request
from app.contract.errors import InvalidArgument, Status
from app.contract.operation import AuthLevel, Tier, UnreadableAnswerError, Verb
from app.contract.operations import OPERATIONS, by_name
from tests.contract.conftest import table

TABLE = table("operations.yaml")
REQUESTS = table("requests.yaml")


@pytest.mark.parametrize("tier", ["core", "extended"])
def test_table_contains_exactly_the_operations_of_each_tier(tier):
    found = {(op.title, op.path, op.auth.value) for op in OPERATIONS if op.tier == tier}
    assert found == {(row["title"], row["path"], row["auth"]) for row in TABLE[tier]}


def test_number_of_core_operations():
    assert sum(op.tier is Tier.CORE for op in OPERATIONS) == 26


def test_names_constants_and_paths_are_unique():
    paths = [path for op in OPERATIONS for path in op.paths]
    assert len(set(paths)) == len(paths)
    for op in OPERATIONS:
        assert getattr(operations, op.name.upper()) is op
        assert by_name(op.name) is op
        assert issubclass(op.request, Request)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("add_users", "/v2/users/add"),
        ("get_users", "/v1/users/get"),
        ("delete_documents", "/v2/organizations/documents/delete"),
        ("add_folder", "/v2/organizations/folders/add"),
        ("get_organizations_v1", None),
        ("get_organizations", None),
        ("generate_token", None),
        ("get_permissions", None),
        ("create_workspace", None),
    ],
)
def test_path_in_other_version(name, path):
    assert by_name(name).other_version_path == path


def test_items_field_and_max_items_match_the_request_model():
    for op in OPERATIONS:
        if op.items_field is None:
            continue
        aliases = {field.alias: name for name, field in op.request.model_fields.items()}
        assert op.items_field in aliases
        field_schema = str(op.request.model_json_schema()["properties"][op.items_field])
        assert f"'maxItems': {op.max_items}" in field_schema


def test_operations_with_pages_accept_a_page_token():
    for op in OPERATIONS:
        assert (op.page_token_field is not None) == ("page_token" in op.request.model_fields), op.name


def test_all_errors_by_auth_level():
    for op in OPERATIONS:
        assert (Status.UNAUTHENTICATED in op.all_errors) == (op.auth in {AuthLevel.K, AuthLevel.W})
        assert Status.INVALID_ARGUMENT in op.all_errors
        assert set(op.errors) <= set(op.all_errors)


def test_every_operation_has_a_valid_sample_request():
    understood = {name for name, cases in REQUESTS.items() if any("error" not in case for case in cases)}
    assert understood == {op.name for op in OPERATIONS}


def test_parse_of_samples(request_case):
    name, case = request_case
    operation = by_name(name)
    if "error" in case:
        with pytest.raises(InvalidArgument) as caught:
            operation.parse({"data": case["data"]})
        assert caught.value.message == case["error"]
    else:
        operation.parse({"data": case["data"]})


def test_body_of_a_parsed_request(request_case):
    name, case = request_case
    if "error" not in case:
        operation = by_name(name)
        again = operation.body(operation.parse({"data": case["data"]}))["data"]
        expected = without_declared_nulls(case["data"])
        if name == "update_notifications" and isinstance(expected["notifications"], dict):
            expected["notifications"] = [expected["notifications"]]
        assert again == expected


def without_declared_nulls(data):
    """Nulls of declared fields are absent in the parsed request."""
    shown = {key: value for key, value in data.items() if value is not None}
    if "users" in shown:
        shown["users"] = [{k: v for k, v in user.items() if v is not None} for user in shown["users"]]
    return shown


def test_read_and_respond_round_trip(answer_case):
    name, body = answer_case
    operation = by_name(name)
    answer = operation.read(body)
    assert operation.respond(answer.message, answer.data, next_page_token=answer.next_page_token) == body


def test_read_users_grouped_by_document():
    answer = operations.GET_USERS.read(
        {"result": {"status": "success", "message": "ok", "data": {"d": [{"userId": "ada"}]}, "pageToken": "t"}}
    )
    assert isinstance(answer.data, dict)
    assert answer.data["d"][0].user_id == "ada"
    assert answer.next_page_token == "t"


@pytest.mark.parametrize("token", [None, ""])
def test_read_with_an_empty_page_token_is_the_last_page(token):
    body = {"result": {"status": "success", "message": "ok", "data": [], "nextPageToken": token}}
    assert operations.GET_USERS.read(body).next_page_token is None


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "text",
        {},
        {"result": 5},
        {"result": {"status": "success", "message": "ok"}},
        {"result": {"status": "success", "message": "ok", "data": {"ada": {"message": "no success"}}}},
        {"result": {"status": "success", "message": "ok", "data": {"ada": {"success": "yes"}}}},
    ],
)
def test_read_refuses_violations_of_the_contract(body):
    with pytest.raises(UnreadableAnswerError):
        operations.ADD_USERS.read(body)


def test_read_ignores_data_of_operations_without_data():
    body = {"result": {"status": "success", "message": "ok", "data": {"anything": 1}}}
    assert operations.MOVE_DOCUMENTS.read(body).data is None
    assert operations.DELETE_FOLDER.read(body).data is None


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("get_users", Verb.READ),
        ("search_judgments", Verb.READ),
        ("add_users", Verb.ADD),
        ("create_workspace", Verb.ADD),
        ("delete_folder", Verb.DELETE),
        ("remove_permissions", Verb.DELETE),
        ("move_documents", Verb.UPDATE),
        ("disable_organizations", Verb.UPDATE),
    ],
)
def test_verb(name, verb):
    assert by_name(name).verb is verb


def test_counterparts_are_pairs_of_add_and_update():
    pairs = {op.name: op.counterpart for op in OPERATIONS if op.counterpart is not None}
    assert pairs
    for name, counterpart in pairs.items():
        assert pairs[counterpart] == name
        assert {by_name(name).verb, by_name(counterpart).verb} == {Verb.ADD, Verb.UPDATE}
        assert by_name(name).items_field == by_name(counterpart).items_field


def test_operations_that_are_not_repeatable():
    assert {op.name for op in OPERATIONS if not op.is_repeatable} == {
        "create_workspace",
        "create_api_key",
        "reset_auth_token",
        "create_advanced_webhook_endpoint",
        "migrate_documents",
        "add_comment_annotations",
        "add_comments",
        "add_notifications",
    }
    assert not any(op.is_read for op in OPERATIONS if not op.is_repeatable)


def test_probes_are_requests_without_items():
    for op in OPERATIONS:
        if op.probed_by is not None:
            assert op.probe is None
            other = by_name(op.probed_by)
            assert other.tier is Tier.EXTENDED
            assert other.probed_by is None
            assert other.empty_request("acme")
        if op.probe is not None:
            sent = op.empty_request("acme").to_wire()
            assert sent == {"organizationId": "acme", **op.probe} | ({op.items_field: []} if op.items_field else {})
