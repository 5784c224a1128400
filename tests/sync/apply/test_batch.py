"""The outcome of an item from its answer."""

import pytest

from app.client.response import UNANSWERED, item_results
from app.contract.base import ItemResult
from app.sync.apply.batch import OutcomeKind, judge_item

CASES = [
    ("add_users", True, "User added.", None, OutcomeKind.DONE),
    ("add_users", False, "User already exists.", None, OutcomeKind.EXISTS),
    ("add_users", False, "whatever", "already-exists", OutcomeKind.EXISTS),
    ("add_users", False, "User already exists.", "internal", OutcomeKind.FAILED),
    ("add_users", False, "Folder does not exist.", None, OutcomeKind.FAILED),
    ("add_documents", False, "Document already exists.", None, OutcomeKind.EXISTS),
    ("add_folder", False, "Folder already exists.", None, OutcomeKind.EXISTS),
    ("add_organizations", False, "Organization already exists.", None, OutcomeKind.EXISTS),
    ("add_groups", False, "Group already exists.", None, OutcomeKind.DONE),
    ("add_users_to_groups", False, "whatever", "already-exists", OutcomeKind.DONE),
    ("update_users", False, "User does not exist.", None, OutcomeKind.MISSING),
    ("update_documents", False, "whatever", "not-found", OutcomeKind.MISSING),
    ("update_document_access", False, "Document not found", None, OutcomeKind.MISSING),
    ("update_users", False, "User already exists.", None, OutcomeKind.FAILED),
    ("update_users", False, "Something went wrong.", None, OutcomeKind.FAILED),
    ("delete_users", False, "User does not exist.", None, OutcomeKind.DONE),
    ("delete_documents", True, "Document does not exist", None, OutcomeKind.DONE),
    ("delete_users_from_groups", False, "whatever", "not-found", OutcomeKind.DONE),
    ("delete_users", False, "Something went wrong.", None, OutcomeKind.FAILED),
    ("delete_users", False, None, None, OutcomeKind.FAILED),
]


@pytest.mark.parametrize(("operation", "success", "message", "code", "fate"), CASES)
def test_outcome_of_an_answered_item(
    operation: str, success: bool, message: str | None, code: str | None, fate: OutcomeKind
) -> None:
    answered = {"x": ItemResult(success=success, message=message, code=code)}
    outcome = judge_item(operation, item_results(answered)["x"])
    assert outcome.kind is fate
    if fate is not OutcomeKind.DONE:
        assert outcome.message == (message or "the backend gave no reason")


def test_unanswered_item_is_unknown() -> None:
    assert judge_item("add_users", UNANSWERED).kind is OutcomeKind.UNKNOWN
