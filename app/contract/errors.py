# ruff: noqa: N818 - the classes are called what their statuses are called.
"""Errors of the API: statuses, HTTP codes, and their exceptions.

    ContractError
    ├── InvalidArgument      INVALID_ARGUMENT     400   the request is invalid; do not retry
    ├── FailedPrecondition   FAILED_PRECONDITION  400   a feature or option has to be switched on first
    ├── Unauthenticated      UNAUTHENTICATED      401   credentials are missing
    ├── PermissionDenied     PERMISSION_DENIED    403   credentials are wrong or insufficient
    ├── NotFound             NOT_FOUND            404   the item or path does not exist
    ├── AlreadyExists        ALREADY_EXISTS       409
    ├── ResourceExhausted    RESOURCE_EXHAUSTED   429   rate limit or quota exceeded
    ├── Internal             INTERNAL             500   the backend's fault; ``details`` may list items
    ├── Unimplemented        UNIMPLEMENTED        501   not implemented
    └── Unavailable          UNAVAILABLE          503   temporarily unavailable; retry

One class per wire status. ``error_envelope`` turns an error into a response body, ``error_from_envelope`` turns a
response back into the error. If HTTP has a more specific code (405, 413, 415), the status
is INVALID_ARGUMENT and ``http_code`` has that code.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar


class Status(StrEnum):
    """The values of ``error.status``."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    INTERNAL = "INTERNAL"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    UNAVAILABLE = "UNAVAILABLE"


HTTP_CODE: Mapping[Status, int] = MappingProxyType(
    {
        Status.INVALID_ARGUMENT: 400,
        Status.FAILED_PRECONDITION: 400,
        Status.UNAUTHENTICATED: 401,
        Status.PERMISSION_DENIED: 403,
        Status.NOT_FOUND: 404,
        Status.ALREADY_EXISTS: 409,
        Status.RESOURCE_EXHAUSTED: 429,
        Status.INTERNAL: 500,
        Status.UNIMPLEMENTED: 501,
        Status.UNAVAILABLE: 503,
    }
)

METHOD_NOT_ALLOWED = 405
PAYLOAD_TOO_LARGE = 413
UNSUPPORTED_MEDIA_TYPE = 415

# A gateway in front of a backend answers with HTTP codes alone.
_STATUS_OF_CODE: Mapping[int, Status] = MappingProxyType(
    {
        401: Status.UNAUTHENTICATED,
        403: Status.PERMISSION_DENIED,
        404: Status.NOT_FOUND,
        409: Status.ALREADY_EXISTS,
        429: Status.RESOURCE_EXHAUSTED,
        501: Status.UNIMPLEMENTED,
        502: Status.UNAVAILABLE,
        503: Status.UNAVAILABLE,
        504: Status.UNAVAILABLE,
    }
)


