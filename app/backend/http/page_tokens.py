"""Page tokens: the encrypted position of the next page.

Callers cannot read or forge a token. It is bound to its query: the operation, the API key and all parameters except the
page's size. Positions are keys, not offsets, so that inserts and deletes between two pages do not shift rows.
"""

from collections.abc import Sequence

import orjson

from app.backend.security.vault import Seal, UnreadableSecretError
from app.contract.base import Request
from app.contract.errors import InvalidArgument

_NOT_PART_OF_THE_QUERY = ("pageToken", "pageSize")


class PageTokens:
    """Issues and opens page tokens."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def issue(self, operation: str, api_key_id: str, request: Request, position: Sequence[str]) -> str:
        """The token of the page after ``position``, the key of the last returned row."""
        return self._seal.close(orjson.dumps(list(position)).decode(), _query(operation, api_key_id, request))

    def position(self, operation: str, api_key_id: str, request: Request, token: str | None) -> list[str] | None:
        """The position in ``token``; None if it is empty. Raises ``InvalidArgument`` for a token of another query."""
        if not token:
            return None
        try:
            opened = self._seal.open(token, _query(operation, api_key_id, request))
        except UnreadableSecretError as error:
            raise InvalidArgument("data.pageToken: is not a token of this query") from error
        position: list[str] = orjson.loads(opened)
        return position


def _query(operation: str, api_key_id: str, request: Request) -> str:
    parameters = {key: value for key, value in request.to_wire().items() if key not in _NOT_PART_OF_THE_QUERY}
    return orjson.dumps([operation, api_key_id, parameters], option=orjson.OPT_SORT_KEYS).decode()
