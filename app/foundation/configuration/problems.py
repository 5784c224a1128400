"""Problems of the settings, one line for each: the key, what is wrong, where it stands, what to do."""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from app.foundation.configuration.schema import PREFIX, Nested, field_at, fields_at, is_secret, known_keys, types_in
from app.foundation.configuration.showing import without_password


class ConfigurationError(Exception):
    """The settings cannot be used; ``problems`` holds one line for each reason."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


_TAG = "type"
"""The key that identifies a list's item."""


def problems_of(
    model: type[BaseModel], values: Nested, origins: Mapping[str, str], error: ValidationError
) -> Iterator[str]:
    details = error.errors(include_url=False)
    for detail in details:
        if any(len(other["loc"]) > len(detail["loc"]) == _shared(other["loc"], detail["loc"]) for other in details):
            # What is wrong with the whole follows from what is wrong with its part.
            continue
        path = [*_without_tags(detail["loc"], values), *_tag_of(detail)]
        key = _dotted(path)
        # A value inside a list that the environment or the command line gave has its list's origin.
        origin = next((origins[part] for part in _and_parents(path) if part in origins), "")
        given = f" ({origin})" if origin else ""
        if detail["type"] == "extra_forbidden":
            yield f"{key}: not a setting{given}; {suggest(model, path)}"
        else:
            secret = any(is_secret(str(step), None) for step in path) or _is_secret_at(model, path)
            yield f"{key or 'settings'}: {_problem(detail, secret=secret)}{given}{_fix(model, path, detail)}"


def _shared(one: tuple[int | str, ...], other: tuple[int | str, ...]) -> int:
    """How many steps two places have in common from the start."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _tag_of(detail: ErrorDetails) -> list[str]:
    return [_TAG] if detail["type"].startswith("union_tag") else []


def _problem(detail: ErrorDetails, *, secret: bool) -> str:
    message = _WORDING.get(detail["type"]) or detail["msg"].removeprefix("Value error, ").removeprefix("Input ").strip()
    if detail["type"] in {"missing", "union_tag_not_found"}:
        return "is missing"
    if detail["type"] == "union_tag_invalid":
        context = detail.get("ctx", {})
        return f"should be {context.get('expected_tags')}, not {json.dumps(context.get('tag'))}"
    if message[:2] != message[:2].upper():
        message = message[:1].lower() + message[1:]
    value = detail["input"]
    if secret or isinstance(value, (dict, list, SecretStr)):
        return message
    text = without_password(json.dumps(value, ensure_ascii=False, default=str))
    return f"{message}, not {text if len(text) <= 60 else text[:59] + '…'}"


_WORDING = {
    "too_short": "should not be empty",
    "string_type": "should be text",
    "list_type": "should be a list",
    "tuple_type": "should be a list",
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_parsing": "should be a number",
    "float_type": "should be a number",
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "model_type": "should hold settings of its own",
    "model_attributes_type": "should hold settings of its own",
    "dict_type": "should hold settings of its own",
}

_FIXES = {
    "bool_parsing": "write true or false",
    "bool_type": "write true or false",
    "string_type": "put it in quotes",
    "list_type": "write a list, such as [a, b]",
    "tuple_type": "write a list, such as [a, b]",
    "model_type": "write keys and values below it",
    "model_attributes_type": "write keys and values below it",
    "dict_type": "write keys and values below it",
}


def _fix(model: type[BaseModel], path: Sequence[str | int], detail: ErrorDetails) -> str:
    if detail["type"] in _FIXES:
        return f"; {_FIXES[detail['type']]}"
    if detail["type"] in {"missing", "union_tag_not_found"}:
        return "; add it"
    if detail["type"] == "value_error":
        return ""
    field = field_at(model, [step for step in path if isinstance(step, str)])
    default = None if field is None or field.is_required() else field.get_default(call_default_factory=False)
    if default is None or isinstance(default, (BaseModel, SecretStr, list, tuple)):
        return ""
    return f"; the default is {json.dumps(default, ensure_ascii=False, default=str)}"


def suggest(model: type[BaseModel], path: Sequence[str | int], *, as_variable: bool = False) -> str:
    """Names the known key that is nearest to an unknown one, looking in its own section first."""
    wanted = ".".join(str(step) for step in path if isinstance(step, str))
    section, _, name = wanted.rpartition(".")
    known = list(known_keys(model))
    siblings = {key.rpartition(".")[2]: key for key in known if key.rpartition(".")[0] == section}
    in_section = get_close_matches(name, siblings, n=1, cutoff=0.6) if section or not as_variable else []
    if in_section:
        nearest = siblings[in_section[0]]
    else:
        same_name = [key for key in known if key.rpartition(".")[2] == name]
        nearest = next(iter(get_close_matches(wanted, same_name or known, n=1, cutoff=0.0)), "")
    shown = PREFIX + nearest.upper().replace(".", "__") if as_variable else nearest
    return f"did you mean {shown}?"


def _is_secret_at(model: type[BaseModel], path: Sequence[str | int]) -> bool:
    fields = fields_at(model, [step for step in path if isinstance(step, str)])
    return any(SecretStr in types_in(field.annotation) for field in fields)


def _without_tags(path: Sequence[str | int], values: Any) -> list[str | int]:
    """An error's place without the steps that pydantic adds for the member of a union."""
    kept: list[str | int] = []
    for step in path:
        if isinstance(values, dict) and step not in values and values.get("type") == step:
            continue
        kept.append(step)
        if isinstance(values, dict):
            values = values.get(step)
        elif isinstance(values, list) and isinstance(step, int) and step < len(values):
            values = values[step]
        else:
            values = None
    return kept


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _and_parents(path: Sequence[str | int]) -> Iterator[str]:
    for length in range(len(path), 0, -1):
        yield _dotted(path[:length])
