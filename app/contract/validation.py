"""Describes a validation error of a request in one line, with the path of the field."""

from collections.abc import Iterator

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from app.text import named


def first_error(error: ValidationError, data: object = None, *, root: str = "data") -> str:
    """One line about the first problem, naming its path: ``data.users[3].userId: field required``.

    ``data`` is what was validated. With it, pydantic's names for the branches of a union are left
    out of the path.
    """
    problems = error.errors(include_url=False, include_context=True)
    path = _path_of_problem(root, problems[0], data)
    # Each branch of a union reports its own error.
    complaints = [_complaint(problem) for problem in problems[:10] if _path_of_problem(root, problem, data) == path]
    return f"{path}: {' or '.join(dict.fromkeys(complaints))}"


def _path_of_problem(root: str, problem: ErrorDetails, data: object) -> str:
    steps = list(problem["loc"])
    if data is not None:
        steps = list(_real_steps(steps, data, missing=problem["type"] == "missing"))
    return field_path(root, steps)


def _real_steps(steps: list[int | str], value: object, *, missing: bool) -> Iterator[int | str]:
    """The steps that lead through ``value``; those that name a union's branch lead nowhere."""
    for number, step in enumerate(steps):
        last = number == len(steps) - 1
        if isinstance(value, dict) and (step in value or (last and missing)):
            yield step
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            yield step
            value = value[step]


def field_path(root: str, steps: list[int | str]) -> str:
    """How a path is written: ``data.users[3].userId``."""
    path = root
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            # Keys of free-form objects are the caller's: shown, but never at full length or with control characters.
            path += f".{named(step, limit=80)}"
    return path


_COMPLAINTS = {
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
}


def _complaint(details: ErrorDetails) -> str:
    kind = details["type"]
    if kind in _COMPLAINTS:
        return _COMPLAINTS[kind]
    context = details.get("ctx", {})
    if kind == "value_error":
        return str(context.get("error", details["msg"]))
    if kind == "string_pattern_mismatch":
        given = details["input"]
        return "must not contain NUL" if isinstance(given, str) and "\0" in given else _mismatch(context)
    if kind == "string_too_short":
        return "must not be empty" if context.get("min_length") == 1 else details["msg"]
    if kind == "string_too_long":
        return f"must be at most {context['max_length']} characters long"
    if kind == "too_long":
        return f"must hold at most {context['max_length']} items, not {context['actual_length']}"
    if kind == "too_short":
        return f"must hold at least {context['min_length']} item(s)"
    if kind == "literal_error":
        return f"must be {context['expected']}"
    message = details["msg"].removeprefix("Input should ").strip()
    return f"must {message}" if message.startswith("be ") else message


def _mismatch(context: dict[str, object]) -> str:
    pattern = str(context.get("pattern", ""))
    return "must be an http or https URL" if "://" in pattern else f"must match {pattern}"
