"""Keyset pagination in ascending or descending order, and the size limits of pages and of responses without pages.

A page begins after the key of the last row before it, compared as a tuple (``(time, id) < (…)``). Both databases use an
index that ends in these columns.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, Integer, Row, Select, literal, select, tuple_, union_all

from app.backend.storage.rows import among
from app.contract import limits
from app.contract.base import Order
from app.contract.errors import ResourceExhausted

RowT = TypeVar("RowT")

MAX_BRANCHES = 10
"""Up to this number of values, each is an index lookup. With more values, a scan finds enough rows."""

MAX_PAGE_BYTES = 8 * 1024 * 1024
"""Bytes of stored text after which a page ends early."""

MAX_RESPONSE_BYTES = 32 * 1024 * 1024
"""Bytes of stored text in a response without pages. A larger one is refused."""


def page_rows(page_size: int | None) -> int:
    """The number of rows of a page for this ``pageSize``."""
    return min(limits.PAGE_SIZE_DEFAULT if page_size is None else page_size, limits.PAGE_SIZE_MAX)


def payload_length(row: Any) -> int:
    """The length of a row's ``payload``. 0 if it has none."""
    return len(getattr(row, "payload", None) or "")


def cut(rows: Iterable[RowT], size: int, length: Callable[[RowT], int] = payload_length) -> tuple[list[RowT], bool]:
    """The rows of a page (at most ``size`` and ``MAX_PAGE_BYTES``, but one), and whether more follow, which are not
    fetched."""
    page: list[RowT] = []
    total = 0
    for row in rows:
        total += length(row)
        if len(page) == size or (page and total > MAX_PAGE_BYTES):
            return page, True
        page.append(row)
    return page, False


def fetch_all(rows: Iterable[RowT], advice: str, length: Callable[[RowT], int] = payload_length) -> list[RowT]:
    """All rows, for a response without pages. Raises ``ResourceExhausted`` with ``advice`` beyond
    ``MAX_RESPONSE_BYTES``."""
    all_rows: list[RowT] = []
    total = 0
    for row in rows:
        total += length(row)
        if all_rows and total > MAX_RESPONSE_BYTES:
            raise ResourceExhausted(f"the response would be larger than {MAX_RESPONSE_BYTES} bytes: {advice}")
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
        return self._sorted(query, self.keys)

    def of_any(
        self, connection: Connection, query: Select[Any], column: Column[Any], values: Sequence[str]
    ) -> Select[Any]:
        """This page of the rows of ``query`` in which ``column`` has one of ``values``.

        Merges a page for each value: rare values are found at once among millions of rows, and common ones not all
        sorted.
        """
        if len(values) > MAX_BRANCHES:
            # The expression prevents an index of the column: rows are filtered in the page's order, not sorted.
            return self.of(query.where(among(connection, column + literal(""), values)))
        if len(values) <= 1:
            return self.of(query.where(column == values[0] if values else literal(value=False)))
        branches = [select(self.of(query.where(column == value)).subquery()) for value in values]
        together = union_all(*branches).subquery()
        return self._sorted(select(together), tuple(together.c[key.name] for key in self.keys))

    def position(self, row: Row[Any]) -> list[str]:
        """The key of a row, for a page token."""
        return [str(getattr(row, key.name)) for key in self.keys]

    def _sorted(self, query: Select[Any], keys: Sequence[ColumnElement[Any]]) -> Select[Any]:
        return query.order_by(*((key.desc() if self.order == "desc" else key.asc()) for key in keys)).limit(
            self.size + 1
        )
