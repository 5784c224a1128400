"""Items of batches."""

import pytest

from app.client.items import ItemResult, item_ids, item_results, readable_items
from app.contract import operations
from app.contract.base import ItemResult as WireItem
from app.contract.operation import AnyOperation

REQUESTS = [
    (operations.ADD_USERS, {"organizationId": "o", "users": [{"userId": "a"}, {"userId": "b"}]}, ["a", "b"]),
    (operations.DELETE_USERS, {"organizationId": "o", "userIds": ["a", "b"]}, ["a", "b"]),
    (operations.ADD_FOLDER, {"organizationId": "o", "folders": [{"folderId": "f", "parentFolderId": "p"}]}, ["f"]),
    (operations.ADD_DOCUMENTS, {"organizationId": "o", "documents": [{"documentId": "d"}]}, ["d"]),
    (
        operations.ADD_GROUPS,
        {"organizationId": "o", "organizationUserGroups": [{"groupId": "g", "groupName": "G"}]},
        ["g"],
    ),
    (operations.ADD_ORGANIZATIONS, {"organizations": [{"organizationId": "o", "organizationName": "O"}]}, ["o"]),
    (operations.UPDATE_DOCUMENT_ACCESS, {"organizationId": "o", "documentIds": ["d"], "accessType": "public"}, ["d"]),
    (operations.DELETE_FOLDER, {"organizationId": "o", "folderId": "f"}, []),
]


@pytest.mark.parametrize(("operation", "data", "ids"), REQUESTS, ids=[row[0].name for row in REQUESTS])
def test_item_ids_of_a_request(operation: AnyOperation, data: dict[str, object], ids: list[str]) -> None:
    assert item_ids(operation, operation.parse({"data": data})) == ids


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"success": True, "message": "User added."}, ItemResult(True, "User added.")),
        ({"success": True, "message": "Document does not exist"}, ItemResult(True, "Document does not exist")),
        ({"success": False, "message": "User does not exist."}, ItemResult(False, "User does not exist.", "not-found")),
        ({"success": False, "message": "Folder not found"}, ItemResult(False, "Folder not found", "not-found")),
        (
            {"success": False, "message": "Group already exists."},
            ItemResult(False, "Group already exists.", "already-exists"),
        ),
        ({"success": False, "code": "ALREADY_EXISTS"}, ItemResult(False, "", "already-exists")),
        ({"success": False, "code": "internal", "message": "not found"}, ItemResult(False, "not found", "internal")),
        ({"success": False, "message": "unknown error"}, ItemResult(False, "unknown error")),
        ({"success": False}, ItemResult(False)),
    ],
)
def test_item_results_read_codes_and_messages(item: dict[str, object], expected: ItemResult) -> None:
    assert item_results({"x": WireItem.from_wire(item)}, ["x"]) == {"x": expected}


def test_item_results_say_what_is_already_so() -> None:
    assert ItemResult(False, code="already-exists").already_exists
    assert ItemResult(False, code="not-found").does_not_exist
    assert not ItemResult(False, code="internal").already_exists


def test_item_results_keep_the_order_asked_for() -> None:
    answered = {name: WireItem(success=True) for name in "cab"}
    assert list(item_results(answered, ["a", "b", "z", "c"])) == ["a", "b", "z", "c"]


@pytest.mark.parametrize(
    ("value", "names"),
    [({}, []), ({"a": {"success": True}, "b": 1}, ["a"]), ({"a": 1}, None), ([], None), (None, None)],
)
def test_readable_items(value: object, names: list[str] | None) -> None:
    items = readable_items(value)
    assert (None if items is None else list(items)) == names
