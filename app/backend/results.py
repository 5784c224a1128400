"""What became of one item of a batch?

The messages that clients rely on stand in the reference; the others follow their pattern: `… already exists.`, `…
does not exist.`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

ItemT = TypeVar("ItemT")

Results = dict[str, Mapping[str, object]]
"""`result.data` of a batch: item id to what became of it."""


def done(item_id: str, message: str) -> dict[str, object]:
    return {"success": True, "id": item_id, "message": message}


def failed(item_id: str, message: str) -> dict[str, object]:
    return {"success": False, "id": item_id, "message": message}


def all_failed(item_ids: Iterable[str], message: str) -> Results:
    """The same failure for every item, because what they all lie in is missing."""
    return {item_id: failed(item_id, message) for item_id in item_ids}


def by_id(items: Iterable[ItemT], id_of: Callable[[ItemT], str]) -> dict[str, ItemT]:
    """The items by id, in their order. An id that comes twice in one batch has one result: the first item stands."""
    found: dict[str, ItemT] = {}
    for item in items:
        found.setdefault(id_of(item), item)
    return found
