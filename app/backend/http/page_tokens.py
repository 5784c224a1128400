"""The tokens of the pages of one query."""

from dataclasses import dataclass

import orjson

from app.backend.security.vault import Seal, UnreadableSecretError
from app.backend.storage import json_columns
from app.contract.base import Request
from app.contract.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class PageTokens:
    """Encrypts the key of the last row of a page.

    Keys, unlike offsets, stay right if rows are inserted or deleted between two pages. A token is valid for the same
    operation, API key and parameters only.
    """

    seal: Seal
    operation: str
    api_key_id: str
    request: Request

    def position(self, token: str | None) -> list[str] | None:
        """The key of the last row before the page. None for the first page.

        Raises ``InvalidArgument`` for a token of another query.
        """
        if not token:
            return None
        try:
            return json_columns.load_list(self.seal.open(token, self._query()))
        except UnreadableSecretError as error:
            raise InvalidArgument("data.pageToken: is not a token of this query") from error

    def after(self, position: list[str]) -> str:
        """The token of the page after the row with this key."""
        return self.seal.close(json_columns.dump(position), self._query())

    def _query(self) -> str:
        ignored = {"pageToken", "pageSize"}
        parameters = {key: value for key, value in self.request.to_wire().items() if key not in ignored}
        return orjson.dumps([self.operation, self.api_key_id, parameters], option=orjson.OPT_SORT_KEYS).decode()
