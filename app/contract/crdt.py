"""CRDT data: the shared content of an editor."""

from typing import Literal, Self

import orjson
from pydantic import ConfigDict, JsonValue, StrictStr, model_validator

from app.contract import limits
from app.contract.base import Id, InOrganization, JsonObject, WireModel

CrdtType = Literal["text", "map", "array", "xml"]
CrdtValue = StrictStr | JsonObject | list[JsonValue]

DEFAULT_CONTENT_KEY = "content"

_TYPES: dict[str, tuple[type, str]] = {
    "text": (str, "string"),
    "xml": (str, "string"),
    "map": (dict, "object"),
    "array": (list, "array"),
}
"""The Python and JSON type of ``data`` for each ``type``."""


def _has_more_values(value: JsonValue, limit: int) -> bool:
    """Whether ``value`` contains more than ``limit`` values, at any depth."""
    count = 0
    pending: list[JsonValue] = [value]
    while pending:
        container = pending.pop()
        if isinstance(container, dict | list):
            count += len(container)
            if count > limit:
                return True
            pending.extend(container.values() if isinstance(container, dict) else container)
    return False


class _EditorContent(InOrganization):
    """Content of an editor: a string for ``text`` and ``xml``, an object for ``map``, an array for ``array``."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"properties": {"type": {"const": name}, "data": {"type": json_type}}}
                for name, (_, json_type) in _TYPES.items()
            ]
        }
    )

    document_id: Id
    editor_id: Id
    data: CrdtValue
    type: CrdtType
    content_key: Id | None = None

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        python_type, json_type = _TYPES[self.type]
        if not isinstance(self.data, python_type):
            # Pydantic reports a ValueError as a validation error, but not a TypeError.
            raise ValueError(f"data must be of type {json_type} when type is {self.type}")  # noqa: TRY004 - see above
        if len(orjson.dumps(self.data)) > limits.EDITOR_DATA_BYTES:
            raise ValueError(f"data must be at most {limits.EDITOR_DATA_BYTES} bytes long as JSON")
        if _has_more_values(self.data, limits.EDITOR_VALUES):
            raise ValueError(f"data must hold at most {limits.EDITOR_VALUES} values")
        return self


class AddCrdtDataRequest(_EditorContent):
    """Sets the content of an editor without data."""


class UpdateCrdtDataRequest(_EditorContent):
    """Replaces the content of an editor."""


class GetCrdtDataRequest(InOrganization):
    """The data of one editor, or of all editors of a document."""

    document_id: Id
    editor_id: Id | None = None


class CrdtData(WireModel):
    """The data of one editor in a response."""

    editor_id: str
    organization_id: str | None = None
    document_id: str | None = None
    data: JsonValue = None
    type: str | None = None
    content_key: str | None = None
    last_updated: int | float | str | None = None
