"""The reading of a response: what it says about its call.

Either it is an answer, or it is raised as what it is: a refusal, a missing operation, or a try that ended without an
answer.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import orjson

from app.client.errors import (
    BackendRefused,
    ClientError,
    CredentialsRefused,
    InvalidRequest,
    ItemsFailed,
    OperationMissing,
)
from app.client.items import readable_items
from app.client.retry import Throttled, Unclear
from app.client.transport import RawResponse
from app.contract.base import ItemResult, Request
from app.contract.envelope import Answer
from app.contract.errors import ContractError, Status, error_from_envelope
from app.contract.operation import AuthLevel, Operation, Tier, UnreadableAnswerError
from app.contract.operations import ITEMS, NOTHING

RequestT = TypeVar("RequestT", bound=Request)
ResultT = TypeVar("ResultT")

_MESSAGE_LENGTH = 500
_UNREADABLE = object()

_ABOUT_TIME = frozenset({408, 425})
"""Client errors by their number that say nothing about the call."""


def read_reply(
    operation: Operation[RequestT, ResultT], reply: RawResponse, mask: Callable[[str], str]
) -> Answer[ResultT]:
    """The answer in ``reply``.

    Raises ``ClientError`` for a refusal, ``Throttled`` and ``Unclear`` for what may be tried again. ``mask`` hides
    credentials in text of the backend's that ends up in an error.
    """
    body = _json(reply.body)
    inner = body.get("error") if isinstance(body, Mapping) else None
    has_envelope = isinstance(inner, Mapping)
    if 200 <= reply.http_code < 300 and not has_envelope:
        return _success(operation, body, mask)
    error = error_from_envelope(reply.http_code, body)
    error.message = mask(_one_line(error.message))
    if error.details is not None:
        error.details = orjson.loads(mask(orjson.dumps(error.details).decode()))
    if reply.http_code >= 500 or reply.http_code < 300:
        answer = _done_in_part(operation, error)
        if answer is not None:
            return answer
    named = inner.get("status") if isinstance(inner, Mapping) else None
    if reply.http_code in {429, 503} or named == Status.RESOURCE_EXHAUSTED:
        raise Throttled(_with_code(reply.http_code, error.message), reply.headers.get("retry-after"))
    if reply.http_code in {404, 405, 501} or named == Status.UNIMPLEMENTED:
        raise _nothing_there(operation, reply.http_code, error, has_envelope=has_envelope)
    if 300 <= reply.http_code < 400:
        raise _redirected(operation, reply, mask)
    known = isinstance(named, str) and named in Status.__members__
    if _outcome_is_unknown(reply.http_code, error.status, known=known):
        raise Unclear(_with_code(reply.http_code, error.message))
    raise refusal(operation, error)


def _with_code(http_code: int, message: str) -> str:
    code = f"HTTP {http_code}"
    if not message.startswith(code):
        return f"{code}: {message}"
    # No backend's own words: it says its code itself.
    return f"{message}; is there a backend behind that address?" if http_code in {502, 503, 504} else message


def refusal(operation: Operation[RequestT, ResultT], error: ContractError) -> BackendRefused:
    """The error for a call that was answered with ``error``."""
    arguments = (operation.name, error.status, error.message, error.http_code, error.details)
    credentials = error.status in {Status.UNAUTHENTICATED, Status.PERMISSION_DENIED} or error.http_code in {401, 403}
    if credentials and operation.auth is not AuthLevel.NONE:
        return CredentialsRefused(*arguments)
    if error.status is Status.INVALID_ARGUMENT:
        return InvalidRequest(*arguments)
    return BackendRefused(*arguments)


def _json(raw: bytes) -> object:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _UNREADABLE


def _success(operation: Operation[RequestT, ResultT], body: object, mask: Callable[[str], str]) -> Answer[ResultT]:
    if body is _UNREADABLE:
        raise Unclear("the answer is not JSON: see that backend.base_url leads to the backend")
    if not _says_success(operation, body):
        raise Unclear("the answer does not say that it is a success")
    with contextlib.suppress(UnreadableAnswerError):
        return _with_items(operation, operation.read(body), body)
    try:
        return operation.read(_with_readable_items(operation, body))
    except UnreadableAnswerError as error:
        problem = mask(_one_line(f"unexpected answer: {error}"))
    # Raised out here, so that it carries no cause: that would show whatever the backend sent.
    raise Unclear(problem)


def _says_success(operation: Operation[RequestT, ResultT], body: object) -> bool:
    """Whether ``result.status`` is as in every success; where that is all there is to go by, it has to be there."""
    result = body.get("result") if isinstance(body, Mapping) else None
    if operation.bare_result or not isinstance(result, Mapping):
        return True  # what is no result at all is found out by whoever reads it
    status = result.get("status")
    return status == "success" or (status is None and operation.result is not NOTHING)


def _with_items(operation: Operation[RequestT, ResultT], answer: Answer[ResultT], body: object) -> Answer[ResultT]:
    """An operation that promises nothing about items may tell of them all the same: then its success is not all of it.

    Raises ``ItemsFailed`` where it names items that were not done.
    """
    result = body.get("result") if isinstance(body, Mapping) else None
    items = readable_items(result.get("data")) if operation.result is NOTHING and isinstance(result, Mapping) else None
    if not items:
        return answer
    if not all(item.success for item in items.values()):
        raise _items_failed(operation, items, 200)
    return replace(answer, items=items)


def _items_failed(
    operation: Operation[RequestT, ResultT], items: Mapping[str, ItemResult], http_code: int
) -> ItemsFailed:
    failed = [
        f"{name}: {item.message or 'the backend gave no reason'}" for name, item in items.items() if not item.success
    ]
    told = _one_line("; ".join(failed[:3])) or "the call failed"
    return ItemsFailed(operation.name, Status.INTERNAL, told, http_code, items)


def _with_readable_items(operation: Operation[RequestT, ResultT], body: object) -> object:
    """``body`` without items that cannot be read: one malformed item must not cost the knowledge of its neighbours."""
    result = body.get("result") if isinstance(body, Mapping) else None
    if operation.result is not ITEMS or not isinstance(result, Mapping):
        return body
    items = readable_items(result.get("data"))
    if items is None:
        return body
    return {"result": {**result, "data": {name: item.to_wire() for name, item in items.items()}}}


def _done_in_part(operation: Operation[RequestT, ResultT], error: ContractError) -> Answer[ResultT] | None:
    """The answer of a batch that came as a failure with ``details``. Raises ``ItemsFailed`` for an operation that
    promises no items."""
    if operation.result not in {ITEMS, NOTHING} or not error.details:
        return None
    items = readable_items(error.details)
    if not items:
        return None
    if operation.result is NOTHING:
        if all(item.success for item in items.values()):
            return None  # something failed, and nobody says what
        raise _items_failed(operation, items, error.http_code)
    data = operation.result.validate_python({name: item.to_wire() for name, item in items.items()}, by_alias=True)
    return Answer(data, error.message)


def _nothing_there(
    operation: Operation[RequestT, ResultT], http_code: int, error: ContractError, *, has_envelope: bool
) -> ClientError:
    is_not_found = has_envelope and error.status is Status.NOT_FOUND
    own_error = is_not_found and Status.NOT_FOUND in operation.errors
    if own_error and operation.tier is Tier.CORE:
        return refusal(operation, error)
    message = (
        f"the backend does not have this operation (HTTP {http_code}: {error.message});"
        " see that backend.base_url has no version or path in it"
    )
    return OperationMissing(operation.name, message, http_code, has_envelope=has_envelope, own_error=own_error)


def _redirected(
    operation: Operation[RequestT, ResultT], reply: RawResponse, mask: Callable[[str], str]
) -> BackendRefused:
    target = mask(_one_line(reply.headers.get("location", "nowhere")))
    message = f"the backend redirects to {target}; set backend.base_url to where it really is"
    return BackendRefused(operation.name, Status.FAILED_PRECONDITION, message, reply.http_code)


def _outcome_is_unknown(http_code: int, status: Status, *, known: bool) -> bool:
    if http_code >= 500:
        # A refusal that travels under the wrong code is a refusal all the same.
        return not known or status in {Status.INTERNAL, Status.UNAVAILABLE}
    return http_code < 200 or http_code in _ABOUT_TIME or (http_code < 300 and not known)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    line = "".join(character if character.isprintable() else "?" for character in line)
    return line if len(line) <= _MESSAGE_LENGTH else f"{line[:_MESSAGE_LENGTH]}..."
