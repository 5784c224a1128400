"""The settings as they are shown to people: every value, its origin, and no secret."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from app.foundation.configuration.schema import is_secret

MASK = "********"

# A password may hold anything that is not escaped as it should be: up to the last @, then. Too much masked is no harm.
_PASSWORD_IN_URL = re.compile(r"(://[^:/?#@\s]*:)\S*@")
_PASSWORD_OF_DATABASE = re.compile(r"(://[^:/?#@\s]*:).*@", re.DOTALL)
_CREDENTIALS_IN_URL = re.compile(r"^([a-z]+://).*@", re.DOTALL)
_SECRET_IN_QUERY = re.compile(
    r"([?&;](?:[a-z_]*password|passwd|pwd|[a-z_]*secret|[a-z_]*token|api_?key|key|sig|signature)=)[^&\s\"']+",
    re.IGNORECASE,
)

_PATH = re.compile(r"(://[^/?#]*)[/?#].+", re.DOTALL)


def without_password(text: str) -> str:
    """Masks passwords in URLs, and secrets in their queries."""
    return _SECRET_IN_QUERY.sub(rf"\1{MASK}", _PASSWORD_IN_URL.sub(rf"\1{MASK}@", text))


def shown(key: str, value: Any, field: FieldInfo | None = None) -> str:
    """A setting's value as it may be printed: secrets masked, an empty one visibly empty."""
    if key.endswith("proxy") and isinstance(value, SecretStr):
        # Which one it is may be known; who we are to it may not.
        return _CREDENTIALS_IN_URL.sub(rf"\1{MASK}@", value.get_secret_value()) or '""'
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else '""'
    if key.endswith("database_url"):
        return without_password(_PASSWORD_OF_DATABASE.sub(rf"\1{MASK}@", str(value)))
    if is_secret(key, field):
        if isinstance(value, Sequence) and not isinstance(value, str):
            return "[" + ", ".join(MASK for _ in value) + "]"
        return MASK if value else '""'
    if field is not None and isinstance(field.json_schema_extra, dict) and "secret_path" in field.json_schema_extra:
        return json.dumps(_PATH.sub(rf"\1/{MASK}", str(value)))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return without_password(json.dumps(value, ensure_ascii=False, default=str))


def listed(settings: BaseModel, origins: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Every setting as (dotted key, value to print, where it was given)."""
    yield from _listed(settings, origins, "", "default")


def _listed(
    model: BaseModel, origins: Mapping[str, str], prefix: str, unless_given: str
) -> Iterator[tuple[str, str, str]]:
    for name, field in type(model).model_fields.items():
        key, value = prefix + name, getattr(model, name)
        origin = origins.get(key, unless_given)
        items = list(value) if isinstance(value, (list, tuple)) else []
        if isinstance(value, BaseModel):
            yield from _listed(value, origins, key + ".", "default")
        elif items and all(isinstance(item, BaseModel) for item in items):
            for index, item in enumerate(items):
                given = "default" if key in origins else unless_given
                yield from _listed(item, origins, f"{key}[{index}].", given)
        else:
            yield key, shown(name, value, field), origin
