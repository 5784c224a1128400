"""Parses requests. The error of an invalid one is one line with the path of the field."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from app.contract.base import Request
from app.contract.errors import InvalidArgument
from app.foundation.text import named

RequestT = TypeVar("RequestT", bound=Request)


def parse_request(model: type[RequestT], body: object) -> RequestT:
    """The request in a body of the form ``{"data": {...}}``, which is strict JSON (``app.http.strict_json``).

    Raises ``InvalidArgument``. The message contains the path: ``data.users[3].userId: field required``.
    """
    if not isinstance(body, dict):
        raise InvalidArgument('the body must be an object of the form {"data": {...}}')
    if "data" not in body:
        raise InvalidArgument("data: field required")
    data = body["data"]
    if not isinstance(data, dict):
        raise InvalidArgument("data: must be an object")
    try:
        return model.from_wire(data)
    except ValidationError as error:
        raise InvalidArgument(first_error(error, data)) from error


def first_error(error: ValidationError, data: object = None, *, root: str = "data") -> str:
    """The first problem, with its path: ``data.users[3].userId: field required``.

    ``data`` is the validated value. It is used to remove pydantic's names of union branches from the path. ``root`` is
    the name of the value. If it is empty, the path begins with the field.
    """
    problems = error.errors(include_url=False, include_context=True)
    path = _path_of_problem(root, problems[0], data)
    # Each branch of a union reports its own error.
    messages = [_message(problem) for problem in problems[:10] if _path_of_problem(root, problem, data) == path]
    return ": ".join(filter(None, [path, " or ".join(dict.fromkeys(messages))]))


def _path_of_problem(root: str, problem: ErrorDetails, data: object) -> str:
    steps: Iterable[int | str] = problem["loc"]
    if data is not None:
        steps = _real_steps(problem["loc"], data, missing=problem["type"] == "missing")
    path = root
    for step in steps:
        # Keys of free-form objects come from the caller: shortened, and without control characters.
        path += f"[{step}]" if isinstance(step, int) else f".{named(step, limit=80)}"
    return path if root else path.removeprefix(".")


def _real_steps(steps: tuple[int | str, ...], value: object, *, missing: bool) -> Iterator[int | str]:
    """The steps that exist in ``value``. Names of union branches do not."""
    for number, step in enumerate(steps, start=1):
        if isinstance(value, dict) and (step in value or (missing and number == len(steps))):
            yield step
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            yield step
            value = value[step]


_MESSAGES = {
    "missing": "field required",
    "string_type": "must be a string",
    "string_unicode": "must be valid Unicode text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be an array",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_attributes_type": "must be an object",
    "none_required": "must be null",
    "extra_forbidden": "not a field of this request",
    "string_too_long": "must be at most {max_length} characters long",
    "too_long": "must hold at most {max_length} items, not {actual_length}",
    "too_short": "must hold at least {min_length} item(s)",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
}
"""Messages by pydantic's error type, with its context as parameters."""

_NULL_OF_FIELD = frozenset({"string_type", "model_type", "literal_error", "list_type", "dict_type", "int_type"})
"""Errors of a required field that is null, which is the same as one that is absent."""


def _message(details: ErrorDetails) -> str:
    kind = details["type"]
    context = details.get("ctx", {})
    if details["input"] is None and kind in _NULL_OF_FIELD and isinstance((0, *details["loc"])[-1], str):
        return "field required"
    if kind in _MESSAGES:
        return _MESSAGES[kind].format_map(context)
    if kind == "string_pattern_mismatch":
        if "\0" in str(details["input"]):
            return "must not contain NUL"
        pattern = str(context.get("pattern", ""))
        return "must be an http or https URL" if "://" in pattern else f"must match {pattern}"
    if kind == "string_too_short" and context.get("min_length") == 1:
        return "must not be empty"
    message = details["msg"].removeprefix("Input should ").strip()
    return f"must {message}" if message.startswith("be ") else message