class ContractError(Exception):
    """A failure that has a form on the wire.

    ``message`` is meant for the caller: it never carries a secret or an inner cause (that is ``__cause__``).
    ``http_code`` is the status' code unless a more specific one was given. ``details`` maps item ids to their
    outcome. ``code`` is the numeric ``error.code`` that some deployments send.
    """

    def __init__(
        self,
        status: Status,
        message: str,
        *,
        http_code: int | None = None,
        details: Mapping[str, object] | None = None,
        code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.http_code = HTTP_CODE[status] if http_code is None else http_code
        self.details = details
        self.code = code

    def __str__(self) -> str:
        return f"{self.status}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.status, self.message, self.http_code, self.details, self.code)


class _OneStatusError(ContractError):
    """What the classes below share: the status is the class."""

    STATUS: ClassVar[Status]

    def __init__(
        self,
        message: str,
        *,
        http_code: int | None = None,
        details: Mapping[str, object] | None = None,
        code: int | None = None,
    ) -> None:
        super().__init__(self.STATUS, message, http_code=http_code, details=details, code=code)


class InvalidArgument(_OneStatusError):
    """The request is wrong; the message names the field."""

    STATUS = Status.INVALID_ARGUMENT


class FailedPrecondition(_OneStatusError):
    """Something has to be enabled or configured first."""

    STATUS = Status.FAILED_PRECONDITION


class Unauthenticated(_OneStatusError):
    """Credentials are missing."""

    STATUS = Status.UNAUTHENTICATED


class PermissionDenied(_OneStatusError):
    """Credentials are wrong, or what they belong to may not do this."""

    STATUS = Status.PERMISSION_DENIED


class NotFound(_OneStatusError):
    """What the request is about, or its path, does not exist."""

    STATUS = Status.NOT_FOUND


class AlreadyExists(_OneStatusError):
    """What the request wants to make is there."""

    STATUS = Status.ALREADY_EXISTS


class ResourceExhausted(_OneStatusError):
    """Too many requests, or a quota is used up."""

    STATUS = Status.RESOURCE_EXHAUSTED


class Internal(_OneStatusError):
    """The backend failed, wholly or (with ``details``) for some items."""

    STATUS = Status.INTERNAL


class Unimplemented(_OneStatusError):
    """The contract has this operation, this server does not."""

    STATUS = Status.UNIMPLEMENTED


class Unavailable(_OneStatusError):
    """The server cannot answer at the moment."""

    STATUS = Status.UNAVAILABLE


ERROR_CLASS: Mapping[Status, type[_OneStatusError]] = MappingProxyType(
    {
        cls.STATUS: cls
        for cls in (
            InvalidArgument,
            FailedPrecondition,
            Unauthenticated,
            PermissionDenied,
            NotFound,
            AlreadyExists,
            ResourceExhausted,
            Internal,
            Unimplemented,
            Unavailable,
        )
    }
)


def error_for(
    status: Status,
    message: str,
    *,
    http_code: int | None = None,
    details: Mapping[str, object] | None = None,
    code: int | None = None,
) -> ContractError:
    """The error of the class that belongs to ``status``."""
    return ERROR_CLASS[status](message, http_code=http_code, details=details, code=code)


def status_for_http_code(http_code: int) -> Status:
    """The status for an HTTP code, if the response contains none."""
    fallback = Status.INTERNAL if http_code >= 500 else Status.INVALID_ARGUMENT
    return _STATUS_OF_CODE.get(http_code, fallback)


def error_envelope(error: ContractError) -> dict[str, object]:
    """The response body of a failure: ``{"error": {"status", "message", "code"?, "details"?}}``."""
    inner: dict[str, object] = {"status": str(error.status), "message": error.message}
    if error.code is not None:
        inner["code"] = error.code
    if error.details is not None:
        inner["details"] = dict(error.details)
    return {"error": inner}


def error_from_envelope(http_code: int, body: object) -> ContractError:
    """The error of a failure response. If the body is unreadable, the HTTP code decides.

    Deployments put the status under ``status``, or a code of their own there, or a numeric ``code`` instead: what
    is not a known status is taken from the HTTP code.
    """
    inner = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(inner, Mapping):
        inner = {}
    named = inner.get("status")
    if isinstance(named, str) and named in Status.__members__:
        status = Status(named)
    else:
        status = status_for_http_code(http_code)
    message = inner.get("message")
    if not isinstance(message, str) or not message:
        message = f"HTTP {http_code} without a readable error message"
    details = inner.get("details")
    code = inner.get("code")
    return error_for(
        status,
        message,
        http_code=http_code,
        details={str(key): value for key, value in details.items()} if isinstance(details, Mapping) else None,
        code=code if isinstance(code, int) and not isinstance(code, bool) else None,
    )


def _rebuild(
    status: Status, message: str, http_code: int, details: Mapping[str, object] | None, code: int | None
) -> ContractError:
    """Lets errors cross process boundaries: exceptions are otherwise rebuilt from their message alone."""
    return error_for(status, message, http_code=http_code, details=details, code=code)
