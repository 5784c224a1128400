"""Plan items as requests of the contract."""

import json
from typing import Any

import pytest

from app.contract import operations as contract
from app.contract.errors import Status
from app.contract.operation import Tier
from app.sync.apply.requests import NotExpressibleError, RequestForm, batch_limit, request_of
from app.sync.plan.rules import RULES
from app.sync.plan.stored import PlanItem


def item(kind: str, operation: str, item_id: str = "x", **fields: Any) -> PlanItem:
    values: dict[str, Any] = {
        "plan_id": "p",
        "ordinal": 1,
        "phase": 0,
        "action": "",
        "organization_id": "acme",
        "container_id": "",
        "scope": "[]",
        "digest": "",
        "parent_id": "",
        "access_type": "",
        "access_role": "",
        "disabled": False,
        "payload": "",
        "reason": "",
        "covered_by": None,
        "status": "planned",
        "message": "",
    }
    return PlanItem(**values | {"kind": kind, "operation": operation, "item_id": item_id} | fields)


ADA = json.dumps({"userId": "ada", "name": "Ada", "email": "ada@acme.example", "photoUrl": "p"})
DOCUMENT = json.dumps({"documentId": "x", "documentName": "X"})
FOLDER = json.dumps({"folderId": "x", "folderName": "X"})

CASES: list[tuple[PlanItem, dict[str, Any]]] = [
    (
        item("organization", "add_organizations", payload='{"organizationId":"x","organizationName":"X","plan":1}'),
        {"organizations": [{"organizationId": "x", "organizationName": "X", "plan": 1}]},
    ),
    (
        item("organization", "disable_organizations", disabled=True),
        {"organizationIds": ["x"], "disabled": True},
    ),
    (item("organization", "delete_organizations"), {"organizationIds": ["x"]}),
    (
        item("folder", "add_folder", payload=FOLDER, parent_id="up", access_type="restricted"),
        {
            "organizationId": "acme",
            "folders": [{"folderId": "x", "folderName": "X", "parentFolderId": "up", "accessType": "restricted"}],
        },
    ),
    (
        item("folder", "update_folder", payload=FOLDER),
        {"organizationId": "acme", "folders": [{"folderId": "x", "folderName": "X", "parentFolderId": "root"}]},
    ),
    (
        item("folder", "update_folder_access", access_type="public"),
        {"organizationId": "acme", "folderIds": ["x"], "accessType": "public"},
    ),
    (
        item("folder", "update_folder_access"),
        {"organizationId": "acme", "folderIds": ["x"], "inheritFromParent": True},
    ),
    (item("folder", "delete_folder"), {"organizationId": "acme", "folderId": "x"}),
    (
        item("document", "add_documents", payload=DOCUMENT, parent_id="up"),
        {"organizationId": "acme", "folderId": "up", "documents": [{"documentId": "x", "documentName": "X"}]},
    ),
    (
        item("document", "add_documents", payload=DOCUMENT),
        {"organizationId": "acme", "documents": [{"documentId": "x", "documentName": "X"}]},
    ),
    (
        item("document", "move_documents"),
        {"organizationId": "acme", "documentIds": ["x"], "folderId": "root"},
    ),
    (
        item("document", "update_document_access", access_type="public"),
        {"organizationId": "acme", "documentIds": ["x"], "accessType": "public"},
    ),
    (item("document", "delete_documents"), {"organizationId": "acme", "documentIds": ["x"]}),
    (
        item("group", "add_groups", payload='{"organizationUserGroupId":"x","groupName":"X"}'),
        {"organizationId": "acme", "organizationUserGroups": [{"groupId": "x", "groupName": "X"}]},
    ),
    (
        item("group", "delete_users_from_groups"),
        {"organizationId": "acme", "organizationUserGroupId": "x", "deleteAll": True},
    ),
    (
        item("groupMember", "delete_users_from_groups", "ada", container_id="eng"),
        {"organizationId": "acme", "organizationUserGroupId": "eng", "userIds": ["ada"]},
    ),
    (
        item("groupMember", "add_users_to_groups", "ada", container_id="eng"),
        {"organizationId": "acme", "organizationUserGroupId": "eng", "userIds": ["ada"]},
    ),
    (
        item("organizationUser", "add_users", "ada", payload=ADA, access_role="viewer"),
        {"organizationId": "acme", "users": [json.loads(ADA) | {"accessRole": "viewer"}]},
    ),
    (
        item("folderUser", "update_users", "ada", container_id="specs", payload=ADA, access_role="editor"),
        {"organizationId": "acme", "folderId": "specs", "users": [json.loads(ADA) | {"accessRole": "editor"}]},
    ),
    (
        item("documentUser", "delete_users", "ada", container_id="roadmap"),
        {"organizationId": "acme", "documentId": "roadmap", "userIds": ["ada"]},
    ),
]


