"""A batch of a plan's items, which travel in one call, and what became of it."""

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
    """Items of a plan that travel in one call."""

    operation: str
    items: tuple[PlanItem, ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A summary of the calls of a batch."""

    code: int | None
    """The HTTP status of the answer that says most: of the last that says no, or else of the last."""
    tries: int
    """How often something was sent."""
    answer: str
    """The beginning of that answer, where something was not done."""

    @classmethod
    def of(cls, calls: Sequence[CallRecord]) -> "Exchange":
        """Of the calls that a batch came to."""
        telling = next((call for call in reversed(calls) if call.has_failures), calls[-1] if calls else None)
        return cls(
            code=None if telling is None else telling.http_status,
            tries=sum(call.tries for call in calls),
            answer=telling.excerpt() if telling is not None and telling.has_failures else "",
        )


@dataclass(slots=True)
class BatchOutcome:
    """What became of a batch."""

    batch: Batch
    done: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By the operations that succeeded for them, the ordinals of items that are done."""
    unsupported: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By the operations that the backend lacks for them, the ordinals of items that were to be told or deleted by it;
    their own operation, or one that was to be sent instead of it or after it."""
    others: dict[int, ItemOutcome] = field(default_factory=dict)
    """By ordinal, the items with another fate than done."""
    added_again: list[int] = field(default_factory=list)
    contents: dict[str, ItemOutcome] = field(default_factory=dict)
    """Of deletes: what their answers say, by id, of items that were not asked for: of what was to go along."""
    absent: set[int] = field(default_factory=set)
    """Of folders to be deleted: those that are not there, says the backend, and nothing about what was in them."""
    calls: int = 0
    exchange: Exchange = Exchange(None, 0, "")
    error: BaseException | None = None
    """A programming error; the run fails with it."""


def in_calls(items: Iterable[PlanItem], batch_size: int) -> Iterator[Batch]:
    """Items of one scope, as many to a call as it may carry."""
    rest = iter(items)
    while first := next(rest, None):
        limit = batch_limit(first.operation, batch_size)
        yield Batch(first.operation, (first, *islice(rest, limit - 1)))


def in_calls_by_scope(operation: str, items: Sequence[PlanItem], batch_size: int) -> Iterator[list[PlanItem]]:
    """The items by what the call carries beside them, in calls as large as they may be."""
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
