"""Lists on pages: fifty rows each, continued after a key that the URL contains."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from zlib import crc32

from werkzeug.exceptions import BadRequest

from app.access.browse.lookup import may_be_stored

PAGE_ROWS = 50
"""Rows of a list on one page."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """One page of a list."""

    rows: Sequence[Row]
    next_after: str = ""
    """The cursor of the next page; empty: there is none."""
    is_first: bool = True


class Lists:
    """The lists of one page. If the URL contains a cursor of one of them, the others are left out.

    A cursor is a JSON list: the name of the list, a checksum of its subject, and the key of the last row.
    """

    def __init__(self, after: str, lists: Mapping[str, int], *subject: str) -> None:
        """``after``: the cursor; ``lists``: the length of the key of each list; ``subject``: the ids of what the lists
        are about. Raises ``BadRequest`` for an invalid cursor, and for one of another list or subject."""
        self._subject = f"{crc32(json.dumps(subject).encode()):08x}"
        self.turned = ""
        """The list that the cursor belongs to; empty: there is no cursor."""
        self._key: tuple[str, ...] = ()
        if not after:
            return
        try:
            cursor = json.loads(after)
        except (ValueError, RecursionError):
            cursor = None
        if not isinstance(cursor, list) or not all(isinstance(part, str) for part in cursor) or len(cursor) < 2:
            raise _invalid_cursor()
        name, of_subject, *key = cursor
        if lists.get(name) != len(key) or of_subject != self._subject or not may_be_stored(*key):
            raise _invalid_cursor()
        self.turned, self._key = name, tuple(key)

    def page(
        self,
        name: str,
        read: Callable[..., Sequence[Row]],
        key_of: Callable[[Row], Sequence[str]],
    ) -> Listing[Row] | None:
        """One page of a list. None: the cursor belongs to another list.

        ``read(after=, limit=)`` returns rows after a key, which is empty for the first page, up to a limit.
        """
        if self.turned not in {"", name}:
            return None
        after = self._key if self.turned == name else ()
        rows = read(after=after, limit=PAGE_ROWS + 1)
        page = rows[:PAGE_ROWS]
        cursor = ""
        if len(rows) > PAGE_ROWS:
            cursor = json.dumps([name, self._subject, *key_of(page[-1])], ensure_ascii=False)
        return Listing(page, cursor, not after)

    def page_by_id(
        self, name: str, read: Callable[..., Sequence[Row]], id_field: str = "item_id"
    ) -> Listing[Row] | None:
        """One page of a list whose key is an id. None: the cursor belongs to another list."""

        def read_after(after: Sequence[str], limit: int) -> Sequence[Row]:
            return read(after=after[0] if after else "", limit=limit)

        return self.page(name, read_after, lambda row: (getattr(row, id_field),))


def _invalid_cursor() -> BadRequest:
    return BadRequest("after is not a position in a list of this page; start from its first page")
