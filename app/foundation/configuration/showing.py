"""Shows settings: every value, its origin, and no secret."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from app.foundation.configuration.schema import has_secret_path, is_secret
from app.foundation.text import MASK

# A password may contain characters that should be escaped, so it is masked up to the last @. Masking too much is safe.
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


def _shown(key: str, value: Any, field: FieldInfo) -> str:
    """A setting's value with secrets masked; empty values are ``""``."""
    if key.endswith("proxy") and isinstance(value, SecretStr):
        # The proxy's address is not a secret.
        return _CREDENTIALS_IN_URL.sub(rf"\1{MASK}@", value.get_secret_value()) or '""'
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else '""'
    if key.endswith("database_url"):
        return without_password(_PASSWORD_OF_DATABASE.sub(rf"\1{MASK}@", str(value)))
    if is_secret(key, field):
        if isinstance(value, Sequence) and not isinstance(value, str):
            return "[" + ", ".join(MASK for _ in value) + "]"
        return MASK if value else '""'
    if has_secret_path(field):
        return json.dumps(_PATH.sub(rf"\1/{MASK}", str(value)))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return without_password(json.dumps(value, ensure_ascii=False, default=str))


def listed(
    settings: BaseModel, origins: Mapping[str, str], prefix: str = "", default_origin: str = "default"
) -> Iterator[tuple[str, str, str]]:
    """Every setting as (dotted key, value without secrets, origin)."""
    for name, field in type(settings).model_fields.items():
        key, value = prefix + name, getattr(settings, name)
        items = list(value) if isinstance(value, (list, tuple)) else []
        if isinstance(value, BaseModel):
            yield from listed(value, origins, key + ".")
        elif items and all(isinstance(item, BaseModel) for item in items):
            # If the list was set, what an item leaves out has its default. Otherwise the items are part of the default.
            for index, item in enumerate(items):
                yield from listed(item, origins, f"{key}[{index}].", "default" if key in origins else default_origin)
        else:
            yield key, _shown(name, value, field), origins.get(key, default_origin)
