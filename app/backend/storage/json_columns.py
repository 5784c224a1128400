"""JSON columns, and the JSON objects and lists in them."""

from typing import Any

import orjson


def dump(value: object) -> str:
    """JSON for a column."""
    return orjson.dumps(value).decode()


def without_none(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def load_object(text: str) -> dict[str, object]:
    """The JSON object in a column."""
    value: dict[str, object] = orjson.loads(text)
    return value


def load_list(text: str) -> list[str]:
    """The JSON list of strings in a column."""
    value: list[str] = orjson.loads(text)
    return value
