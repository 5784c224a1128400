"""Envelopes of successes and failures."""

import pytest

from app.contract.base import ItemResult
from app.contract.errors import Internal, error_envelope
from app.contract.openapi import FailureEnvelope
from app.contract.operations import ADD_CRDT_DATA, ADD_USERS, GET_ACTIVITY_LOGS, GET_USERS, SEARCH_JUDGMENTS


def test_respond_converts_models():
    body = ADD_USERS.respond("ok", {"ada": ItemResult(success=True, id="ada")})
    assert body == {"result": {"status": "success", "message": "ok", "data": {"ada": {"success": True, "id": "ada"}}}}


@pytest.mark.parametrize(
    ("operation", "keys"),
    [
        (GET_USERS, {"status", "message", "data", "nextPageToken"}),
        (GET_ACTIVITY_LOGS, {"status", "message", "data", "pageToken"}),
        (ADD_CRDT_DATA, {"status", "message", "nextPageToken"}),
        (SEARCH_JUDGMENTS, {"results"}),
    ],
)
def test_respond_in_the_envelope_of_the_operation(operation, keys):
    data = {"results": []} if operation is SEARCH_JUDGMENTS else []
    assert set(operation.respond("ok", data, next_page_token="t")["result"]) == keys


def test_failure_envelope_parses_details():
    error = Internal("partly", details={"d": {"success": False, "message": "x", "code": "not-found"}})
    parsed = FailureEnvelope.model_validate(error_envelope(error))
    assert parsed.error.details is not None
    assert parsed.error.details["d"].code == "not-found"
