"""JSON answers, written fast."""

from collections.abc import Mapping

import orjson
from flask import Response


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with `value` as its JSON body. `value` is made of JSON's own types (and what orjson adds: times,
    UUIDs, dataclasses)."""
    response = Response(orjson.dumps(value), status, content_type="application/json")
    if headers:
        response.headers.update(headers)
    return response
