"""Reads JSON request bodies of untrusted callers.

No more than the limit is read, whatever the headers declare. Every refusal is an ``InvalidArgument``, with the more
specific HTTP code (413, 415) if there is one.
"""

from collections.abc import Callable, Sequence

from flask import Request
from werkzeug.exceptions import HTTPException
from werkzeug.http import parse_options_header

from app.contract.errors import PAYLOAD_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, InvalidArgument
from app.http.strict_json import count_values, parse

ANONYMOUS_BYTES = 64 * 1024
"""The limit for the body of an unauthenticated caller."""

INCOMPLETE_BODY = "the body could not be read to its end"

_BYTES_PER_VALUE = 8
_FEW_VALUES = 10_000


def read_json(request: Request, *, max_bytes: int, odd_values: bool = False) -> object:
    """The JSON value in the body of ``request``.

    Raises ``InvalidArgument``: 415 for another content type or a compressed body, 413 for more than ``max_bytes`` bytes
    or an unusual number of values, 400 for anything that is not strict JSON. ``strict_json`` describes ``odd_values``.
    """
    check_type(request, ("application/json",))
    return parse_body(request.stream.read, request.content_length, max_bytes=max_bytes, odd_values=odd_values)


def parse_body(
    read: Callable[[int], bytes], declared: int | None, *, max_bytes: int, odd_values: bool = False
) -> object:
    """Parses a body whose type was checked, like ``read_json``. ``declared``: its length. None: unknown."""
    raw = _read(read, declared, max_bytes)
    if not raw or raw.isspace():
        raise InvalidArgument("the body is empty; send a JSON object")
    if len(raw) > _FEW_VALUES and count_values(raw) > max(_FEW_VALUES, max_bytes // _BYTES_PER_VALUE):
        # Checked before parsing: a million empty objects are 3 MB of JSON and 70 MB of memory.
        raise InvalidArgument("the body holds too many values; send less at a time", http_code=PAYLOAD_TOO_LARGE)
    return parse(raw, odd_values=odd_values)


def check_type(request: Request, allowed: Sequence[str]) -> None:
    """Raises ``InvalidArgument`` (415) unless the body has one of these media types, in UTF-8 and uncompressed."""
    encoding = request.environ.get("HTTP_CONTENT_ENCODING", "")
    if encoding and encoding.strip().lower() != "identity":
        raise InvalidArgument(
            "Content-Encoding is not supported; send the body uncompressed", http_code=UNSUPPORTED_MEDIA_TYPE
        )
    content_type = request.environ.get("CONTENT_TYPE", "")
    if content_type in allowed:
        return
    media_type, parameters = parse_options_header(content_type)
    if media_type.lower() not in allowed:
        raise InvalidArgument(f"Content-Type must be {' or '.join(allowed)}", http_code=UNSUPPORTED_MEDIA_TYPE)
    for name, value in parameters.items():
        if name.lower() != "charset" or value.lower() not in {"utf-8", "utf8"}:
            raise InvalidArgument(
                "Content-Type may carry no parameter but charset=utf-8", http_code=UNSUPPORTED_MEDIA_TYPE
            )


def _read(read: Callable[[int], bytes], declared: int | None, max_bytes: int) -> bytes:
    if declared is not None and declared > max_bytes:
        raise _too_large(max_bytes)
    # The length of a chunked body is unknown: reading one byte beyond the limit shows that it is too long.
    limit = max_bytes + 1 if declared is None else declared
    raw = b""
    try:
        while len(raw) < limit and (piece := read(limit - len(raw))):
            raw = raw + piece if raw else piece
    except (HTTPException, OSError, ValueError) as error:
        raise InvalidArgument(INCOMPLETE_BODY) from error
    if declared is not None and len(raw) < declared:
        raise InvalidArgument(INCOMPLETE_BODY)
    if len(raw) > max_bytes:
        raise _too_large(max_bytes)
    return raw


def _too_large(max_bytes: int) -> InvalidArgument:
    return InvalidArgument(f"the body is larger than {max_bytes} bytes", http_code=PAYLOAD_TOO_LARGE)
