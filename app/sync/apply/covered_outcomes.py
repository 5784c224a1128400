"""Finds the items inside a deleted container or an emptied group for which the backend's answer has an outcome of their
own. The caller settles them.

The rules: ``app/sync/apply/README.md``, "What goes along".
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection

from app.sync.apply.batch import BatchOutcome
from app.sync.apply.outcome import DONE, ItemOutcome, OutcomeKind
from app.sync.apply.requests import takes_all_members
from app.sync.plan.covered import CoveredItem, covered_items, detach

_UNCONFIRMED = ItemOutcome(
    OutcomeKind.UNKNOWN, "the backend did not delete everything in the container, and did not mention this item"
)


@dataclass(slots=True)
class CoveredOutcomes:
    """The covered items whose outcome differs from that of the delete that covered them."""

    outcomes: dict[int, ItemOutcome] = field(default_factory=dict)
    """By ordinal: done, failed or unknown."""
    items: dict[int, CoveredItem] = field(default_factory=dict)
    """The same items, by ordinal."""
    unmentioned: list[int] = field(default_factory=list)
    """Members of an emptied group that the answer does not mention. The run deletes them by name."""
    foreign_failures: dict[str, str] = field(default_factory=dict)
    """Members that Usher did not add and that were not removed, with the messages. The group is not empty."""


def detach_exceptions(
    connection: Connection, plan_id: str, outcome: BatchOutcome, done: Collection[int]
) -> CoveredOutcomes:
    """Returns the covered items that do not follow their delete, and detaches them. ``done``: the ordinals of the
    successful deletes."""
    if not done:
        return CoveredOutcomes()
    emptied = takes_all_members(outcome.batch.items[0])
    failed = {name: own.message for name, own in outcome.contents.items() if own.kind is not OutcomeKind.DONE}
    if not emptied and not failed:
        return CoveredOutcomes()
    covered = covered_items(connection, plan_id=plan_id, ordinals=done)
    contents = _of_group(covered, outcome, failed) if emptied else _of_container(covered, outcome, failed)
    detach(connection, plan_id=plan_id, ordinals=[*contents.outcomes, *contents.unmentioned])
    return contents


def _of_group(covered: Iterable[CoveredItem], outcome: BatchOutcome, failed: dict[str, str]) -> CoveredOutcomes:
    contents = CoveredOutcomes(foreign_failures=failed)
    for item in covered:
        failed.pop(item.item_id, None)
        own = outcome.contents.get(item.item_id)
        if own is None:
            contents.unmentioned.append(item.ordinal)
        else:
            contents.outcomes[item.ordinal] = own
            contents.items[item.ordinal] = item
    return contents


def _of_container(covered: Iterable[CoveredItem], outcome: BatchOutcome, failed: dict[str, str]) -> CoveredOutcomes:
    """An answer contains ids without kinds, so all items with the id of a failed one count as not deleted."""
    contents = CoveredOutcomes()
    all_covered = list(covered)
    incomplete = {item.covered_by for item in all_covered if item.item_id in failed}
    for item in all_covered:
        if item.covered_by in incomplete and (own := outcome.contents.get(item.item_id, _UNCONFIRMED)) != DONE:
            contents.outcomes[item.ordinal] = own
            contents.items[item.ordinal] = item
    return contents
