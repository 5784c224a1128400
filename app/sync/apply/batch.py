"""Batches of plan items, which one call carries, and their outcomes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from app.client.recording import CallRecord
from app.sync.apply.outcome import ItemOutcome
from app.sync.apply.requests import batch_limit
from app.sync.plan.stored import PlanItem


@dataclass(frozen=True, slots=True)
class Batch:
    """Plan items of one call."""

    operation: str
    items: tuple[PlanItem, ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A summary of the calls that a batch caused."""

    code: int | None
    """The HTTP status of the last refusal, or else of the last answer."""
    tries: int
    """The number of requests sent."""
    answer: str
    """The beginning of that answer if something was not done."""

    @classmethod
    def of(cls, calls: Sequence[CallRecord]) -> "Exchange":
        shown = next((call for call in reversed(calls) if call.has_failures), calls[-1] if calls else None)
        return cls(
            code=None if shown is None else shown.http_status,
            tries=sum(call.tries for call in calls),
            answer=shown.excerpt() if shown is not None and shown.has_failures else "",
        )


@dataclass(slots=True)
class BatchOutcome:
    """The outcome of a batch. Items are ordinals of the plan."""

    batch: Batch
    done: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By the operation that succeeded."""
    unsupported: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By the operation that the backend lacks: the item's own, or one that follows it or replaces it."""
    not_done: dict[int, ItemOutcome] = field(default_factory=dict)
    """By ordinal."""
    added_again: list[int] = field(default_factory=list)
    contents: dict[str, ItemOutcome] = field(default_factory=dict)
    """Of deletes: the outcomes of covered items, by id."""
    absent: set[int] = field(default_factory=set)
    """Of folder deletes: folders that did not exist. The answer does not mention their contents."""
    calls: int = 0
    exchange: Exchange = Exchange(None, 0, "")
    error: BaseException | None = None
    """A programming error, which ends the run."""


def in_calls(items: Iterable[PlanItem], batch_size: int) -> Iterator[Batch]:
    """Splits items of one scope into calls."""
    rest = iter(items)
    while first := next(rest, None):
        limit = batch_limit(first.operation, batch_size)
        yield Batch(first.operation, (first, *islice(rest, limit - 1)))


def in_calls_by_scope(operation: str, items: Sequence[PlanItem], batch_size: int) -> Iterator[list[PlanItem]]:
    """Groups items by scope and splits them into calls."""
    scopes: dict[object, list[PlanItem]] = defaultdict(list)
    for item in items:
        scopes[_call_scope(operation, item)].append(item)
    size = batch_limit(operation, batch_size)
    for together in scopes.values():
        for start in range(0, len(together), size):
            yield together[start : start + size]


def _call_scope(operation: str, item: PlanItem) -> object:
    if operation == "disable_organizations":
        return item.disabled
    if operation == "move_documents":
        return item.organization_id, item.parent_id
    if operation in {"update_folder_access", "update_document_access"}:
        return item.organization_id, item.access_type
    if operation == "add_documents":
        return item.organization_id, item.parent_id
    if operation in {"add_users", "update_users"}:
        return item.organization_id, item.kind, item.container_id
    return None if operation.endswith("_organizations") else item.organization_id
