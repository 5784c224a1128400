"""Settles the items that a delete covers if the backend did not confirm all of them.

The rules: ``app/sync/apply/README.md``, "What goes along".
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection

from app.sync.apply.batch import BatchOutcome
from app.sync.apply.outcome import DONE, Fate, ItemOutcome
from app.sync.apply.requests import takes_all_members
from app.sync.plan.covered import CoveredItem, covered_items, detach

_UNCONFIRMED = ItemOutcome(
    Fate.UNKNOWN, "the backend could not delete all that was to go with it, and is silent on this"
)


@dataclass(slots=True)
class ContentsOutcome:
    """What is not to share the fate of the deletes that it was part of."""

    fates: dict[int, ItemOutcome] = field(default_factory=dict)
    """By ordinal: done, failed or unknown by itself."""
    items: dict[int, CoveredItem] = field(default_factory=dict)
    """The same items as they stand in the plan."""
    unmentioned: list[int] = field(default_factory=list)
    """Members of an emptied group of whom the answer says nothing: to be deleted by name in this very run."""
    unknown_names: dict[str, str] = field(default_factory=dict)
    """Who could not be deleted and is not ours, with the messages: the group is not empty."""


def take_out_contents(
    connection: Connection, plan_id: str, outcome: BatchOutcome, done: Collection[int]
) -> ContentsOutcome:
    """Takes out of the deletes that are ``done`` what their answers tell apart; afterwards nothing covers it."""
    if not done:
        return ContentsOutcome()
    emptied = takes_all_members(outcome.batch.items[0])
    failed = {name for name, fate in outcome.contents.items() if fate.fate is not Fate.DONE}
    if not emptied and not failed:
        return ContentsOutcome()
    covered = covered_items(connection, plan_id=plan_id, ordinals=done)
    contents = _of_group(covered, outcome) if emptied else _of_container(covered, outcome, failed)
    detach(connection, plan_id=plan_id, ordinals=[*contents.fates, *contents.unmentioned])
    return contents


def _of_group(covered: Iterable[CoveredItem], outcome: BatchOutcome) -> ContentsOutcome:
    contents = ContentsOutcome()
    strangers = {name: fate.message for name, fate in outcome.contents.items() if fate.fate is not Fate.DONE}
    for item in covered:
        strangers.pop(item.item_id, None)
        fate = outcome.contents.get(item.item_id)
        if fate is None:
            contents.unmentioned.append(item.ordinal)
        else:
            contents.fates[item.ordinal] = fate
            contents.items[item.ordinal] = item
    contents.unknown_names = strangers
    return contents


def _of_container(covered: Iterable[CoveredItem], outcome: BatchOutcome, failed: set[str]) -> ContentsOutcome:
    """Ids alone do not tell which kind is meant: whatever has the id is taken to be still there."""
    contents = ContentsOutcome()
    all_covered = list(covered)
    in_part = {item.covered_by for item in all_covered if item.item_id in failed}
    for item in all_covered:
        if item.covered_by in in_part and (fate := outcome.contents.get(item.item_id, _UNCONFIRMED)) != DONE:
            contents.fates[item.ordinal] = fate
            contents.items[item.ordinal] = item
    return contents
