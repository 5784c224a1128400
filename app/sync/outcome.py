"""What became of an item, judged from what came back for it?

The table of outcomes, as far as it concerns single items. What concerns a whole call (credentials, an unknown outcome,
a missing operation) is told by the client's errors and acted upon in ``sending``.
"""

from dataclasses import dataclass
from enum import StrEnum

from app.client.items import ItemResult


class Fate(StrEnum):
    """What became of an item."""

    DONE = "done"
    """It is as the plan wants it."""
    EXISTS = "exists"
    """An add met something that is there already: it has to be updated."""
    MISSING = "missing"
    """An update met nothing: it has to be added again."""
    FAILED = "failed"
    """The backend said no; nothing changed."""
    UNKNOWN = "unknown"
    """Nobody can say whether the backend did it."""
    UNTOLD = "untold"
    """The backend lacks the operation; there is nothing that would tell it this."""
    LEFT_BEHIND = "left behind"
    """It cannot be deleted for want of the operation; it is emptied and no longer ours."""
    GONE = "gone"
    """It is not there any more, and the plan's item does not carry enough to make it again."""
    SKIPPED = "skipped"
    """Not tried, because of another item."""
    UNSENT = "unsent"
    """The run ended before its turn."""


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """The fate of one item, with what to tell about it."""

    fate: Fate
    message: str = ""
    in_doubt: bool = False
    """What came back was about a repetition: an earlier try with an unknown outcome may have done more than this says.
    An item that is not done in the end is then unknown, not failed."""


DONE = ItemOutcome(Fate.DONE)


def verb(operation: str) -> str:
    """``add``, ``delete`` or ``update`` (everything that changes what has to be there)."""
    word = operation.split("_", 1)[0]
    return word if word in {"add", "delete"} else "update"


def judge_item(operation: str, result: ItemResult) -> ItemOutcome:
    """What became of one item of a call of ``operation``.

    What the call asks for and is already so counts as done, whatever ``success`` says. An item of which the answer says
    nothing is unknown.
    """
    if result.success:
        return DONE
    message = result.message or "the backend gave no reason"
    if not result.answered:
        return ItemOutcome(Fate.UNKNOWN, message)
    wants = verb(operation)
    if wants == "add" and result.already_exists:
        # A group has nothing that could be updated, and a member is a member.
        if operation in {"add_groups", "add_users_to_groups"}:
            return DONE
        return ItemOutcome(Fate.EXISTS, message, in_doubt=result.repeated_blindly)
    if wants != "add" and result.does_not_exist:
        return DONE if wants == "delete" else ItemOutcome(Fate.MISSING, message)
    return ItemOutcome(Fate.UNKNOWN if result.repeated_blindly else Fate.FAILED, message)
