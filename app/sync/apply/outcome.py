"""The outcome of an item, judged from what came back for it.

Carries out ``app/sync/apply/README.md``, "Outcomes", as far as it concerns single items. What concerns a whole call
(credentials, an unknown outcome, a missing operation) is told by the client's errors and acted upon in ``sender``.
"""

from dataclasses import dataclass
from enum import StrEnum

from app.client.items import ItemAnswer
from app.contract import operations as contract
from app.contract.operation import Verb


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
    UNSUPPORTED = "unsupported"
    """The backend lacks the operation; there is nothing that would tell it this."""
    LEFT_BEHIND = "left behind"
    """It cannot be deleted for want of the operation; it is emptied and no longer ours."""
    LOST = "lost"
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
    unconfirmed: bool = False
    """What came back was about a repetition: an earlier try with an unknown outcome may have done more than this says.
    An item that is not done in the end is then unknown, not failed."""


DONE = ItemOutcome(Fate.DONE)


def judge_item(operation: str, result: ItemAnswer) -> ItemOutcome:
    """What became of one item of a call of ``operation``.

    What the call asks for and is already so counts as done, whatever ``success`` says. An item of which the answer says
    nothing is unknown.
    """
    if result.success:
        return DONE
    message = result.message or "the backend gave no reason"
    if not result.answered:
        return ItemOutcome(Fate.UNKNOWN, message)
    contracted = contract.by_name(operation)
    if contracted.verb is Verb.ADD and result.already_exists:
        # A group has nothing that could be updated, and a member is a member.
        if contracted.counterpart is None:
            return DONE
        return ItemOutcome(Fate.EXISTS, message, unconfirmed=result.maybe_applied_earlier)
    if contracted.verb is not Verb.ADD and result.does_not_exist:
        return DONE if contracted.verb is Verb.DELETE else ItemOutcome(Fate.MISSING, message)
    return ItemOutcome(Fate.UNKNOWN if result.maybe_applied_earlier else Fate.FAILED, message)
