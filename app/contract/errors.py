# ruff: noqa: N818 - the classes have the names of their statuses.
"""Errors of the API: statuses, HTTP codes, and their exceptions.

    ContractError
    ├── InvalidArgument      INVALID_ARGUMENT     400   the request is invalid; do not retry
    ├── FailedPrecondition   FAILED_PRECONDITION  400   a feature or option must be enabled first
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

# A gateway in front of a backend sends HTTP codes without a status.
_STATUS_OF_CODE: Mapping[int, Status] = MappingProxyType(
    {code: status for status, code in HTTP_CODE.items()}
    | {400: Status.INVALID_ARGUMENT, 502: Status.UNAVAILABLE, 504: Status.UNAVAILABLE}
)


class ContractError(Exception):
    """The base of the errors. There is one class for each status.

    ``message`` is sent to the caller. It contains no secret and no internal cause, which is in ``__cause__``.
    ``http_code`` is the code of the status unless a more specific one is passed. ``details`` maps item ids to their
    outcome. ``code`` is the numeric ``error.code`` that some deployments send.
    """

    status: ClassVar[Status]

    def __init__(
        self,
        message: str,
        *,
        http_code: int | None = None,
        details: Mapping[str, object] | None = None,
        code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.http_code = HTTP_CODE[self.status] if http_code is None else http_code
        self.details = details
        self.code = code

    def __str__(self) -> str:
        return f"{self.status}: {self.message}"


class InvalidArgument(ContractError):
    status = Status.INVALID_ARGUMENT


class FailedPrecondition(ContractError):
    status = Status.FAILED_PRECONDITION


class Unauthenticated(ContractError):
    status = Status.UNAUTHENTICATED


class PermissionDenied(ContractError):
    status = Status.PERMISSION_DENIED


class NotFound(ContractError):
    status = Status.NOT_FOUND


class AlreadyExists(ContractError):
    status = Status.ALREADY_EXISTS


class ResourceExhausted(ContractError):
    status = Status.RESOURCE_EXHAUSTED


class Internal(ContractError):
    status = Status.INTERNAL


class Unimplemented(ContractError):
    status = Status.UNIMPLEMENTED


class Unavailable(ContractError):
    status = Status.UNAVAILABLE


ERROR_CLASS: Mapping[Status, type[ContractError]] = MappingProxyType(
    {error.status: error for error in ContractError.__subclasses__()}
)


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
    """The error of a failure response. If ``status`` is missing or unknown, the HTTP code decides."""
    inner = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(inner, Mapping):
        inner = {}
    name = inner.get("status")
    status = Status(name) if isinstance(name, str) and name in Status.__members__ else status_for_http_code(http_code)
    message = inner.get("message")
    if not isinstance(message, str) or not message:
        message = f"HTTP {http_code} without a readable error message"
    details = inner.get("details")
    code = inner.get("code")
    return ERROR_CLASS[status](
        message,
        http_code=http_code,
        details={str(key): value for key, value in details.items()} if isinstance(details, Mapping) else None,
        code=code if isinstance(code, int) and not isinstance(code, bool) else None,
    )
