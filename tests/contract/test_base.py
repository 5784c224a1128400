"""Strict types, limits, paths in messages and undeclared fields of the wire models."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.contract import limits
from app.contract.base import NoParameters, wire_value
from app.contract.errors import InvalidArgument
from app.contract.notifications import TemplateData
from app.contract.operations import ADD_USERS, OPERATIONS, by_name
from app.contract.organizations import AddOrganizationsRequest, Organization, OrganizationInput
from app.contract.users import AddUsersRequest, UserInput
from app.contract.validation import first_error, parse_request

JSON_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(JSON_TEXT, inner, max_size=4),
    max_leaves=12,
)


def refusal(model, body):
    with pytest.raises(InvalidArgument) as caught:
        parse_request(model, body)
    return caught.value.message


@pytest.mark.parametrize("body", [None, [], "data", 5, True, [{"data": {}}]])
def test_parse_request_refuses_a_body_that_is_not_an_object(body):
    assert refusal(NoParameters, body) == 'the body must be an object of the form {"data": {...}}'


@pytest.mark.parametrize("data", [None, [], "x", 5, True])
def test_parse_request_refuses_data_that_is_not_an_object(data):
    assert refusal(NoParameters, {"data": data}) == "data: must be an object"


def test_parse_request_requires_data():
    assert refusal(NoParameters, {}) == "data: field required"


def test_parse_request_accepts_only_wire_names():
    assert refusal(AddUsersRequest, {"data": {"organization_id": "acme", "users": []}}) == (
        "data.organizationId: field required"
    )


@given(st.dictionaries(JSON_TEXT, JSON, max_size=5))
def test_undeclared_fields_are_kept_unchanged(metadata):
    known = {"organizationId": "acme", "organizationName": "Acme"}
    item = {**metadata, **known}
    request = parse_request(AddOrganizationsRequest, {"data": {"organizations": [item]}})
    if item.get("disabled") is None:
        item.pop("disabled", None)
    assert request.to_wire() == {"organizations": [item]}
    assert request.organizations[0].organization_id == "acme"


@given(JSON)
def test_parse_raises_only_invalid_argument(data):
    for operation in OPERATIONS:
        with suppress(InvalidArgument):
            operation.parse({"data": data})


def test_unknown_fields_contains_only_undeclared_fields():
    user = UserInput.from_wire({"userId": "ada", "team": {"name": "core"}, "user_id": "other"})
    assert user.user_id == "ada"
    assert user.unknown_fields() == {"team": {"name": "core"}, "user_id": "other"}


def test_null_is_absent_only_for_declared_fields():
    user = UserInput.from_wire({"userId": "ada", "accessRole": None, "team": None})
    assert "access_role" not in user.model_fields_set
    assert user.to_wire() == {"userId": "ada", "team": None}


def test_absent_access_role_is_none():
    assert UserInput.from_wire({"userId": "ada"}).access_role is None
    assert UserInput.from_wire({"userId": "ada", "accessRole": "editor"}).access_role == "editor"


def test_request_from_python_names_and_undeclared_fields():
    request = AddUsersRequest(organization_id="acme", document_id=None, users=[UserInput(user_id="ada", photoUrl="x")])
    assert request.to_wire() == {"organizationId": "acme", "users": [{"userId": "ada", "photoUrl": "x"}]}


def test_requests_are_immutable():
    with pytest.raises(ValidationError):
        UserInput(user_id="ada").user_id = "bob"  # type: ignore[misc]  # what is tried


def test_wire_value_converts_models_at_any_depth():
    acme = Organization(id="acme", organization_name=None)
    assert wire_value({"a": [acme, (acme,)], "b": 1}) == {
        "a": [{"id": "acme", "organizationName": None}, [{"id": "acme", "organizationName": None}]],
        "b": 1,
    }


@pytest.mark.parametrize(
    ("organization_id", "message"),
    [
        ("x" * limits.ID_LENGTH, None),
        ("x" * (limits.ID_LENGTH + 1), "data.organizationId: must be at most 512 characters long"),
        ("🦉" * (limits.ID_BYTES // 4), None),
        ("🦉" * (limits.ID_BYTES // 4 + 1), "data.organizationId: must be at most 512 bytes long in UTF-8"),
        ("\ud800", "data.organizationId: must be valid Unicode text"),
        ("", "data.organizationId: must not be empty"),
        (" ", None),
        ("a/b?c#d%2F'\";--\n", None),
    ],
)
def test_id_bounds(organization_id, message):
    body = {"data": {"organizationId": organization_id, "users": []}}
    if message is None:
        assert parse_request(AddUsersRequest, body).organization_id == organization_id
    else:
        assert refusal(AddUsersRequest, body) == message


SAMPLE = {
    "users": {"userId": "ada"},
    "folders": {"folderId": "specs"},
    "documents": {"documentId": "roadmap"},
    "organizations": {"organizationId": "acme"},
    "organizationUserGroups": {"groupId": "eng"},
    "notifications": {"id": "n"},
    "commentAnnotations": {"commentData": [{"commentText": "hi", "from": {"userId": "ada"}}]},
    "commentData": {"commentText": "hi", "from": {"userId": "ada"}},
    "activities": {"featureType": "comment", "actionType": "comment.add", "actionUser": {"userId": "ada"}},
}
REST = {
    "organizationId": "acme",
    "organizationUserGroupId": "eng",
    "documentId": "roadmap",
    "annotationId": "a",
    "disabled": True,
    "accessType": "public",
    "updatedData": {},
}


@pytest.mark.parametrize("name", [op.name for op in OPERATIONS if op.items_field is not None])
def test_batch_limit(name):
    operation = by_name(name)
    items_field, limit = operation.items_field, operation.max_items
    assert items_field is not None
    rest = {"folderId": "specs", **REST} if name == "move_documents" else REST
    if name == "get_users":
        rest = {"organizationId": "acme"}

    def body(count):
        items = [SAMPLE.get(items_field, f"item{number}") for number in range(count)]
        needed = {key: rest[key] for key in rest if key in wire_names(operation.request)}
        if operation.request.__name__.endswith("UsersRequest"):
            needed.pop("documentId", None)
        return {"data": {**needed, items_field: items}}

    operation.parse(body(limit))
    expected = f"data.{items_field}: must hold at most {limit} items, not {limit + 1}"
    assert refusal(operation.request, body(limit + 1)) == expected


def wire_names(model):
    return {field.alias for field in model.model_fields.values()}


@pytest.mark.parametrize(
    ("name", "data", "field", "limit", "ending"),
    [
        ("get_users", {"organizationId": "a"}, "organizationUserGroupIds", limits.IDS_PER_READ, "items, not 31"),
        ("get_permissions", {"organizationId": "a", "userIds": []}, "folderIds", 1000, "items, not 1001"),
        ("get_permissions", {"organizationId": "a", "userIds": []}, "documentIds", 1000, "items, not 1001"),
    ],
)
def test_list_limit(name, data, field, limit, ending):
    operation = by_name(name)
    operation.parse({"data": {**data, field: ["x"] * limit}})
    message = refusal(operation.request, {"data": {**data, field: ["x"] * (limit + 1)}})
    assert message == f"data.{field}: must hold at most {limit} {ending}"


@pytest.mark.parametrize(
    ("name", "data", "field", "limit"),
    [
        ("create_workspace", {"ownerEmail": "a@acme.example"}, "name", limits.WORKSPACE_NAME_LENGTH),
        ("create_workspace", {"ownerEmail": "a@acme.example"}, "workspaceName", limits.WORKSPACE_NAME_LENGTH),
        ("create_workspace", {}, "ownerEmail", limits.EMAIL_LENGTH),
        ("add_organizations", None, "organizationName", limits.TEXT_LENGTH),
        ("get_users", {"organizationId": "a"}, "pageToken", limits.PAGE_TOKEN_LENGTH),
    ],
)
def test_text_limit(name, data, field, limit):
    operation = by_name(name)

    def body(length):
        value = {field: "é" * length}
        if data is None:
            return {"data": {"organizations": [{"organizationId": "acme", **value}]}}
        return {"data": {**data, **value}}

    operation.parse(body(limit))
    assert refusal(operation.request, body(limit + 1)).endswith(f"{field}: must be at most {limit} characters long")


def test_avatar_limit():
    operation = by_name("create_workspace")
    address = "https://acme.example/"
    longest = address + "a" * (limits.AVATAR_LENGTH - len(address))
    operation.parse({"data": {"ownerEmail": "a@acme.example", "avatar": longest}})
    message = refusal(operation.request, {"data": {"ownerEmail": "a@acme.example", "avatar": longest + "a"}})
    assert message == "data.avatar: must be at most 2000 characters long"


def test_first_error_shortens_and_escapes_keys():
    with pytest.raises(ValidationError) as caught:
        TemplateData.from_wire({"k" * 200: 5})
    assert first_error(caught.value, {"k" * 200: 5}) == f"data.{'k' * 80}…: must be a string"
    with pytest.raises(ValidationError) as caught:
        TemplateData.from_wire({"a\nb": 5})
    assert first_error(caught.value, {"a\nb": 5}) == r"data.'a\nb': must be a string"


def test_error_does_not_contain_the_input():
    with pytest.raises(InvalidArgument) as caught:
        by_name("generate_token").parse({"data": {"apiKey": "k", "authToken": ["s3cret"], "userId": "ada"}})
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("generate_token", {"apiKey": "k", "authToken": "s3cret", "userId": "ada"}),
        ("update_permission_provider_config", {"permissionProviderConfig": {"authToken": "s3cret"}}),
        ("update_webhook_config", {"webhookServiceConfig": {"authToken": "s3cret"}}),
        ("update_email_config", {"emailServiceConfig": {"apiKey": "s3cret"}}),
    ],
)
def test_repr_contains_no_secret(name, data):
    assert "s3cret" not in repr(by_name(name).parse({"data": data}))


def test_add_users_round_trip_of_a_thousand_users():
    users = [{"userId": f"u{n}", "name": f"User {n}", "email": f"u{n}@acme.example", "n": n} for n in range(1000)]
    body = {"data": {"organizationId": "acme", "users": users}}
    assert ADD_USERS.body(ADD_USERS.parse(body)) == body


def test_organization_input_from_python_names():
    assert OrganizationInput(organization_id="acme", organization_name="Acme").to_wire() == {
        "organizationId": "acme",
        "organizationName": "Acme",
    }


def test_parse_request_reports_the_first_of_many_problems():
    users = [{"userId": n} for n in range(1000)]
    message = refusal(AddUsersRequest, {"data": {"organizationId": "acme", "users": users}})
    assert message == "data.users[0].userId: must be a string"
