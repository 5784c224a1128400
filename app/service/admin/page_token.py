"""Page tokens of lists: opaque texts with the query of a list and a position in it."""

from collections.abc import Sequence

import orjson

from app.contract.errors import InvalidArgument
from app.foundation.base64url import base64url, from_base64url


def page_token(query: str, position: Sequence[int | str]) -> str:
    return base64url(orjson.dumps([query, *position]))


def read_page_token(token: str, query: str) -> list[int | str]:
    """The position in a token, of unchecked length. Raises ``InvalidArgument`` for a token of another query."""
    try:
        token_query, *position = orjson.loads(from_base64url(token))
    except (ValueError, TypeError) as error:
        raise invalid_page_token() from error
    # A boolean is an integer in Python, but not in JSON.
    checked = [value for value in position if type(value) in {int, str}]
    if token_query != query or len(checked) != len(position):
        raise invalid_page_token()
    return checked


def invalid_page_token() -> InvalidArgument:
    """The error for a token that no page of the list returned."""
    return InvalidArgument("pageToken: not a token of this list; start without one")
