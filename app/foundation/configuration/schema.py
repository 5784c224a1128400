"""The schema of the settings: the fields of each key, and which of them are secrets."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, SecretStr
from pydantic.fields import FieldInfo

from app.foundation.secrets import SecretPart

PREFIX = "USHER_"
"""The prefix of environment variables."""

FILE_SUFFIX = "_file"
"""``api_key_file: PATH`` sets ``api_key`` to the content of the file."""

Nested = dict[str, Any]
"""Settings as in a file: sections within sections."""


class SettingsSection(BaseModel):
    """The base class of a section. Its validation errors do not contain the input, which may be a secret."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def types_in(annotation: Any) -> set[Any]:
    """The type and all types inside it. Tuples count as ``list``."""
    types = {annotation}
    for part in get_args(annotation):
        types |= types_in(part) if not isinstance(part, (str, int)) else set()
    return types | {list for part in types if getattr(part, "__origin__", None) in {list, tuple}}


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models in a setting's type: the section, or the possible items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields by their names in settings, which are aliases for Python's keywords (``from``)."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def fields_at(model: type[BaseModel], path: Sequence[str]) -> list[FieldInfo]:
    """The fields of a key: several if the types of a list's items share it, none if it is unknown."""
    models, fields = [model], list[FieldInfo]()
    for step in path:
        fields = [fields_of(candidate)[step] for candidate in models if step in fields_of(candidate)]
        models = [inner for field in fields for inner in models_in(field.annotation)]
    return fields


def is_secret(key: str, field: FieldInfo | None) -> bool:
    """Whether a setting is a secret, by its type or its name."""
    if field is not None and field.annotation in {bool, int, float}:
        return False
    if field is not None and SecretStr in types_in(field.annotation):
        return True
    return key.endswith(("token", "tokens", "api_key", "secret", "secret_key", "password", "database_url"))


def secret_part(field: FieldInfo) -> SecretPart | None:
    """The secret part of a setting that is a URL."""
    return next((part for part in field.metadata if isinstance(part, SecretPart)), None)


def secret_set_by_file(model: type[BaseModel], path: Sequence[str]) -> FieldInfo | None:
    """The secret that is read from the file named at ``path``, such as ``api_key_file``. None for other keys."""
    *section, key = path
    base = key.removesuffix(FILE_SUFFIX)
    if base == key or fields_at(model, path):
        return None
    return next((field for field in fields_at(model, [*section, base]) if is_secret(base, field)), None)


def known_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in fields_of(model).items():
        yield prefix + name
        for inner in models_in(field.annotation):
            yield from known_keys(inner, f"{prefix}{name}.")


def nested(flat: Mapping[str, Any]) -> Nested:
    """Dotted keys as sections."""
    result: Nested = {}
    for key, value in flat.items():
        *sections, name = key.split(".")
        inner = result
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return result


def merge(below: Nested, above: Nested) -> None:
    """Overwrites ``below`` with the values of ``above``, section by section."""
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            merge(below[key], value)
        else:
            below[key] = value
