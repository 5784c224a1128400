"""Lists on pages: fifty rows each, begun after a key that travels in the address."""

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
    """Where the next page begins; empty: there is none."""
    is_first: bool = True


class Lists:
    """The lists of one page, of which the address may have turned over one: the others are then left out."""

    def __init__(self, after: str, parts: Mapping[str, int], *about: str) -> None:
        """``parts``: list → parts of its keys; ``about``: what the lists are of. Raises ``BadRequest`` where ``after``
        is no position in one of these lists."""
        self._about = _digest(about)
        self.turned = ""
        """The list that was turned over; empty: none."""
        self._key: tuple[str, ...] = ()
        if not after:
            return
        try:
            given = json.loads(after)
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, list) or not all(isinstance(part, str) for part in given) or len(given) < 2:
            raise _no_position()
        name, about_what, *key = given
        if parts.get(name) != len(key) or about_what != self._about or not may_be_stored(*key):
            raise _no_position()
        self.turned, self._key = name, tuple(key)

    def page(
        self,
        name: str,
        read: Callable[[Sequence[str], int], Sequence[Row]],
        key: Callable[[Row], Sequence[str]],
    ) -> Listing[Row] | None:
        """One page of a list, which ``read`` gives after a key (empty: from the beginning) and with so many rows at
        most; None: another one was turned over."""
        if self.turned not in {"", name}:
            return None
        after = self._key if self.turned == name else ()
        rows = read(after, PAGE_ROWS + 1)
        shown = rows[:PAGE_ROWS]
        position = ""
        if len(rows) > PAGE_ROWS:
            position = json.dumps([name, self._about, *key(shown[-1])], ensure_ascii=False)
        return Listing(shown, position, not after)

    def page_by_id(
        self, name: str, read: Callable[[str, int], Sequence[Row]], id_of: Callable[[Row], str]
    ) -> Listing[Row] | None:
        """The same for a list whose key is one id; empty: from the beginning."""
        return self.page(name, lambda after, limit: read(after[0] if after else "", limit), lambda row: (id_of(row),))


def _no_position() -> BadRequest:
    return BadRequest("after names no position in a list of this page; start from its first page")


def _digest(about: Sequence[str]) -> str:
    return f"{crc32(json.dumps(about).encode()):08x}"
