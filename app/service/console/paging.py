"""Lists on pages: fifty rows each, continued after a key that the URL contains."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from zlib import crc32

from sqlalchemy import Connection
from werkzeug.exceptions import BadRequest

from app.access.browse.by_name import find_first, sort_by_name
from app.access.browse.lists import ListEntry, RecordList
from app.foundation.ids import may_be_stored

PAGE_ROWS = 50
"""Rows of a list on one page."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    rows: Sequence[Row]
    next_after: str = ""
    """The cursor of the next page. It is empty for the last page."""
    is_first: bool = True
    total: int | None = None
    """The number of rows of all pages. None: the list is not in the order of names."""


class Lists:
    """The lists of one page. If the URL contains a cursor of one of them, the others are left out.

    A cursor is a JSON list: the name of the list, a checksum of its subject, and the key of the last row.
    """

    def __init__(self, after: str, lists: Mapping[str, int], *subject: str) -> None:
        """Raises ``BadRequest`` for an invalid cursor, and for one of another list or subject.

        ``after``: the cursor. ``lists``: the length of the key of each list. ``subject``: the ids of what the lists
        are about.
        """
        self._subject = f"{crc32(json.dumps(subject).encode()):08x}"
        self.continued = ""
        """The list that the cursor belongs to. It is empty if there is no cursor."""
        self.after: tuple[str, ...] = ()
        """The key in the cursor. It is empty if there is no cursor."""
        if not after:
            return
        try:
            cursor = json.loads(after)
        except (ValueError, RecursionError):
            cursor = None
        if not isinstance(cursor, list) or not all(isinstance(part, str) for part in cursor) or len(cursor) < 2:
            raise invalid_cursor()
        name, of_subject, *key = cursor
        if lists.get(name) != len(key) or of_subject != self._subject or not may_be_stored(*key):
            raise invalid_cursor()
        self.continued, self.after = name, tuple(key)

    def page(
        self, name: str, read: Callable[..., Sequence[Row]], key_of: Callable[[Row], Sequence[str]]
    ) -> Listing[Row] | None:
        """One page of a list. None: the cursor belongs to another list.

        ``read(after=, limit=)`` returns rows after a key, which is empty for the first page, up to a limit.
        """
        if self.continued not in {"", name}:
            return None
        return self.cut(name, read(after=self.after, limit=PAGE_ROWS + 1), key_of)

    def cut(self, name: str, rows: Sequence[Row], key_of: Callable[[Row], Sequence[str]]) -> Listing[Row]:
        """One page of a list. ``rows``: those after the cursor, at least one more than a page has if there are more."""
        page = rows[:PAGE_ROWS]
        cursor = ""
        if len(rows) > PAGE_ROWS:
            cursor = json.dumps([name, self._subject, *key_of(page[-1])], ensure_ascii=False)
        return Listing(page, cursor, not self.after)

    def page_by_id(
        self, name: str, read: Callable[..., Sequence[Row]], id_field: str = "item_id"
    ) -> Listing[Row] | None:
        """One page of a list whose key is an id. None: the cursor belongs to another list."""

        def read_after(after: Sequence[str], limit: int) -> Sequence[Row]:
            return read(after=after[0] if after else "", limit=limit)

        return self.page(name, read_after, lambda row: (getattr(row, id_field),))

    def page_by_name(
        self, name: str, connection: Connection, records: RecordList, text: str = ""
    ) -> Listing[ListEntry] | None:
        """One page of a list in the order of names, if it is not too long for that. None: the cursor belongs to another
        list. ``text``: only records with its words are listed."""
        if self.continued not in {"", name}:
            return None
        # The name is empty in the order of ids.
        order, last_name, last_id = self.after or ("", "", "")
        keys = None if order == "id" else sort_by_name(connection, records, text)
        if keys is not None:
            later = [key for key in keys if not self.after or key > (last_name, last_id)]
            page_keys = [("name", *key) for key in later[: PAGE_ROWS + 1]]
        elif order == "name":
            raise invalid_cursor()
        elif text:
            return Listing(find_first(connection, records, text, PAGE_ROWS))
        else:
            page_keys = [("id", "", item_id) for item_id in records.ids(after=last_id, limit=PAGE_ROWS + 1)]
        page = self.cut(name, page_keys, lambda key: key)
        rows = records.rows([item_id for _, _, item_id in page.rows])
        return Listing(rows, page.next_after, page.is_first, None if keys is None else len(keys))


def invalid_cursor() -> BadRequest:
    """For a cursor that is no position in its list, or no longer."""
    return BadRequest("after is not a position in a list of this page; start from its first page")
