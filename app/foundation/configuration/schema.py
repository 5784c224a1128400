"""The schema of the settings: of each key its field, its section, and whether it is a secret."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

PREFIX = "USHER_"
"""What the names of our environment variables begin with."""

FILE_SUFFIX = "_file"
"""``api_key_file: PATH`` sets ``api_key`` to the content of the file."""

Nested = dict[str, Any]
"""Settings as a file writes them: sections in sections."""


def types_in(annotation: Any) -> set[Any]:
    found = {annotation}
    for part in get_args(annotation):
        found |= types_in(part) if not isinstance(part, (str, int)) else set()
    return found | {list for part in found if getattr(part, "__origin__", None) in {list, tuple}}


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that a setting's type is made of: a section, or what a list's items can be."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


def of_type(models: Sequence[type[BaseModel]], item: Nested) -> list[type[BaseModel]]:
    """The possible models of a list's items, by ``type`` if they have one."""
    tagged = [
        model
        for model in models
        if "type" in model.model_fields and item.get("type") in get_args(model.model_fields["type"].annotation)
    ]
    return tagged or list(models)


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model, as settings call them: a word of Python's (``from``) is an alias."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def is_section(model: type[BaseModel], key: str) -> bool:
    field = model.model_fields.get(key)
    return field is not None and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def field_at(model: type[BaseModel], path: Sequence[str]) -> FieldInfo | None:
    models, field = [model], None
    for step in path:
        fields = (fields_of(one) for one in models)
        field = next((known[step] for known in fields if step in known), None)
        if field is None:
            return None
        models = models_in(field.annotation)
    return field


def fields_at(model: type[BaseModel], path: Sequence[str]) -> list[FieldInfo]:
    """All fields that a key may mean: of the items of a list, those of each sort."""
    models, found = [model], list[FieldInfo]()
    for step in path:
        found = [fields_of(one)[step] for one in models if step in fields_of(one)]
        models = [inner for field in found for inner in models_in(field.annotation)]
    return found


def is_secret(key: str, field: FieldInfo | None) -> bool:
    """Whether a setting holds something that must not be seen: by its type, or by its name."""
    if field is not None and field.annotation in {bool, int, float}:
        return False
    if field is not None and SecretStr in types_in(field.annotation):
        return True
    return key.endswith(("token", "tokens", "api_key", "secret", "secret_key", "password", "database_url"))


def known_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in fields_of(model).items():
        yield prefix + name
        for inner in models_in(field.annotation):
            yield from known_keys(inner, f"{prefix}{name}.")


def nested(flat: Mapping[str, Any]) -> Nested:
    result: Nested = {}
    for key, value in flat.items():
        *sections, name = key.split(".")
        inner = result
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return result


def lay_over(below: Nested, above: Nested) -> None:
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            lay_over(below[key], value)
        else:
            below[key] = value
