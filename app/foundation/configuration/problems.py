"""Problems of the settings, one line for each: the key, the error, the origin and advice."""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from app.foundation.configuration.schema import (
    PREFIX,
    Nested,
    fields_at,
    is_secret,
    known_keys,
    models_in,
    secret_part,
    types_in,
)
from app.foundation.configuration.showing import without_secrets
from app.foundation.secrets import SecretPart


class ConfigurationError(Exception):
    """The settings are invalid. ``problems`` has one line for each reason."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


_MAX_VALUE = 60
"""The most characters of a value that are shown."""

_TYPE_KEY = "type"
"""The key that selects the model of a list's item."""

_TEXTS = {
    "too_short": ("should not be empty", ""),
    "string_type": ("should be text", "put it in quotes"),
    "path_type": ("should be a path", "put it in quotes"),
    **dict.fromkeys(("list_type", "tuple_type"), ("should be a list", "write a list, such as [a, b]")),
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), ("should be a whole number", "")),
    **dict.fromkeys(("float_parsing", "float_type"), ("should be a number", "")),
    **dict.fromkeys(("bool_parsing", "bool_type"), ("should be true or false", "write true or false")),
    **dict.fromkeys(
        ("model_type", "model_attributes_type", "dict_type"),
        ("should hold settings of its own", "write keys and values below it"),
    ),
    **dict.fromkeys(("missing", "union_tag_not_found"), ("is missing", "add it")),
}
"""A pydantic error type → the problem and the advice."""


def problems_of(
    model: type[BaseModel], values: Nested, origins: Mapping[str, str], error: ValidationError
) -> Iterator[str]:
    """One line for each error of the validation of ``values``."""
    details = error.errors(include_url=False)
    for detail in details:
        location = detail["loc"]
        if any(len(other["loc"]) > len(location) and other["loc"][: len(location)] == location for other in details):
            # The error of a part causes the error of the whole.
            continue
        path = _without_tags(location, values)
        if detail["type"].startswith("union_tag"):
            path.append(_TYPE_KEY)
        # A value inside a list from the environment or the command line has the origin of the list.
        parents = (_dotted(path[:length]) for length in range(len(path), 0, -1))
        origin = next((f" ({origins[parent]})" for parent in parents if parent in origins), "")
        if detail["type"] == "extra_forbidden":
            yield f"{_dotted(path)}: not a setting{origin}; {suggest(model, path)}"
        else:
            secret = any(is_secret(str(step), None) for step in path) or any(
                _may_hold_secret(field) for field in fields_at(model, _keys(path))
            )
            problem, advice = _problem(detail, secret=secret), _advice(model, path, detail)
            yield f"{_dotted(path) or 'settings'}: {problem}{origin}{advice}"


def _problem(detail: ErrorDetails, *, secret: bool) -> str:
    """The expected value, and the actual one unless it may be a ``secret``."""
    if detail["type"] == "union_tag_invalid":
        context = detail.get("ctx", {})
        return f"should be {context.get('expected_tags')}, not {json.dumps(context.get('tag'))}"
    message, _ = _TEXTS.get(detail["type"], ("", ""))
    if not message:
        message = detail["msg"].removeprefix("Value error, ").removeprefix("Input ").strip()
    # In lower case, unless it begins with an abbreviation, such as URL.
    if message[:2] != message[:2].upper():
        message = message[:1].lower() + message[1:]
    value = detail["input"]
    if secret or isinstance(value, (dict, list, SecretStr)) or message == "is missing":
        return message
    text = without_secrets(json.dumps(value, ensure_ascii=False, default=str))
    return f"{message}, not {text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 1] + '…'}"


def _may_hold_secret(field: FieldInfo) -> bool:
    """Whether a value of the setting may be a secret. A value for a section may be a URL meant for a setting in it."""
    inner = (part for section in models_in(field.annotation) for part in section.model_fields.values())
    return SecretStr in types_in(field.annotation) or any(
        secret_part(part) is SecretPart.PATH for part in (field, *inner)
    )


def _advice(model: type[BaseModel], path: Sequence[str | int], detail: ErrorDetails) -> str:
    _, advice = _TEXTS.get(detail["type"], ("", ""))
    if advice:
        return f"; {advice}"
    if detail["type"] == "value_error":
        return ""
    field = next(iter(fields_at(model, _keys(path))), None)
    default = None if field is None or field.is_required() else field.get_default(call_default_factory=False)
    if default is None or isinstance(default, (BaseModel, SecretStr, list, tuple)):
        return ""
    return f"; the default is {json.dumps(default, ensure_ascii=False, default=str)}"


def suggest(model: type[BaseModel], path: Sequence[str | int], *, as_variable: bool = False) -> str:
    """A question with the key that is most similar to an unknown one. ``as_variable``: as an environment variable."""
    key = ".".join(_keys(path))
    section, _, name = key.rpartition(".")
    keys = list(known_keys(model))
    siblings = {other.rpartition(".")[2]: other for other in keys if other.rpartition(".")[0] == section}
    in_section = get_close_matches(name, siblings, n=1, cutoff=0.6) if section or not as_variable else []
    if in_section:
        nearest = siblings[in_section[0]]
    else:
        same_name = [other for other in keys if other.rpartition(".")[2] == name]
        nearest = next(iter(get_close_matches(key, same_name or keys, n=1, cutoff=0.0)), "")
    return f"did you mean {PREFIX + nearest.upper().replace('.', '__') if as_variable else nearest}?"


def _without_tags(path: Sequence[str | int], values: Any) -> list[str | int]:
    """The location of an error without the steps that pydantic adds for the member of a union."""
    result: list[str | int] = []
    for step in path:
        if isinstance(values, dict) and step not in values and values.get(_TYPE_KEY) == step:
            continue
        result.append(step)
        if isinstance(values, dict):
            values = values.get(step)
        elif isinstance(values, list) and isinstance(step, int) and step < len(values):
            values = values[step]
        else:
            values = None
    return result


def _keys(path: Sequence[str | int]) -> list[str]:
    return [step for step in path if isinstance(step, str)]


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
