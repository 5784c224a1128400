"""Pages of rows, read in either order by index alone.

Pages follow keys: the row that the page before ended with is compared as a whole (``(time, id) < (…)``), which both
databases answer from an index that ends in these columns.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, Integer, Row, Select, literal, select, tuple_
from sqlalchemy import union_all as all_of

from app.backend.storage import json_sets
from app.contract import limits
from app.contract.base import Order
from app.contract.errors import ResourceExhausted

RowT = TypeVar("RowT")
SelectT = TypeVar("SelectT", bound=Select[*tuple[Any, ...]])

MAX_BRANCHES = 10
"""Up to so many values of one filter are looked up one by one; more of them are so common that a scan finds enough."""

MAX_PAGE_BYTES = 8 * 1024 * 1024
"""How many bytes of stored text a page may bring along before it ends early."""

MAX_RESPONSE_BYTES = 32 * 1024 * 1024
"""The same for what has no pages; beyond, it is refused."""


def page_rows(asked: int | None) -> int:
    """How many rows a page has for this ``pageSize``: whoever asks for more than there are on any page gets that many,
    and a token.
    """
    return min(limits.PAGE_SIZE_DEFAULT if asked is None else asked, limits.PAGE_SIZE_MAX)


def payload_weight(row: Any) -> int:
    """Bytes that a row weighs whose text is its ``payload``, or near to it; 0 for one that has none."""
    return len(getattr(row, "payload", None) or "")


def cut(rows: Iterable[RowT], size: int, weight: Callable[[RowT], int] | None = None) -> tuple[list[RowT], bool]:
    """Those of the rows that make the page, and whether more follow: ``size`` at most, and no more than weigh
    ``MAX_PAGE_BYTES`` together, but at least one. What is not needed is not fetched.
    """
    weigh = payload_weight if weight is None else weight
    page: list[RowT] = []
    total = 0
    for row in rows:
        total += weigh(row)
        if len(page) == size or (page and total > MAX_PAGE_BYTES):
            return page, True
        page.append(row)
    return page, False


def fetch_all(rows: Iterable[RowT], narrower: str, weight: Callable[[RowT], int] | None = None) -> list[RowT]:
    """All of the rows, for what has no pages. Raises ``ResourceExhausted`` where they weigh more than
    ``MAX_RESPONSE_BYTES``; ``narrower`` says how to ask for less.
    """
    weigh = payload_weight if weight is None else weight
    found: list[RowT] = []
    total = 0
    for row in rows:
        total += weigh(row)
        if found and total > MAX_RESPONSE_BYTES:
            raise ResourceExhausted(f"the answer would be larger than {MAX_RESPONSE_BYTES} bytes: {narrower}")
        found.append(row)
    return found


def where_equal(query: SelectT, *wanted: tuple[ColumnElement[Any], object]) -> SelectT:
    """``query`` with the rows whose columns have these values; None for any."""
    return query.where(*(column == value for column, value in wanted if value is not None))


@dataclass(frozen=True, slots=True)
class Page:
    """Which page: the columns that it is sorted by (an id last, so that no two rows are equal), which way, after which
    row, and how many rows at most.
    """

    keys: tuple[Any, ...]
    after: Sequence[str] | None
    size: int
    order: Order = "asc"

    def of(self, query: Select[Any]) -> Select[Any]:
        """This page of ``query``, and one row more that tells whether another page follows."""
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
        """This page of those rows of ``query`` in which ``column`` is one of ``values``.

        A page for each value is read from its own stretch of the index, then merged: rare values are found at once
        among millions of others, and common ones need not all be sorted.
        """
        if len(values) > MAX_BRANCHES:
            # An expression has no index: the rows are filtered in the page's order, not collected and sorted.
            return self.of(query.where(json_sets.among(connection, column + literal(""), values)))
        if len(values) <= 1:
            return self.of(query.where(column == values[0] if values else literal(value=False)))
        branches = [select(self.of(query.where(column == value)).subquery()) for value in values]
        together = all_of(*branches).subquery()
        return self._sorted(select(together), tuple(together.c[key.name] for key in self.keys))

    def cut(self, rows: Iterable[RowT], weight: Callable[[RowT], int] | None = None) -> tuple[list[RowT], bool]:
        """Those of the rows that make the page (see ``cut``)."""
        return cut(rows, self.size, weight)

    def position(self, row: Row[Any]) -> list[str]:
        """The key of a row, as page tokens carry it."""
        return [str(getattr(row, key.name)) for key in self.keys]

    def _sorted(self, query: Select[Any], keys: Sequence[ColumnElement[Any]]) -> Select[Any]:
        return query.order_by(*((key.desc() if self.order == "desc" else key.asc()) for key in keys)).limit(
            self.size + 1
        )
