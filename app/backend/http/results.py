"""The results of a batch, by item.

The reference defines some messages. The others have the same pattern: ``… already exists.``, ``… does not exist.``
"""

from collections.abc import Container, Iterable, Mapping
from typing import TypeVar

import orjson

from app.contract import limits
from app.contract.base import WithMetadata

ItemT = TypeVar("ItemT")
WithMetadataT = TypeVar("WithMetadataT", bound=WithMetadata)

Results = dict[str, Mapping[str, object]]
"""``result.data`` of a batch: the outcome of each item, by id."""

TOO_LARGE = f"Metadata would be longer than {limits.STORED_METADATA_BYTES} bytes."


def merge_payload(
    item_id: str, stored: dict[str, object] | None, changes: Mapping[str, object], *, missing: str, updated: str
) -> Mapping[str, object]:
    """Merges changes into the dict ``stored``, the payload of an item, unless it is None (``missing``) or would be too
    large. Returns the outcome."""
    if stored is None:
        return failed(item_id, missing)
    if grows_too_large(stored, changes):
        return failed(item_id, TOO_LARGE)
    stored |= changes
    return done(item_id, updated)


def grows_too_large(stored: Mapping[str, object], changes: Mapping[str, object]) -> bool:
    """Whether an update makes the stored payload of an item longer, and longer than the limit, in bytes."""
    size = len(orjson.dumps({**stored, **changes}))
    return size > limits.STORED_METADATA_BYTES and size > len(orjson.dumps(stored))


def done(item_id: str, message: str) -> dict[str, object]:
    return {"success": True, "id": item_id, "message": message}


def failed(item_id: str, message: str) -> dict[str, object]:
    return {"success": False, "id": item_id, "message": message}


def per_id(item_ids: Iterable[str], succeeded: Container[str], success: str, failure: str) -> Results:
    """The message ``success`` for the items in ``succeeded``, and ``failure`` for the others."""
    return {
        item_id: done(item_id, success) if item_id in succeeded else failed(item_id, failure) for item_id in item_ids
    }


def all_failed(item_ids: Iterable[str], message: str) -> Results:
    """Fails every item with ``message``, for example because their container does not exist."""
    return {item_id: failed(item_id, message) for item_id in item_ids}


def by_id(items: Iterable[ItemT], id_field: str) -> dict[str, ItemT]:
    """The items by the attribute ``id_field``, in their order. Of several items with one id, the first is kept."""
    items_by_id: dict[str, ItemT] = {}
    for item in items:
        items_by_id.setdefault(getattr(item, id_field), item)
    return items_by_id


def merged_by_id(items: Iterable[WithMetadataT], id_field: str) -> dict[str, WithMetadataT]:
    """The items by the attribute ``id_field``. Several items with one id become one, with the last value of each field.

    The result is not validated again: the metadata of several items may exceed the limit for one."""
    merged: dict[str, WithMetadataT] = {}
    for item in items:
        item_id = getattr(item, id_field)
        declared = {name: value for name in type(item).model_fields if (value := getattr(item, name)) is not None}
        merged[item_id] = together = merged.get(item_id, item).model_copy(update=declared)
        if together.model_extra is not None:
            together.model_extra.update(item.unknown_fields())
    return merged
