"""JSON responses, serialized with orjson."""

from collections.abc import Mapping

import orjson
from flask import Response


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response with ``value`` as its JSON body. ``value`` consists of the types that orjson supports."""
    response = Response(orjson.dumps(value), status, content_type="application/json")
    if headers:
        response.headers.update(headers)
    return response
