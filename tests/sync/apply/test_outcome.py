"""What became of one item, from what came back for it."""

import pytest

from app.client.items import item_results
from app.contract.base import ItemResult
from app.sync.apply.outcome import Fate, judge_item

CASES = [
    ("add_users", True, "User added.", None, Fate.DONE),
    ("add_users", False, "User already exists.", None, Fate.EXISTS),
    ("add_users", False, "whatever", "already-exists", Fate.EXISTS),
    ("add_users", False, "User already exists.", "internal", Fate.FAILED),
    ("add_users", False, "Folder does not exist.", None, Fate.FAILED),
    ("add_documents", False, "Document already exists.", None, Fate.EXISTS),
    ("add_folder", False, "Folder already exists.", None, Fate.EXISTS),
    ("add_organizations", False, "Organization already exists.", None, Fate.EXISTS),
    ("add_groups", False, "Group already exists.", None, Fate.DONE),
    ("add_users_to_groups", False, "whatever", "already-exists", Fate.DONE),
    ("update_users", False, "User does not exist.", None, Fate.MISSING),
    ("update_documents", False, "whatever", "not-found", Fate.MISSING),
    ("update_document_access", False, "Document not found", None, Fate.MISSING),
    ("update_users", False, "User already exists.", None, Fate.FAILED),
    ("update_users", False, "Something went wrong.", None, Fate.FAILED),
    ("delete_users", False, "User does not exist.", None, Fate.DONE),
    ("delete_documents", True, "Document does not exist", None, Fate.DONE),
    ("delete_users_from_groups", False, "whatever", "not-found", Fate.DONE),
    ("delete_users", False, "Something went wrong.", None, Fate.FAILED),
    ("delete_users", False, None, None, Fate.FAILED),
]


@pytest.mark.parametrize(("operation", "success", "message", "code", "fate"), CASES)
def test_item_is_judged_by_what_the_call_asks_for(
    operation: str, success: bool, message: str | None, code: str | None, fate: Fate
) -> None:
    answered = {"x": ItemResult(success=success, message=message, code=code)}
    outcome = judge_item(operation, item_results(answered, ["x"])["x"])
    assert outcome.fate is fate
    if fate is not Fate.DONE:
        assert outcome.message == (message or "the backend gave no reason")


def test_unanswered_item_is_unknown() -> None:
    assert judge_item("add_users", item_results({}, ["x"])["x"]).fate is Fate.UNKNOWN
