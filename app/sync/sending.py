"""What does it take to get one batch of a plan into the backend, and what became of its items?

A batch is one call when all goes well. It becomes several when something in it is refused (halves, until the item at
fault stands alone), when an add meets what is there already (an update) or an update meets nothing (an add). This
module sends and judges; it writes nothing down. Everything in it runs in the threads that send calls side by side.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from types import MappingProxyType

from pydantic import ValidationError

from app.client.errors import (
    BackendRefused,
    ClientError,
    CredentialsRefused,
    InvalidRequest,
    NotReached,
    OperationMissing,
    OutcomeUnknown,
    RateLimited,
)
from app.client.items import UNANSWERED, ItemResult
from app.contract import operations as contract
from app.contract.complaint import first_error
from app.contract.errors import Status
from app.contract.operation import Tier
from app.store.plans import PlanItem
from app.sync.calling import Caller
from app.sync.capabilities import Capabilities
from app.sync.kinds import Kind
from app.sync.outcome import Fate, ItemOutcome, judge_item, verb
from app.sync.wire import Form, NotExpressibleError, batch_limit, request_of, takes_all_members

LOCK_LOST = "the lock was lost: another process may synchronize now"

PATIENCE = 3
"""After so many calls in a row whose outcome stayed unknown, through all of the client's own repeats, the run ends."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run ends before its plan does."""

    cancelled: bool
    """Someone wanted it to; otherwise it failed."""
    message: str


BROKEN = Ending(cancelled=False, message="the run failed")
"""Keeps other threads from sending on while what went wrong is on its way to whoever can say it."""


class Gate:
    """Whether another call may be sent. Safe to share between threads; the first reason to end stands."""

    def __init__(self, *, held: Callable[[], bool], stop: Event) -> None:
        self._held = held
        self._stop = stop
        self._lock = Lock()
        self._ending: Ending | None = None
        self._unanswered = 0

    @property
    def ending(self) -> Ending | None:
        return self._ending

    def end(self, ending: Ending) -> None:
        """No call is sent from now on."""
        with self._lock:
            self._ending = self._ending or ending

    def is_open(self) -> bool:
        """Asked before every call."""
        if self._ending is None:
            if self._stop.is_set():
                self.end(Ending(cancelled=True, message="stopped: the process was asked to end"))
            elif not self._held():
                self.end(Ending(cancelled=False, message=LOCK_LOST))
        return self._ending is None

    def answered(self) -> None:
        """The backend is there."""
        self._unanswered = 0

    def unanswered(self, reason: str) -> None:
        """A call was given up without an answer."""
        with self._lock:
            self._unanswered += 1
            over = self._unanswered >= PATIENCE
        if over:
            message = f"the backend does not answer: {self._unanswered} calls in a row were given up; {reason}"
            self.end(Ending(cancelled=False, message=message))


@dataclass(frozen=True, slots=True)
class Batch:
    """Items of a plan that travel in one call."""

    operation: str
    items: tuple[PlanItem, ...]


