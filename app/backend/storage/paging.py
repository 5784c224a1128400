"""Keyset pagination in ascending or descending order, and the size limits of pages and of responses without pages.

A page begins after the key of the last row before it, compared as a tuple (``(time, id) < (…)``). Both databases use an
index that ends in these columns.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Integer, Row, Select, literal, tuple_

from app.contract import limits
from app.contract.base import Order
from app.contract.errors import ResourceExhausted

RowT = TypeVar("RowT")

MAX_PAGE_LENGTH = 8 * 1024 * 1024
"""Characters of stored text after which a page ends early."""

MAX_RESPONSE_LENGTH = 32 * 1024 * 1024
"""Characters of stored text, or bytes of editor data, in a response without pages. A larger one is refused."""


def page_rows(page_size: int | None) -> int:
    """The number of rows of a page for this ``pageSize``."""
    return min(limits.PAGE_SIZE_DEFAULT if page_size is None else page_size, limits.PAGE_SIZE_MAX)


def payload_length(row: Any) -> int:
    """The length of a row's ``payload`` in characters. 0 if it has none."""
    return len(getattr(row, "payload", None) or "")


def cut(rows: Iterable[RowT], size: int, length: Callable[[RowT], int] = payload_length) -> tuple[list[RowT], bool]:
    """The rows of a page (at most ``size`` and ``MAX_PAGE_LENGTH``, but one), and whether more follow, which are not
    fetched."""
    page: list[RowT] = []
    total = 0
    for row in rows:
        total += length(row)
        if len(page) == size or (page and total > MAX_PAGE_LENGTH):
            return page, True
        page.append(row)
    return page, False


def fetch_all(rows: Iterable[RowT], advice: str, length: Callable[[RowT], int] = payload_length) -> list[RowT]:
    """All rows, for a response without pages. Raises ``ResourceExhausted`` with ``advice`` beyond
    ``MAX_RESPONSE_LENGTH``."""
    all_rows: list[RowT] = []
    total = 0
    for row in rows:
        total += length(row)
        if all_rows and total > MAX_RESPONSE_LENGTH:
            raise ResourceExhausted(f"the response would be larger than {MAX_RESPONSE_LENGTH} bytes: {advice}")
        all_rows.append(row)
    return all_rows


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a query."""

    keys: tuple[Any, ...]
    """The columns of the order. The last one is an id, so that the order is total."""
    after: Sequence[str] | None
    """The key of the last row before the page. None for the first page."""
    size: int
    """The maximum number of rows."""
    order: Order = "asc"

    def of(self, query: Select[Any]) -> Select[Any]:
        """This page of ``query``, plus one row, which shows whether another page follows."""
        if self.after is not None:
            values = [
                literal(int(text) if isinstance(key.type, Integer) else text)
                for key, text in zip(self.keys, self.after, strict=True)
            ]
            here = tuple_(*self.keys)
            query = query.where(here < tuple_(*values) if self.order == "desc" else here > tuple_(*values))
        order = (key.desc() if self.order == "desc" else key.asc() for key in self.keys)
        return query.order_by(*order).limit(self.size + 1)

    def position(self, row: Row[Any]) -> list[str]:
        """The key of a row, for a page token."""
        return [str(getattr(row, key.name)) for key in self.keys]
