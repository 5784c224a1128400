"""Turns errors into responses, and logs those that the caller did not cause.

The caller gets an envelope with a status, an HTTP code and a message written for it. The text of any other exception is
only logged, with its traceback and the request id, which the caller also gets.
"""

from collections.abc import Mapping
from types import MappingProxyType

import structlog
from flask import Flask, Response
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.wrappers import Response as BaseResponse

from app.contract.errors import (
    ERROR_CLASS,
    PAYLOAD_TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    ContractError,
    Internal,
    Status,
    Unavailable,
    error_envelope,
    status_for_http_code,
)
from app.foundation.database.errors import NoTurnError, is_outage, log_fields
from app.http.json import json_response
from app.http.request_id import current_request_id
from app.http.throttle import TooManyRequests

_log = structlog.stdlib.get_logger(__name__)

RETRY_AFTER_SECONDS = 2
"""The ``Retry-After`` of a 503: about the time of a database restart."""

_MESSAGES: Mapping[int, str] = MappingProxyType(
    {
        400: "the request could not be understood",
        404: "there is nothing at this path",
        405: "this path does not take this method",
        408: "the request took too long to arrive",
        PAYLOAD_TOO_LARGE: "the body is too large",
        414: "the address is too long",
        UNSUPPORTED_MEDIA_TYPE: "Content-Type must be application/json",
        429: "too many requests",
        431: "the headers are too large",
    }
)


def install_error_handlers(app: Flask) -> None:
    """Makes ``app`` answer every failure with an error envelope."""
    app.register_error_handler(Exception, answer_error)


def answer_error(error: Exception) -> BaseResponse:
    """The response to a request that raised ``error``. Logs the error unless the caller caused it."""
    if isinstance(error, ContractError):
        return _contract_response(error)
    if isinstance(error, HTTPException):
        return _http_response(error)
    if is_outage(error):
        _log.error("unavailable", **log_fields(error))
        is_busy = isinstance(error, NoTurnError)
        reason = (
            "too many requests are in progress" if is_busy else "the service cannot reach its database at the moment"
        )
        return _contract_response(Unavailable(f"{reason}; try again"))
    _log.error("request_failed", **log_fields(error))
    request_id = current_request_id()
    reference = f"; it is logged under request id {request_id}" if request_id else ""
    return _contract_response(Internal(f"something went wrong on this side{reference}"))


def _contract_response(error: ContractError) -> Response:
    headers: dict[str, str] = {}
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(error.retry_after)
    elif error.status is Status.UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if error.http_code == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(error_envelope(error), error.http_code, headers)


def _http_response(error: HTTPException) -> BaseResponse:
    """The envelope for an error of Flask. Redirects and ready-made responses pass."""
    code = error.code or 500
    if error.response is not None or code < 400:
        return error.get_response()
    message = _MESSAGES.get(code, "the request could not be handled")
    response = _contract_response(ERROR_CLASS[status_for_http_code(code)](message, http_code=code))
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return response
