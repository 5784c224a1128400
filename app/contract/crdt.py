"""CRDT editor data: the shared content of an editor instance."""

from typing import Literal, Self

from pydantic import ConfigDict, JsonValue, StrictStr, model_validator

from app.contract import limits
from app.contract.base import Id, InOrganization, JsonObject, WireModel, json_size

CrdtType = Literal["text", "map", "array", "xml"]
CrdtValue = StrictStr | JsonObject | list[JsonValue]

DEFAULT_CONTENT_KEY = "content"

_FORM: dict[str, tuple[type, str]] = {
    "text": (str, "string"),
    "xml": (str, "string"),
    "map": (dict, "object"),
    "array": (list, "array"),
}
"""The form that ``data`` takes for each type, in Python and in JSON."""


def _data_fits_type(schema: JsonObject) -> None:
    schema["oneOf"] = [
        {"properties": {"type": {"const": name}, "data": {"type": json_type}}} for name, (_, json_type) in _FORM.items()
    ]


def _has_more_values(value: JsonValue, most: int) -> bool:
    """Whether there are more than ``most`` values within ``value``, at any depth."""
    count = 0
    pending: list[JsonValue] = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict | list):
            count += len(one)
            if count > most:
                return True
            pending.extend(one.values() if isinstance(one, dict) else one)
    return False


class _EditorContent(InOrganization):
    """Content of an editor: a string for ``text`` and ``xml``, an object for ``map``, an array for ``array``. At most
    4 MiB as JSON, with 50,000 values in it, or 10,000 elements, texts and attributes of XML.
    """

    model_config = ConfigDict(json_schema_extra=_data_fits_type)

    document_id: Id
    editor_id: Id
    data: CrdtValue
    type: CrdtType
    content_key: Id | None = None

    @model_validator(mode="after")
    def _data_matches_type(self) -> Self:
        python_type, json_type = _FORM[self.type]
        if not isinstance(self.data, python_type):
            # A ValueError, because pydantic does not take a TypeError for a complaint about the input.
            raise ValueError(f"data must be of type {json_type} when type is {self.type}")  # noqa: TRY004 - see above
        if json_size(self.data) > limits.EDITOR_DATA_BYTES:
            raise ValueError(f"data must be at most {limits.EDITOR_DATA_BYTES} bytes long as JSON")
        if _has_more_values(self.data, limits.EDITOR_VALUES):
            raise ValueError(f"data must hold at most {limits.EDITOR_VALUES} values")
        return self


class AddCrdtDataRequest(_EditorContent):
    """For an editor that has no data yet."""


class UpdateCrdtDataRequest(_EditorContent):
    """For an editor that has data."""


class GetCrdtDataRequest(InOrganization):
    """The data of one editor, or of all editors of a document."""

    document_id: Id
    editor_id: Id | None = None


class CrdtData(WireModel):
    """The data of one editor as it is read."""

    editor_id: str
    organization_id: str | None = None
    document_id: str | None = None
    data: JsonValue = None
    type: str | None = None
    content_key: str | None = None
    last_updated: int | float | str | None = None
