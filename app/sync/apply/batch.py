"""Groups plan items into batches, each for one call, and judges the outcomes of their items.

The rules: ``app/sync/apply/README.md``, "Outcomes". ``app.sync.apply.calls`` judges answers to whole calls.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import TypeVar

from app.client.records import CallRecord
from app.client.response import ItemAnswer
from app.contract import operations as contract
from app.contract.operation import Verb
from app.sync.apply.requests import batch_limit
from app.sync.ledger.journal import Exchange
from app.sync.plan.rules import RULES, CallScope
from app.sync.plan.stored import PlanItem

ElementT = TypeVar("ElementT")


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


@dataclass(frozen=True, slots=True)
class Batch:
    """Plan items of one call."""

    operation: str
    items: tuple[PlanItem, ...]


@dataclass(slots=True)
class BatchOutcome:
    """The outcome of a batch. Items are ordinals of the plan."""

    batch: Batch
    done: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The operation that succeeded → items."""
    unsupported: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The operation that the backend lacks → items. It is the item's own, or one that follows it or replaces it."""
    not_done: dict[int, ItemOutcome] = field(default_factory=dict)
    added_again: list[int] = field(default_factory=list)
    contents: dict[str, ItemOutcome] = field(default_factory=dict)
    """The id of an item that a delete covers → its outcome."""
    absent: set[int] = field(default_factory=set)
    """Folders to delete that did not exist. The answer does not mention their contents."""
    calls: int = 0
    exchange: Exchange | None = None
    error: BaseException | None = None
    """A programming error, which ends the run."""


def exchange_of(calls: Sequence[CallRecord]) -> Exchange:
    """The summary of the calls that a batch caused: the last one with failures, or else the last one."""
    last = next((call for call in reversed(calls) if call.has_failures), calls[-1] if calls else None)
    return Exchange(
        code=None if last is None else last.http_status,
        tries=sum(call.tries for call in calls),
        answer=last.excerpt() if last is not None and last.has_failures else "",
    )


def in_parts(elements: Iterable[ElementT], size: int) -> Iterator[list[ElementT]]:
    """Splits an iterable into lists of ``size`` elements; the last may be shorter."""
    rest = iter(elements)
    while part := list(islice(rest, size)):
        yield part


def in_calls_by_scope(operation: str, items: Sequence[PlanItem], batch_size: int) -> Iterator[list[PlanItem]]:
    """Groups items by scope and splits them into calls."""
    scopes: dict[object, list[PlanItem]] = defaultdict(list)
    for item in items:
        scopes[tuple(getattr(item, name) for name in _SCOPES[item.kind, operation])].append(item)
    for together in scopes.values():
        yield from in_parts(together, batch_limit(operation, batch_size))


_SCOPE_ATTRIBUTES: Mapping[CallScope, tuple[str, ...]] = {
    CallScope.NONE: (),
    CallScope.DISABLED: ("disabled",),
    CallScope.ORGANIZATION: ("organization_id",),
    CallScope.CONTAINER: ("organization_id", "kind", "container_id"),
    CallScope.PARENT: ("organization_id", "parent_id"),
    CallScope.ACCESS: ("organization_id", "access_type"),
    CallScope.ITEM: ("organization_id", "item_id"),
}
"""The attributes of an item that all items of a call share, as in ``plan_item.scope``."""
_SCOPES = {(rule.kind.value, rule.operation): _SCOPE_ATTRIBUTES[rule.scope] for rule in RULES}
