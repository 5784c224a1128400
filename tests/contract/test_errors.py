"""Conversion of errors to envelopes and back."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.contract import errors
from app.contract.errors import (
    ERROR_CLASS,
    HTTP_CODE,
    ContractError,
    Internal,
    InvalidArgument,
    NotFound,
    Status,
    Unavailable,
    error_envelope,
    error_from_envelope,
)

CODES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
}


def test_every_status_has_an_http_code_and_a_class():
    assert {str(status): code for status, code in HTTP_CODE.items()} == CODES
    assert set(ERROR_CLASS) == set(Status)


def test_docstring_contains_the_tree_of_classes():
    for status, cls in ERROR_CLASS.items():
        assert f"── {cls.__name__} " in (errors.__doc__ or "")
        line = next(line for line in (errors.__doc__ or "").splitlines() if f" {status} " in line)
        assert cls.__name__ in line
        assert str(HTTP_CODE[status]) in line


@given(
    st.sampled_from(Status),
    st.text(min_size=1),
    st.none() | st.integers(400, 599),
    st.none() | st.dictionaries(st.text(), st.dictionaries(st.text(), st.booleans())),
    st.none() | st.integers(),
)
def test_error_envelope_round_trip(status, message, http_code, details, code):
    error = ERROR_CLASS[status](message, http_code=http_code, details=details, code=code)
    back = error_from_envelope(error.http_code, error_envelope(error))
    assert type(back) is ERROR_CLASS[status]
    assert (back.status, back.message, back.http_code, back.details, back.code) == (
        status,
        message,
        error.http_code,
        details,
        code,
    )


def test_error_envelope_without_optional_fields():
    assert error_envelope(NotFound("no such key")) == {"error": {"status": "NOT_FOUND", "message": "no such key"}}


def test_error_with_a_more_specific_http_code():
    error = InvalidArgument("too large", http_code=errors.PAYLOAD_TOO_LARGE)
    assert error.http_code == 413
    assert error_envelope(error)["error"] == {"status": "INVALID_ARGUMENT", "message": "too large"}


@pytest.mark.parametrize(
    ("http_code", "body", "status"),
    [
        (400, {"error": {"status": "FAILED_PRECONDITION", "message": "m"}}, Status.FAILED_PRECONDITION),
        (400, {"error": {"status": "SOMETHING_NEW", "message": "m"}}, Status.INVALID_ARGUMENT),
        (404, {"error": {"status": 404, "message": "m"}}, Status.NOT_FOUND),
        (404, "<html>", Status.NOT_FOUND),
        (401, None, Status.UNAUTHENTICATED),
        (403, {}, Status.PERMISSION_DENIED),
        (409, {"error": "x"}, Status.ALREADY_EXISTS),
        (418, {}, Status.INVALID_ARGUMENT),
        (429, [], Status.RESOURCE_EXHAUSTED),
        (500, b"", Status.INTERNAL),
        (502, "", Status.UNAVAILABLE),
        (504, "", Status.UNAVAILABLE),
        (599, "", Status.INTERNAL),
    ],
)
def test_error_from_envelope_uses_status_then_http_code(http_code, body, status):
    error = error_from_envelope(http_code, body)
    assert error.status is status
    assert error.http_code == http_code


def test_error_from_an_unreadable_body():
    assert error_from_envelope(502, "<html>").message == "HTTP 502 without a readable error message"


@given(
    st.integers(300, 599),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["error", "status", "message", "details", "code"]), inner)
        ),
    ),
)
def test_error_from_envelope_never_raises(http_code, body):
    error = error_from_envelope(http_code, body)
    assert isinstance(error, ContractError)
    assert error.message


def test_error_from_envelope_keeps_the_numeric_code():
    assert error_from_envelope(400, {"error": {"code": 13, "message": "m"}}).code == 13


def test_error_can_be_pickled():
    error = Internal("partly", details={"a": {"success": True}}, code=5)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is Internal
    assert (back.message, back.details, back.code, back.http_code) == ("partly", error.details, 5, 500)


def test_error_as_text():
    assert str(Unavailable("later")) == "UNAVAILABLE: later"
