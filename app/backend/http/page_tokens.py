"""Page tokens: how does a reader come back for the next page?

With a token that says where the page before ended. It is encrypted (callers cannot read or forge it) and bound to its
query: the operation, the API key and all parameters but the page's size. Pages follow keys, not offsets, so rows that
come and go between two pages neither repeat nor hide others.
"""

from collections.abc import Sequence

import orjson

from app.backend.security.vault import Seal, UnreadableSecretError
from app.contract.base import Request
from app.contract.errors import InvalidArgument

_NOT_PART_OF_THE_QUERY = ("pageToken", "pageSize")


class PageTokens:
    """Page tokens of this backend."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def issue(self, operation: str, api_key_id: str, request: Request, position: Sequence[str]) -> str:
        """The token that leads past ``position``, the key of the last row that was returned."""
        return self._seal.close(orjson.dumps(list(position)).decode(), _query(operation, api_key_id, request))

    def position(self, operation: str, api_key_id: str, request: Request, token: str | None) -> list[str] | None:
        """Where ``token`` leads; None without one, or with an empty one. Raises ``InvalidArgument`` for a token that
        is not of this query.
        """
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
