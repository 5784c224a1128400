"""Results of a batch: what became of each item?

The messages that clients rely on stand in the reference; the others follow their pattern: ``… already exists.``, ``…
does not exist.``.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import TypeVar

from app.backend.storage import json_sets
from app.contract import limits

ItemT = TypeVar("ItemT")

Results = dict[str, Mapping[str, object]]
"""``result.data`` of a batch: item id to what became of it."""


TOO_HEAVY = f"Metadata would be longer than {limits.STORED_METADATA_BYTES} bytes."


def grows_too_heavy(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    """Whether an update makes more of what is kept of an item than there may be."""
    size = len(json_sets.dump(after))
    return size > limits.STORED_METADATA_BYTES and size > len(json_sets.dump(before))


def done(item_id: str, message: str) -> dict[str, object]:
    return {"success": True, "id": item_id, "message": message}


def failed(item_id: str, message: str) -> dict[str, object]:
    return {"success": False, "id": item_id, "message": message}


def per_id(item_ids: Iterable[str], well: Container[str], yes: str, no: str) -> Results:
    """``yes`` for the items in ``well``, which are done, ``no`` for the others, which failed."""
    return {item_id: done(item_id, yes) if item_id in well else failed(item_id, no) for item_id in item_ids}


def all_failed(item_ids: Iterable[str], message: str) -> Results:
    """The same failure for every item, because what they all lie in is missing."""
    return {item_id: failed(item_id, message) for item_id in item_ids}


def by_id(items: Iterable[ItemT], id_of: Callable[[ItemT], str]) -> dict[str, ItemT]:
    """The items by id, in their order. An id that comes twice in one batch has one result: the first item stands."""
    found: dict[str, ItemT] = {}
    for item in items:
        found.setdefault(id_of(item), item)
    return found
