"""Success bodies, and item results in failures."""

import pytest

from app.contract.base import ItemResult
from app.contract.envelope import FailureEnvelope, SuccessEnvelope, bare, item_failures, success
from app.contract.errors import Internal, InvalidArgument, error_envelope
from app.contract.operations import ADD_CRDT_DATA, GET_ACTIVITY_LOGS, GET_USERS, SEARCH_JUDGMENTS


def test_success_without_data_has_none():
    assert success("done") == {"result": {"status": "success", "message": "done"}}


def test_success_with_null_data_says_null():
    assert success("done", None) == {"result": {"status": "success", "message": "done", "data": None}}


def test_success_puts_models_and_token_on_the_wire():
    body = success("ok", {"ada": ItemResult(success=True, id="ada")}, next_page_token="t", token_field="pageToken")
    expected = {"status": "success", "message": "ok", "data": {"ada": {"success": True, "id": "ada"}}, "pageToken": "t"}
    assert body == {"result": expected}
    assert SuccessEnvelope.model_validate(body).result.page_token == "t"


def test_bare_result_has_no_status():
    assert bare({"results": []}) == {"result": {"results": []}}


@pytest.mark.parametrize(
    ("operation", "keys"),
    [
        (GET_USERS, {"status", "message", "data", "nextPageToken"}),
        (GET_ACTIVITY_LOGS, {"status", "message", "data", "pageToken"}),
        (ADD_CRDT_DATA, {"status", "message", "nextPageToken"}),
        (SEARCH_JUDGMENTS, {"results"}),
    ],
)
def test_operation_responds_in_its_own_envelope(operation, keys):
    data = {"results": []} if operation is SEARCH_JUDGMENTS else []
    assert set(operation.respond("ok", data, next_page_token="t")["result"]) == keys


def test_failure_envelope_reads_item_details():
    error = Internal("partly", details={"d": {"success": False, "message": "x", "code": "not-found"}})
    parsed = FailureEnvelope.model_validate(error_envelope(error))
    assert parsed.error.details is not None
    assert parsed.error.details["d"].code == "not-found"


def test_item_failures_leaves_out_what_cannot_be_read():
    error = Internal("partly", details={"a": {"success": True}, "b": "what", "c": {"success": "yes"}})
    assert item_failures(error) == {"a": ItemResult(success=True)}


def test_item_failures_of_an_error_without_details_is_empty():
    assert item_failures(InvalidArgument("no")) == {}
