"""The validation of requests: error messages of one line with the path of the field, and checks beside the models.

Undeclared fields are stored as well, but the models check only declared ones. So ``refuse_unstorable`` checks that all
fields can be stored.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from app.contract import limits
from app.contract.errors import InvalidArgument
from app.foundation.text import named


def first_error(error: ValidationError, data: object = None, *, root: str = "data") -> str:
    """The first problem, with its path: ``data.users[3].userId: field required``.

    ``data`` is the validated value. It is used to remove pydantic's names of union branches from the path.
    """
    problems = error.errors(include_url=False, include_context=True)
    path = _path_of_problem(root, problems[0], data)
    # Each branch of a union reports its own error.
    messages = [_message(problem) for problem in problems[:10] if _path_of_problem(root, problem, data) == path]
    return f"{path}: {' or '.join(dict.fromkeys(messages))}"


def field_path(root: str, steps: Iterable[int | str]) -> str:
    """A path as text: ``data.users[3].userId``."""
    path = root
    for step in steps:
        # Keys of free-form objects come from the caller: shortened, and without control characters.
        path += f"[{step}]" if isinstance(step, int) else f".{named(step, limit=80)}"
    return path


def _path_of_problem(root: str, problem: ErrorDetails, data: object) -> str:
    steps: Iterable[int | str] = problem["loc"]
    if data is not None:
        steps = _real_steps(problem["loc"], data, missing=problem["type"] == "missing")
    return field_path(root, steps)


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


# Text that cannot be stored, and nesting.


def refuse_unstorable(data: dict[object, object]) -> None:
    """Raises ``InvalidArgument`` for NUL, a lone surrogate or too many levels of nesting anywhere in ``data``."""
    if not (_has_storable_text(data) and _is_shallow(data)):
        _check(data, ())


def is_storable(text: str) -> bool:
    """Whether the text contains neither NUL nor lone surrogates."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_storable_text(data: object) -> bool:
    """A fast check. False means that ``_check`` decides.

    orjson refuses lone surrogates and writes NUL as an escape, many times faster than a loop in Python.
    """
    try:
        return b"\\u0000" not in orjson.dumps(data)
    except orjson.JSONEncodeError:
        return False


def _is_shallow(data: dict[object, object]) -> bool:
    level: list[Any] = [data]
    for _ in range(limits.NESTING):
        level = [
            value
            for container in level
            for value in (container.values() if type(container) is dict else container)
            if type(value) is dict or type(value) is list
        ]
        if not level:
            return True
    return False


def _check(value: object, path: tuple[int | str, ...]) -> None:
    """Raises ``InvalidArgument`` with the path of the problem. The limit of nesting also bounds the recursion."""
    if isinstance(value, str) and not is_storable(value):
        problem = "must not contain NUL" if "\0" in value else "must be valid Unicode text"
        raise InvalidArgument(f"{field_path('data', path)}: {problem}")
    if isinstance(value, dict | list) and len(path) == limits.NESTING:
        raise InvalidArgument(f"data: must not be nested deeper than {limits.NESTING} levels")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str) or not is_storable(key):
                raise InvalidArgument(f"{field_path('data', path)}: has a key that is not valid text")
            _check(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _check(inner, (*path, number))
