"""The outcome of a plan item, judged from the backend's answer for it.

The rules: ``app/sync/apply/README.md``, "Outcomes". ``app.sync.apply.sender`` handles answers to whole calls.
"""

from dataclasses import dataclass
from enum import StrEnum

from app.client.items import ItemAnswer
from app.contract import operations as contract
from app.contract.operation import Verb


class OutcomeKind(StrEnum):
    """The result of sending an item."""

    DONE = "done"
    EXISTS = "exists"
    """An add found the item in the backend. An update follows."""
    MISSING = "missing"
    """An update did not find the item. An add follows."""
    FAILED = "failed"
    """The backend refused it and changed nothing."""
    UNKNOWN = "unknown"
    """There is no usable answer. The backend may have done it."""
    UNSUPPORTED = "unsupported"
    """The backend lacks the operation."""
    LEFT_BEHIND = "left behind"
    """The backend lacks the operation that deletes it. It is emptied and removed from the ledger."""
    LOST = "lost"
    """The backend does not have it any more, and the plan item lacks the fields to add it."""
    SKIPPED = "skipped"
    """Not sent because of another item."""
    UNSENT = "unsent"
    """The run ended before it was sent."""


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """The outcome of one item, with a message for operators."""

    kind: OutcomeKind
    message: str = ""
    unconfirmed: bool = False
    """An earlier try of the call had an unknown outcome. If the item is not done in the end, its outcome is unknown."""


DONE = ItemOutcome(OutcomeKind.DONE)


def judge_item(operation: str, result: ItemAnswer) -> ItemOutcome:
    """The outcome of one item of a call. If the item already is as the call requests, it is done."""
    if result.success:
        return DONE
    message = result.message or "the backend gave no reason"
    if not result.answered:
        return ItemOutcome(OutcomeKind.UNKNOWN, message)
    contracted = contract.by_name(operation)
    if contracted.verb is Verb.ADD and result.already_exists:
        # Groups and group members have no fields to update.
        if contracted.counterpart is None:
            return DONE
        return ItemOutcome(OutcomeKind.EXISTS, message, unconfirmed=result.maybe_applied_earlier)
    if contracted.verb is not Verb.ADD and result.does_not_exist:
        return DONE if contracted.verb is Verb.DELETE else ItemOutcome(OutcomeKind.MISSING, message)
    return ItemOutcome(OutcomeKind.UNKNOWN if result.maybe_applied_earlier else OutcomeKind.FAILED, message)
