"""The results of the items of a batch.

Batches come back in two shapes: an item map in a success, and HTTP 500 with ``error.details``, where the items with
``success`` true were done all the same. Both become one ``ItemAnswer`` per item that was asked for.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from app.contract.base import ItemResult

ALREADY_EXISTS = "already-exists"
NOT_FOUND = "not-found"

_EXISTS = re.compile(r"\balready[ _-]?exist", re.IGNORECASE)
_MISSING = re.compile(r"\b(does|do)(n't| not)[ _-]?exist|\bnot[ _-]?found\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ItemAnswer:
    """What became of one item. ``answered`` is false when the answer does not mention it: then its outcome is
    unknown."""

    success: bool
    message: str = ""
    code: str | None = None
    """``already-exists``, ``not-found`` (final), ``internal`` (may pass); taken from the message where only that
    tells."""
    answered: bool = True
    repeated_blindly: bool = False
    """Where it failed: an earlier try of the same call, with an unknown outcome, may have done it all the same."""

    @property
    def already_exists(self) -> bool:
        """Whether the item could not be added because it is there."""
        return self.code == ALREADY_EXISTS

    @property
    def does_not_exist(self) -> bool:
        """Whether the item could not be changed or deleted because it is not there."""
        return self.code == NOT_FOUND


SUCCEEDED = ItemAnswer(success=True)
UNANSWERED = ItemAnswer(success=False, message="the answer does not mention this item", answered=False)


def item_results(
    answered: Mapping[str, ItemResult], ids: Iterable[str], *, repeated_blindly: bool = False
) -> dict[str, ItemAnswer]:
    """One result for each of ``ids``, in their order. Items that nobody asked for are left out."""
    return {
        item: _result(answered[item], repeated_blindly=repeated_blindly) if item in answered else UNANSWERED
        for item in ids
    }


def readable_items(value: object) -> dict[str, ItemResult] | None:
    """The items of ``result.data`` or ``error.details`` that can be read; None when it is no map of items at all."""
    if not isinstance(value, Mapping):
        return None
    items: dict[str, ItemResult] = {}
    for name, item in value.items():
        try:
            items[str(name)] = ItemResult.from_wire(item)
        except ValidationError:
            # Left out, it counts as not answered: nobody can tell what became of it.
            continue
    return items if items or not value else None


def _result(item: ItemResult, *, repeated_blindly: bool) -> ItemAnswer:
    message = item.message or ""
    if item.success:
        return ItemAnswer(True, message)
    return ItemAnswer(False, message, _code(item.code, message), repeated_blindly=repeated_blindly)


def _code(code: str | None, message: str) -> str | None:
    if code is not None:
        return code.strip().lower().replace("_", "-")
    if _EXISTS.search(message):
        return ALREADY_EXISTS
    return NOT_FOUND if _MISSING.search(message) else None
