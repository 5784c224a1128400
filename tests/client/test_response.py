"""Items of batches."""

import pytest

from app.client.response import ItemAnswer, item_results, readable_items
from app.contract.base import ItemResult


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"success": True, "message": "User added."}, ItemAnswer(True, "User added.")),
        ({"success": True, "message": "Document does not exist"}, ItemAnswer(True, "Document does not exist")),
        ({"success": False, "message": "User does not exist."}, ItemAnswer(False, "User does not exist.", "not-found")),
        ({"success": False, "message": "Folder not found"}, ItemAnswer(False, "Folder not found", "not-found")),
        (
            {"success": False, "message": "Group already exists."},
            ItemAnswer(False, "Group already exists.", "already-exists"),
        ),
        ({"success": False, "code": "ALREADY_EXISTS"}, ItemAnswer(False, "", "already-exists")),
        ({"success": False, "code": "internal", "message": "not found"}, ItemAnswer(False, "not found", "internal")),
        ({"success": False, "message": "unknown error"}, ItemAnswer(False, "unknown error")),
        ({"success": False}, ItemAnswer(False)),
    ],
)
def test_item_results_read_codes_and_messages(item: dict[str, object], expected: ItemAnswer) -> None:
    assert item_results({"x": ItemResult.from_wire(item)}) == {"x": expected}


def test_item_results_recognize_existing_and_missing_items() -> None:
    assert ItemAnswer(False, code="already-exists").already_exists
    assert ItemAnswer(False, code="not-found").does_not_exist
    assert not ItemAnswer(False, code="internal").already_exists


@pytest.mark.parametrize(
    ("value", "names"),
    [({}, []), ({"a": {"success": True}, "b": 1}, ["a"]), ({"a": 1}, None), ([], None), (None, None)],
)
def test_readable_items(value: object, names: list[str] | None) -> None:
    items = readable_items(value)
    assert (None if items is None else list(items)) == names
