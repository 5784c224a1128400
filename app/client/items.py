"""The results of the items of a batch.

A batch is answered with an item map in a success, or with HTTP 500 and ``error.details``, in which items with
``success`` were applied. Both become one ``ItemAnswer`` for each item of the request.
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
    """The result of one item. If the response does not contain the item, ``answered`` is false and the outcome
    unknown."""

    success: bool
    message: str = ""
    code: str | None = None
    """``already-exists``, ``not-found`` (final) or ``internal`` (may be temporary); derived from the message if the
    response has no code."""
    answered: bool = True
    maybe_applied_earlier: bool = False
    """Of a failed item: an earlier try of the call, with an unknown outcome, may have applied it."""

    @property
    def already_exists(self) -> bool:
        """Whether the item could not be added because it exists."""
        return self.code == ALREADY_EXISTS

    @property
    def does_not_exist(self) -> bool:
        """Whether the item could not be changed or deleted because it does not exist."""
        return self.code == NOT_FOUND


SUCCEEDED = ItemAnswer(success=True)
UNANSWERED = ItemAnswer(success=False, message="the answer does not mention this item", answered=False)


def item_results(
    answered: Mapping[str, ItemResult], ids: Iterable[str], *, maybe_applied_earlier: bool = False
) -> dict[str, ItemAnswer]:
    """One result for each of ``ids``, in their order. Other items of the response are ignored."""
    return {
        item: _result(answered[item], maybe_applied_earlier=maybe_applied_earlier) if item in answered else UNANSWERED
        for item in ids
    }


def readable_items(value: object) -> dict[str, ItemResult] | None:
    """The valid items of ``result.data`` or ``error.details``; None if it is not a map of items."""
    if not isinstance(value, Mapping):
        return None
    items: dict[str, ItemResult] = {}
    for name, item in value.items():
        try:
            items[str(name)] = ItemResult.from_wire(item)
        except ValidationError:
            # An invalid item is treated as unanswered.
            continue
    return items if items or not value else None


def _result(item: ItemResult, *, maybe_applied_earlier: bool) -> ItemAnswer:
    message = item.message or ""
    if item.success:
        return ItemAnswer(True, message)
    return ItemAnswer(False, message, _code(item.code, message), maybe_applied_earlier=maybe_applied_earlier)


def _code(code: str | None, message: str) -> str | None:
    if code is not None:
        return code.strip().lower().replace("_", "-")
    if _EXISTS.search(message):
        return ALREADY_EXISTS
    return NOT_FOUND if _MISSING.search(message) else None
