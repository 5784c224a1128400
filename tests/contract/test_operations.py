"""The table against the reference, and each operation against sample requests and answers."""

from pathlib import Path

import pytest
import yaml

from app.contract import operations
from app.contract.base import Request
from app.contract.errors import InvalidArgument, Status
from app.contract.operation import AuthLevel, Tier, UnreadableAnswerError, Verb
from app.contract.operations import OPERATIONS, by_name

TABLE = yaml.safe_load((Path(__file__).parent / "data" / "operations.yaml").read_text(encoding="utf-8"))
REQUESTS = yaml.safe_load((Path(__file__).parent / "data" / "requests.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("tier", ["core", "extended"])
def test_table_holds_exactly_the_operations_of_each_tier(tier):
    held = {(op.title, op.path, op.auth.value) for op in OPERATIONS if op.tier == tier}
    assert held == {(row["title"], row["path"], row["auth"]) for row in TABLE[tier]}


def test_table_has_the_references_twenty_six():
    assert sum(op.tier is Tier.CORE for op in OPERATIONS) == 26


def test_every_operation_has_its_own_name_constant_and_paths():
    paths = [path for op in OPERATIONS for path in op.paths]
    assert len(set(paths)) == len(paths)
    for op in OPERATIONS:
        assert getattr(operations, op.name.upper()) is op
        assert by_name(op.name) is op
        assert issubclass(op.request, Request)


@pytest.mark.parametrize(
    ("name", "twin"),
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
def test_operation_twin_path(name, twin):
    assert by_name(name).twin_path == twin


def test_items_field_is_a_field_of_the_request_and_max_items_its_limit():
    for op in OPERATIONS:
        if op.items_field is None:
            continue
        aliases = {field.alias: name for name, field in op.request.model_fields.items()}
        assert op.items_field in aliases
        field_schema = str(op.request.model_json_schema()["properties"][op.items_field])
        assert f"'maxItems': {op.max_items}" in field_schema


def test_reads_with_a_page_token_take_one():
    for op in OPERATIONS:
        assert (op.page_token_field is not None) == ("page_token" in op.request.model_fields), op.name


def test_all_errors_of_an_operation_follow_its_auth_level():
    for op in OPERATIONS:
        assert (Status.UNAUTHENTICATED in op.all_errors) == (op.auth in {AuthLevel.K, AuthLevel.W})
        assert Status.INVALID_ARGUMENT in op.all_errors
        assert set(op.errors) <= set(op.all_errors)


def test_every_operation_has_a_sample_request_that_is_understood():
    understood = {name for name, cases in REQUESTS.items() if any("error" not in case for case in cases)}
    assert understood == {op.name for op in OPERATIONS}


def test_operation_parse_of_a_sample(request_case):
    name, case = request_case
    operation = by_name(name)
    if "error" in case:
        with pytest.raises(InvalidArgument) as caught:
            operation.parse({"data": case["data"]})
        assert caught.value.message == case["error"]
    else:
        operation.parse({"data": case["data"]})


def test_operation_body_gives_a_parsed_request_back(request_case):
    name, case = request_case
    if "error" not in case:
        operation = by_name(name)
        again = operation.body(operation.parse({"data": case["data"]}))["data"]
        expected = without_declared_nulls(case["data"])
        if name == "update_notifications" and isinstance(expected["notifications"], dict):
            expected["notifications"] = [expected["notifications"]]
        assert again == expected


def without_declared_nulls(data):
    """The samples have nulls where a declared field counts as not given, and within CRDT data."""
    shown = {key: value for key, value in data.items() if value is not None}
    if "users" in shown:
        shown["users"] = [{k: v for k, v in user.items() if v is not None} for user in shown["users"]]
    return shown


def test_operation_read_and_respond_keep_a_sample_answer(answer_case):
    name, body = answer_case
    operation = by_name(name)
    answer = operation.read(body)
    assert operation.respond(answer.message, answer.data, next_page_token=answer.next_page_token) == body


def test_get_users_reads_users_grouped_by_document():
    answer = operations.GET_USERS.read(
        {"result": {"status": "success", "message": "ok", "data": {"d": [{"userId": "ada"}]}, "pageToken": "t"}}
    )
    assert isinstance(answer.data, dict)
    assert answer.data["d"][0].user_id == "ada"
    assert answer.next_page_token == "t"


@pytest.mark.parametrize("token", [None, ""])
def test_operation_read_takes_an_empty_page_token_for_the_last_page(token):
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
def test_operation_read_refuses_what_the_contract_does_not_promise(body):
    with pytest.raises(UnreadableAnswerError):
        operations.ADD_USERS.read(body)


def test_operation_without_data_does_not_look_at_what_a_deployment_sends():
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
def test_verb_is_what_it_does_to_the_things_it_names(name, verb):
    assert by_name(name).verb is verb


def test_counterparts_are_an_add_and_an_update_that_name_each_other():
    pairs = {op.name: op.counterpart for op in OPERATIONS if op.counterpart is not None}
    assert pairs
    for name, counterpart in pairs.items():
        assert pairs[counterpart] == name
        assert {by_name(name).verb, by_name(counterpart).verb} == {Verb.ADD, Verb.UPDATE}
        assert by_name(name).items_field == by_name(counterpart).items_field


def test_only_what_makes_something_new_each_time_is_not_repeatable():
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