@pytest.mark.parametrize(("planned", "data"), CASES, ids=[f"{one.kind}-{one.operation}" for one, _ in CASES])
def test_items_become_requests_of_the_contract(planned: PlanItem, data: dict[str, Any]) -> None:
    assert request_of(planned.operation, [planned]).to_wire() == data


@pytest.mark.parametrize("operation", ["add_users", "update_users"])
@pytest.mark.parametrize("form", [RequestForm(), RequestForm(without_roles=True)])
def test_fields_of_a_user_do_not_set_access(operation: str, form: RequestForm) -> None:
    payload = json.dumps(json.loads(ADA) | {"accessRole": "admin", "expiresAt": "2030-01-01"})
    request = request_of(operation, [item("organizationUser", operation, "ada", payload=payload)], form)
    assert request.to_wire()["users"] == [json.loads(ADA)]


def test_every_operation_of_a_plan_has_a_request() -> None:
    for rule in RULES:
        planned = item(rule.kind.value, rule.operation, container_id="c", access_type="public", payload="{}")
        request = request_of(rule.operation, [planned])
        assert isinstance(request, contract.by_name(rule.operation).request)


def test_form_without_roles_omits_roles_and_access_types() -> None:
    without_roles = RequestForm(without_roles=True)
    user = request_of(
        "add_users", [item("organizationUser", "add_users", "ada", payload=ADA, access_role="viewer")], without_roles
    )
    assert user.to_wire()["users"] == [json.loads(ADA)]
    folder = request_of(
        "add_folder", [item("folder", "add_folder", payload=FOLDER, access_type="public")], without_roles
    )
    assert folder.to_wire()["folders"] == [json.loads(FOLDER)]


def test_requests_create_containers_that_no_operation_adds() -> None:
    form = RequestForm(without_roles=True, make_documents=True, make_organizations=True)
    on_document = item("documentUser", "add_users", "ada", container_id="roadmap", payload=ADA)
    assert request_of("add_users", [on_document], form).to_wire()["createDocument"] is True
    on_folder = item("folderUser", "add_users", "ada", container_id="specs", payload=ADA)
    assert "createDocument" not in request_of("add_users", [on_folder], form).to_wire()
    folder = request_of("add_folder", [item("folder", "add_folder", payload=FOLDER)], form)
    assert folder.to_wire()["createOrganization"] is True


def test_document_s_own_type_cannot_be_taken_away() -> None:
    with pytest.raises(NotExpressibleError):
        request_of("update_document_access", [item("document", "update_document_access")])


def test_batches_are_bounded_by_the_setting_and_by_the_contract() -> None:
    assert batch_limit("add_users", 200) == 200
    assert batch_limit("move_documents", 200) == 30
    assert batch_limit("move_documents", 7) == 7
    assert batch_limit("delete_folder", 200) == 1


PROBED = sorted(
    {
        rule.operation
        for rule in RULES
        if contract.by_name(rule.operation).tier is Tier.EXTENDED
        and Status.NOT_FOUND in contract.by_name(rule.operation).errors
        and rule.operation != "delete_folder"
    }
)


@pytest.mark.parametrize("operation", PROBED)
def test_probe_carries_no_items(operation: str) -> None:
    data = contract.by_name(operation).empty_request("acme").to_wire()
    assert data["organizationId"] == "acme"
    assert data[str(contract.by_name(operation).items_field)] == []


@pytest.mark.parametrize(
    "operation",
    sorted(
        {
            rule.operation
            for rule in RULES
            if contract.by_name(rule.operation).tier is Tier.EXTENDED and not rule.operation.startswith("delete_")
        }
    ),
)
def test_every_operation_that_may_be_unsupported_can_be_asked_about(operation: str) -> None:
    assert (
        contract.by_name(operation).empty_request("acme").to_wire()[str(contract.by_name(operation).items_field)] == []
    )