@dataclass(slots=True)
class BatchOutcome:
    """What became of a batch."""

    batch: Batch
    done: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By the operations that succeeded for them, the ordinals of items that are done."""
    others: dict[int, ItemOutcome] = field(default_factory=dict)
    """By ordinal, the items with another fate than done."""
    added_again: list[int] = field(default_factory=list)
    calls: int = 0
    error: BaseException | None = None
    """A programming error; the run fails with it."""


_UPDATING: Mapping[str, str] = MappingProxyType(
    {
        "add_organizations": "update_organizations",
        "add_folder": "update_folder",
        "add_documents": "update_documents",
        "add_users": "update_users",
    }
)
"""What an add becomes when the thing is there already."""

_ADDING_AGAIN: Mapping[str, str] = MappingProxyType(
    {
        "update_organizations": "add_organizations",
        "update_folder": "add_folder",
        "update_documents": "add_documents",
        "update_users": "add_users",
    }
)
"""What an update becomes when there is nothing to update."""

_LEFT_BEHIND = frozenset({"delete_folder", "delete_organizations"})


class Sender:
    """Sends batches. One per run, shared by the threads that send."""

    def __init__(self, caller: Caller, capabilities: Capabilities, gate: Gate, *, batch_size: int) -> None:
        self._caller = caller
        self.capabilities = self._capabilities = capabilities
        self._gate = gate
        self._batch_size = batch_size

    def send(self, batch: Batch) -> BatchOutcome:
        """Gets the batch into the backend as far as possible. Never raises."""
        outcome = BatchOutcome(batch)
        try:
            fates = self._attempt(batch.operation, batch.items, outcome)
            self._mend(batch, fates, outcome)
            for ordinal, fate in fates.items():
                if fate.fate is Fate.DONE:
                    if ordinal not in outcome.others:
                        outcome.done[batch.operation].append(ordinal)
                else:
                    outcome.others.setdefault(ordinal, fate)
            _skip_children_of_failed(outcome)
        except Exception as error:  # noqa: BLE001 - it is raised again in the thread that runs the engine
            outcome.error = error
        return outcome

    def _mend(self, batch: Batch, fates: dict[int, ItemOutcome], outcome: BatchOutcome) -> None:
        """Turns adds of what exists into updates, and updates of what is missing into adds."""
        existing = [item for item in batch.items if fates[item.ordinal].fate is Fate.EXISTS]
        missing = [item for item in batch.items if fates[item.ordinal].fate is Fate.MISSING]
        refusals = {item.ordinal: fates.pop(item.ordinal) for item in existing + missing}
        if existing:
            self._instead(_UPDATING[batch.operation], existing, refusals, outcome)
        again = _ADDING_AGAIN.get(batch.operation)
        if missing and again is not None:
            outcome.added_again.extend(self._instead(again, missing, refusals, outcome))
            # Those that could not be added are not what the ledger says of them: they are not there at all.
            outcome.others |= _in_doubt(
                {item.ordinal: outcome.others[item.ordinal] for item in missing if item.ordinal in outcome.others}
            )
        elif missing:
            gone = ItemOutcome(Fate.GONE, "the backend does not hold it any more; the next run adds it again")
            outcome.others |= dict.fromkeys([item.ordinal for item in missing], gone)

    def _instead(
        self, operation: str, items: Sequence[PlanItem], refusals: Mapping[int, ItemOutcome], outcome: BatchOutcome
    ) -> list[int]:
        """Sends another operation for the items than their own, which was refused; those for which it succeeded."""
        done: list[int] = []
        for together in _in_calls(operation, items, self._batch_size):
            for ordinal, tried in self._attempt(operation, together, outcome).items():
                fate, refusal = tried, refusals[ordinal]
                if fate.fate is Fate.DONE:
                    done.append(ordinal)
                    continue
                if fate.fate in {Fate.EXISTS, Fate.MISSING}:
                    # Not it, but something else that it needs, is missing: the first refusal tells.
                    fate = ItemOutcome(Fate.FAILED, refusal.message)
                outcome.others[ordinal] = _in_doubt({ordinal: fate})[ordinal] if refusal.in_doubt else fate
        outcome.done[operation].extend(done)
        return done

    def _attempt(self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome) -> dict[int, ItemOutcome]:
        """One call of the operation, or those that its refusal makes necessary; the fate of every item."""
        if self._capabilities.lacks(operation):
            return self._lacking(operation, items)
        plain = self._capabilities.is_plain(operation)
        form = self._form(plain=plain)
        try:
            request = request_of(operation, items, form)
        except NotExpressibleError as error:
            self._capabilities.note_untold(operation, len(items))
            return _all(items, Fate.UNTOLD, str(error))
        except ValidationError as error:
            if len(items) > 1:
                return self._in_halves(operation, items, outcome)
            return _all(items, Fate.FAILED, f"cannot be sent: {first_error(error)}")
        if not self._gate.is_open():
            return _all(items, Fate.UNSENT)
        outcome.calls += 1
        try:
            results = self._caller.write(operation, request, plain=plain)
        except ClientError as error:
            if not plain and self._caller.has_plain_form(operation) and _nothing_there(error):
                fates = self._attempt_plainly(operation, items, outcome, error)
            else:
                fates = self._judge_error(operation, items, outcome, error)
            return _in_doubt(fates) if error.repeated_blindly else fates
        return self._judge_results(operation, items, results)

    def tells_plainly(self, operation: str) -> bool:
        """Whether what the operation told lacked roles and access types, for want of the form that takes them."""
        return self._caller.has_plain_form(operation) and self._capabilities.is_plain(operation)

    def _attempt_plainly(
        self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome, error: ClientError
    ) -> dict[int, ItemOutcome]:
        """The path that takes roles and access types says "not found": is it the path, or what the call is about?"""
        if self._capabilities.is_present(operation) or not self._gate.is_open():
            return self._judge_error(operation, items, outcome, error)
        if self._capabilities.mode == "extended" and isinstance(error, OperationMissing):
            return self._end_for_want_of(f"the path of {operation} that takes roles and access types", items)
        outcome.calls += 1
        try:
            results = self._caller.write(operation, request_of(operation, items, self._form(plain=True)), plain=True)
        except ClientError as plain_error:
            if _nothing_there(plain_error):
                return self._judge_error(operation, items, outcome, error)
            self._capabilities.note_plain(operation)
            fates = self._judge_error(operation, items, outcome, plain_error)
            return _in_doubt(fates) if plain_error.repeated_blindly else fates
        self._capabilities.note_plain(operation)
        return self._judge_results(operation, items, results)

    def _form(self, *, plain: bool) -> Form:
        return Form(
            plain=plain,
            make_documents=self._capabilities.lacks("add_documents"),
            make_organizations=self._capabilities.lacks("add_organizations"),
        )

    def _judge_results(
        self, operation: str, items: Sequence[PlanItem], results: Mapping[str, ItemResult] | None
    ) -> dict[int, ItemOutcome]:
        self._gate.answered()
        self._capabilities.note_present(operation)
        if results is None or takes_all_members(items[0]):
            return _all(items, Fate.DONE)
        return {item.ordinal: judge_item(operation, results.get(item.item_id, UNANSWERED)) for item in items}

    def _judge_error(
        self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome, error: ClientError
    ) -> dict[int, ItemOutcome]:
        if isinstance(error, CredentialsRefused):
            self._gate.end(Ending(cancelled=False, message=f"the backend refuses the credentials: {error}"))
            return _all(items, Fate.UNSENT)
        if isinstance(error, NotReached):
            if error.stopped:  # it was not sent because the run is to end, which the gate knows and says
                return _all(items, Fate.UNSENT)
            self._gate.end(Ending(cancelled=False, message=f"the backend cannot be reached: {error}"))
            return _all(items, Fate.UNSENT)
        if isinstance(error, OutcomeUnknown | RateLimited):
            if not error.stopped:
                self._gate.unanswered(error.message)
            elif isinstance(error, RateLimited):
                return _all(items, Fate.UNSENT)
            unknown = isinstance(error, OutcomeUnknown)
            return _all(items, Fate.UNKNOWN if unknown else Fate.FAILED, error.message)
        self._gate.answered()
        if isinstance(error, OperationMissing):
            return self._judge_missing(operation, items, outcome, error)
        if isinstance(error, BackendRefused):
            return self._judge_refusal(operation, items, outcome, error)
        return _all(items, Fate.FAILED, error.message)

    def _judge_refusal(
        self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome, error: BackendRefused
    ) -> dict[int, ItemOutcome]:
        if 300 <= error.http_code < 400:
            self._gate.end(Ending(cancelled=False, message=str(error)))
            return _all(items, Fate.UNSENT)
        wants = verb(operation)
        exists = error.status is Status.ALREADY_EXISTS and wants == "add"
        absent = error.status is Status.NOT_FOUND and wants == "delete"
        # One of many is at fault: what is done for the others shows only when each is asked for alone.
        if len(items) > 1 and (exists or absent or isinstance(error, InvalidRequest)):
            return self._in_halves(operation, items, outcome)
        if exists:
            return _all(items, Fate.EXISTS if operation in _UPDATING else Fate.DONE, error.message)
        return _all(items, Fate.DONE if absent else Fate.FAILED, error.message)

    def _judge_missing(
        self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome, error: OperationMissing
    ) -> dict[int, ItemOutcome]:
        """404: the backend lacks the operation, or it does not know what the call is about."""
        extended = contract.by_name(operation).tier is Tier.EXTENDED
        about_things = error.has_envelope and error.own_error
        if not about_things or (extended and self._is_missing(operation, items[0], outcome)):
            if not extended:
                message = f"the backend has no {contract.by_name(operation).title}: is backend.base_url right? {error}"
                self._gate.end(Ending(cancelled=False, message=message))
                return _all(items, Fate.UNSENT)
            if self._capabilities.mode == "extended":
                return self._end_for_want_of(operation, items)
            self._capabilities.note_missing(operation)
            return self._lacking(operation, items)
        not_found = BackendRefused(operation, Status.NOT_FOUND, error.message, error.http_code)
        return self._judge_refusal(operation, items, outcome, not_found)

    def _end_for_want_of(self, what: str, items: Sequence[PlanItem]) -> dict[int, ItemOutcome]:
        message = f"the backend lacks {what}, and backend.operations is 'extended'"
        self._gate.end(Ending(cancelled=False, message=message))
        return _all(items, Fate.UNSENT)

    def _is_missing(self, operation: str, item: PlanItem, outcome: BatchOutcome) -> bool:
        """Asks in a way that changes nothing. Where the organization is not there either it stays open: not missing."""
        if self._capabilities.is_present(operation):
            return False
        try:
            outcome.calls += 1
            if self._caller.has_operation(operation, item.organization_id):
                self._capabilities.note_present(operation)
                return False
            return self._caller.organization_exists(item.organization_id)
        except ClientError:
            return False

    def _lacking(self, operation: str, items: Sequence[PlanItem]) -> dict[int, ItemOutcome]:
        if operation in _LEFT_BEHIND:
            return _all(items, Fate.LEFT_BEHIND)
        self._capabilities.note_untold(operation, len(items))
        return _all(items, Fate.UNTOLD)

    def _in_halves(self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome) -> dict[int, ItemOutcome]:
        middle = len(items) // 2
        fates = self._attempt(operation, items[:middle], outcome)
        failed = {item.item_id for item in items[:middle] if fates[item.ordinal].fate in {Fate.FAILED, Fate.SKIPPED}}
        rest = []
        for item in items[middle:]:
            if operation == "add_folder" and item.parent_id in failed:
                fates[item.ordinal] = _skipped_with_parent(item)
                failed.add(item.item_id)
            else:
                rest.append(item)
        return fates | (self._attempt(operation, rest, outcome) if rest else {})


def _all(items: Iterable[PlanItem], fate: Fate, message: str = "") -> dict[int, ItemOutcome]:
    shared = ItemOutcome(fate, message)
    return {item.ordinal: shared for item in items}


def _in_doubt(fates: Mapping[int, ItemOutcome]) -> dict[int, ItemOutcome]:
    """The same, when something was sent for them before of which nobody knows what became: what is not done now may be
    done all the same."""
    doubtful = {Fate.FAILED, Fate.UNSENT}
    because = "the run ended before it was known what became of a call for it"
    return {
        ordinal: ItemOutcome(Fate.UNKNOWN, fate.message or because)
        if fate.fate in doubtful
        else replace(fate, in_doubt=True)
        for ordinal, fate in fates.items()
    }


def _in_calls(operation: str, items: Sequence[PlanItem], batch_size: int) -> Iterator[list[PlanItem]]:
    """The items by what the call carries beside them, in calls as large as they may be."""
    scopes: dict[object, list[PlanItem]] = defaultdict(list)
    for item in items:
        scopes[_call_scope(operation, item)].append(item)
    size = batch_limit(operation, batch_size)
    for together in scopes.values():
        for start in range(0, len(together), size):
            yield together[start : start + size]


def _call_scope(operation: str, item: PlanItem) -> object:
    if operation == "add_documents":
        return item.organization_id, item.parent_id
    if operation in {"add_users", "update_users"}:
        return item.organization_id, item.kind, item.container_id
    return None if operation.endswith("_organizations") else item.organization_id


def _nothing_there(error: ClientError) -> bool:
    refused = isinstance(error, BackendRefused) and error.status is Status.NOT_FOUND
    return refused or isinstance(error, OperationMissing)


def _skipped_with_parent(item: PlanItem) -> ItemOutcome:
    return ItemOutcome(Fate.SKIPPED, f"the folder {item.parent_id} above it could not be made")


def _skip_children_of_failed(outcome: BatchOutcome) -> None:
    """A folder that failed because the one above it did, in the same call, did not fail by itself."""
    if outcome.batch.operation != "add_folder":
        return
    broken: set[str] = set()
    for item in outcome.batch.items:
        own = outcome.others.get(item.ordinal)
        if own is None or item.kind != Kind.FOLDER or own.fate not in {Fate.FAILED, Fate.SKIPPED}:
            continue
        if item.parent_id in broken:
            outcome.others[item.ordinal] = _skipped_with_parent(item)
        broken.add(item.item_id)
