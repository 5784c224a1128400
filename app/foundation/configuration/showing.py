"""Lists the effective settings as text, each with its origin. Secrets are masked."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from app.foundation.configuration.schema import is_secret, secret_part
from app.foundation.secrets import MASK, SecretPart

# A password may contain characters that should be escaped, so it is masked up to the last @. Masking too much is safe.
_PASSWORD_IN_URL = re.compile(r"(://[^:/?#@\s]*:)\S*@")
_PASSWORD_OF_DATABASE = re.compile(r"(://[^:/?#@\s]*:).*@", re.DOTALL)
_CREDENTIALS_IN_URL = re.compile(r"^([a-z]+://).*@", re.DOTALL)
_SECRET_IN_QUERY = re.compile(
    r"([?&;](?:[a-z_]*password|passwd|pwd|[a-z_]*secret|[a-z_]*token|api_?key|key|sig|signature)=)[^&\s\"']+",
    re.IGNORECASE,
)
_PATH = re.compile(r"(://[^/?#]*)[/?#].+", re.DOTALL)


def without_secrets(text: str) -> str:
    """Masks passwords in the URLs of a text, and secrets in their queries."""
    return _SECRET_IN_QUERY.sub(rf"\1{MASK}", _PASSWORD_IN_URL.sub(rf"\1{MASK}@", text))


class SettingRow(NamedTuple):
    """One setting. ``value`` is JSON, or text with masks."""

    key: str
    value: str
    origin: str


def setting_rows(settings: BaseModel, origins: Mapping[str, str]) -> Iterator[SettingRow]:
    """Every setting, without secrets. ``origins``: the origin of each dotted key that has no default value."""
    return _rows(settings, origins, "")


def _rows(settings: BaseModel, origins: Mapping[str, str], prefix: str) -> Iterator[SettingRow]:
    for name, field in type(settings).model_fields.items():
        key, value = prefix + name, getattr(settings, name)
        items = list(value) if isinstance(value, (list, tuple)) else []
        if isinstance(value, BaseModel):
            yield from _rows(value, origins, f"{key}.")
        elif items and all(isinstance(item, BaseModel) for item in items):
            for index, item in enumerate(items):
                yield from _rows(item, origins, f"{key}[{index}].")
        else:
            yield SettingRow(key, _masked(name, value, field), origins.get(key, "default"))


def _masked(key: str, value: Any, field: FieldInfo) -> str:
    """A setting's value with secrets masked. Empty values are ``""``."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    match secret_part(field):
        case SecretPart.CREDENTIALS:
            return _CREDENTIALS_IN_URL.sub(rf"\1{MASK}@", text) or '""'
        case SecretPart.PASSWORD:
            return without_secrets(_PASSWORD_OF_DATABASE.sub(rf"\1{MASK}@", text))
        case SecretPart.PATH:
            return json.dumps(_PATH.sub(rf"\1/{MASK}", text))
    if is_secret(key, field):
        if isinstance(text, Sequence) and not isinstance(text, str):
            return "[" + ", ".join(MASK for _ in text) + "]"
        return MASK if text else '""'
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return without_secrets(json.dumps(value, ensure_ascii=False, default=str))
