"""Reads a response: it is an answer, or it is raised as a refusal, a missing operation or a failed try.

A batch is answered with an item map in a success, or with HTTP 500 and ``error.details``, in which items with
``success`` were applied. Both become one ``ItemAnswer`` for each item of the request.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import orjson
from pydantic import ValidationError

from app.client.errors import (
    BackendRefused,
    ClientError,
    CredentialsRefused,
    InvalidRequest,
    ItemsFailed,
    OperationMissing,
)
from app.client.retry import Throttled, Unclear
from app.client.transport import RawResponse
from app.contract.base import ItemResult, Request
from app.contract.errors import ContractError, Status, error_from_envelope
from app.contract.operation import Answer, AuthLevel, Operation, Tier, UnreadableAnswerError
from app.contract.operations import ITEMS, NOTHING

RequestT = TypeVar("RequestT", bound=Request)
ResultT = TypeVar("ResultT")

_MESSAGE_LENGTH = 500

_TIMEOUT_CODES = frozenset({408, 425})
"""Client errors whose call may have been applied."""

ALREADY_EXISTS = "already-exists"
NOT_FOUND = "not-found"

_EXISTS = re.compile(r"\balready[ _-]?exist", re.IGNORECASE)
_MISSING = re.compile(r"\b(does|do)(n't| not)[ _-]?exist|\bnot[ _-]?found\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ItemAnswer:
    """The result of one item. If the response does not contain the item, ``answered`` is false and the outcome
    unknown."""

    success: bool
    message: str = ""
    code: str | None = None
    """``already-exists``, ``not-found`` (final) or ``internal`` (may be temporary). It is derived from the message
    if the response has no code."""
    answered: bool = True
    maybe_applied_earlier: bool = False
    """Whether an earlier try of the call, with an unknown outcome, may have applied a failed item."""

    @property
    def already_exists(self) -> bool:
        """Whether the item could not be added because it exists."""
        return self.code == ALREADY_EXISTS

    @property
    def does_not_exist(self) -> bool:
        """Whether the item could not be changed or deleted because it does not exist."""
        return self.code == NOT_FOUND


SUCCEEDED = ItemAnswer(success=True)
UNANSWERED = ItemAnswer(success=False, message="the answer does not mention this item", answered=False)


def item_results(items: Mapping[str, ItemResult], *, maybe_applied_earlier: bool = False) -> dict[str, ItemAnswer]:
    """The answer for each item, by id."""
    return {
        name: ItemAnswer(True, item.message or "")
        if item.success
        else ItemAnswer(False, item.message or "", _item_code(item), maybe_applied_earlier=maybe_applied_earlier)
        for name, item in items.items()
    }


def readable_items(value: object) -> dict[str, ItemResult] | None:
    """The valid items of ``result.data`` or ``error.details``. None if it is not a map of items."""
    if not isinstance(value, Mapping):
        return None
    items: dict[str, ItemResult] = {}
    for name, item in value.items():
        try:
            items[str(name)] = ItemResult.from_wire(item)
        except ValidationError:
            # An invalid item is treated as unanswered.
            continue
    return items if items or not value else None


def _item_code(item: ItemResult) -> str | None:
    if item.code is not None:
        return item.code.strip().lower().replace("_", "-")
    if _EXISTS.search(item.message or ""):
        return ALREADY_EXISTS
    return NOT_FOUND if _MISSING.search(item.message or "") else None


def read_response(
    operation: Operation[RequestT, ResultT], response: RawResponse, mask: Callable[[str], str]
) -> Answer[ResultT]:
    """The answer in ``response``.

    Raises ``ClientError`` for a refusal, and ``Throttled`` or ``Unclear`` for a try that may be repeated. ``mask``
    removes credentials from the backend's texts in errors.
    """
    code = response.http_code
    try:
        body = orjson.loads(response.body)
    except orjson.JSONDecodeError:
        if 200 <= code < 300:
            raise Unclear("the answer is not JSON: see that backend.base_url leads to the backend") from None
        body = None
    envelope = body.get("error") if isinstance(body, Mapping) else None
    has_envelope = isinstance(envelope, Mapping)
    if 200 <= code < 300 and not has_envelope:
        return _success(operation, body, mask)
    error = error_from_envelope(code, body)
    error.message = mask(_one_line(error.message))
    if error.details is not None:
        error.details = orjson.loads(mask(orjson.dumps(error.details).decode()))
    if code >= 500 or code < 300:
        answer = _partial_answer(operation, error)
        if answer is not None:
            return answer
    status = envelope.get("status") if isinstance(envelope, Mapping) else None
    if code in {429, 503} or status == Status.RESOURCE_EXHAUSTED:
        raise Throttled(_with_code(code, error.message), response.headers.get("retry-after"))
    if code in {404, 405, 501} or status == Status.UNIMPLEMENTED:
        raise _missing(operation, code, error, has_envelope=has_envelope)
    if 300 <= code < 400:
        target = mask(_one_line(response.headers.get("location", "nowhere")))
        message = f"the backend redirects to {target}; set backend.base_url to where it really is"
        raise BackendRefused(operation.name, Status.FAILED_PRECONDITION, message, code)
    has_status = isinstance(status, str) and status in Status.__members__
    if _is_unclear(code, error.status, has_status=has_status):
        raise Unclear(_with_code(code, error.message))
    raise refusal(operation, error)


def refusal(operation: Operation[RequestT, ResultT], error: ContractError) -> BackendRefused:
    """The exception for a call that was answered with ``error``."""
    arguments = (operation.name, error.status, error.message, error.http_code, error.details)
    credentials = error.status in {Status.UNAUTHENTICATED, Status.PERMISSION_DENIED} or error.http_code in {401, 403}
    if credentials and operation.auth is not AuthLevel.NONE:
        return CredentialsRefused(*arguments)
    if error.status is Status.INVALID_ARGUMENT:
        return InvalidRequest(*arguments)
    return BackendRefused(*arguments)


def _with_code(http_code: int, message: str) -> str:
    code = f"HTTP {http_code}"
    if not message.startswith(code):
        return f"{code}: {message}"
    # The response has no message of a backend.
    return f"{message}; is there a backend behind that address?" if http_code in {502, 503, 504} else message


def _success(operation: Operation[RequestT, ResultT], body: object, mask: Callable[[str], str]) -> Answer[ResultT]:
    result = _result(body)
    if not operation.bare_result and result is not None:
        # An operation without data is confirmed only by its status.
        status = result.get("status")
        if status != "success" and not (status is None and operation.result is not NOTHING):
            raise Unclear("the answer has no success status")
    with contextlib.suppress(UnreadableAnswerError):
        return _with_items(operation, operation.read(body), result)
    try:
        return operation.read(_without_invalid_items(operation, body, result))
    except UnreadableAnswerError as error:
        problem = mask(_one_line(f"unexpected answer: {error}"))
    # Raised here, without a cause that would contain the response.
    raise Unclear(problem)


def _result(body: object) -> Mapping[str, object] | None:
    result = body.get("result") if isinstance(body, Mapping) else None
    return result if isinstance(result, Mapping) else None


def _with_items(
    operation: Operation[RequestT, ResultT], answer: Answer[ResultT], result: Mapping[str, object] | None
) -> Answer[ResultT]:
    """The answer with its items, which an operation that promises none may return as well.

    Raises ``ItemsFailed`` if any of these items failed.
    """
    items = readable_items(result.get("data")) if operation.result is NOTHING and result is not None else None
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
    message = _one_line("; ".join(failed[:3])) or "the call failed"
    return ItemsFailed(operation.name, Status.INTERNAL, message, http_code, items)


def _without_invalid_items(
    operation: Operation[RequestT, ResultT], body: object, result: Mapping[str, object] | None
) -> object:
    """``body`` without items that cannot be read, so that one malformed item does not hide the others."""
    items = readable_items(result.get("data")) if operation.result is ITEMS and result is not None else None
    if items is None or result is None:
        return body
    return {"result": {**result, "data": {name: item.to_wire() for name, item in items.items()}}}


def _partial_answer(operation: Operation[RequestT, ResultT], error: ContractError) -> Answer[ResultT] | None:
    """The answer of a batch that came as a failure with ``details``. Raises ``ItemsFailed`` if the operation promises
    no items."""
    items = readable_items(error.details) if operation.result in {ITEMS, NOTHING} and error.details else None
    if not items:
        return None
    if operation.result is NOTHING:
        if all(item.success for item in items.values()):
            return None  # the failure is not about an item
        raise _items_failed(operation, items, error.http_code)
    data = operation.result.validate_python({name: item.to_wire() for name, item in items.items()}, by_alias=True)
    return Answer(data, error.message)


def _missing(
    operation: Operation[RequestT, ResultT], http_code: int, error: ContractError, *, has_envelope: bool
) -> ClientError:
    may_mean_missing_object = has_envelope and error.status is Status.NOT_FOUND and Status.NOT_FOUND in operation.errors
    if may_mean_missing_object and operation.tier is Tier.CORE:
        return refusal(operation, error)
    message = (
        f"the backend does not have this operation (HTTP {http_code}: {error.message});"
        " see that backend.base_url has no version or path in it"
    )
    return OperationMissing(
        operation.name, message, http_code, has_envelope=has_envelope, may_mean_missing_object=may_mean_missing_object
    )


def _is_unclear(http_code: int, status: Status, *, has_status: bool) -> bool:
    """Whether the outcome of the call is unknown. ``has_status``: the response has a status of the contract."""
    if http_code >= 500:
        # A refusal with the wrong HTTP code is still a refusal.
        return not has_status or status in {Status.INTERNAL, Status.UNAVAILABLE}
    return http_code < 200 or http_code in _TIMEOUT_CODES or (http_code < 300 and not has_status)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    line = "".join(character if character.isprintable() else "?" for character in line)
    return line if len(line) <= _MESSAGE_LENGTH else f"{line[:_MESSAGE_LENGTH]}..."
