"""The sender, which gets one batch of a plan into the backend and says what became of its items.

A batch is one call when all goes well. It becomes several when something in it is refused (halves, until the item at
fault stands alone), when an add meets what is there already (an update) or an update meets nothing (an add). This
module sends and judges; it writes nothing down. Everything in it runs in the threads that send calls side by side.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from pydantic import ValidationError

from app.client.capabilities import Capabilities
from app.client.errors import (
    BackendRefused,
    ClientError,
    CredentialsRefused,
    InvalidRequest,
    ItemsFailed,
    NotReached,
    OperationMissing,
    OutcomeUnknown,
    RateLimited,
)
from app.client.items import SUCCEEDED, UNANSWERED, ItemAnswer, item_results, readable_items
from app.client.recording import recorded_calls
from app.contract import operations as contract
from app.contract.errors import Status
from app.contract.operation import Tier, Verb
from app.contract.validation import first_error
from app.sync.apply.batch import Batch, BatchOutcome, Exchange, in_calls_by_scope
from app.sync.apply.gate import Ending, Gate
from app.sync.apply.outcome import Fate, ItemOutcome, judge_item
from app.sync.apply.port import BackendPort
from app.sync.apply.requests import NotExpressibleError, RequestForm, request_of, takes_all_members
from app.sync.ledger.items import Kind
from app.sync.plan.stored import PlanItem

_FURTHER: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "add_organizations": ("disable_organizations",),
        "add_folder": ("update_folder_access",),
        "add_documents": ("move_documents", "update_document_access"),
    }
)
"""What tells the rest of a thing that is there already, beyond the update that its add becomes."""


class Sender:
    """Sends batches. One per run, shared by the threads that send."""

    def __init__(self, backend: BackendPort, capabilities: Capabilities, gate: Gate, *, batch_size: int) -> None:
        self._backend = backend
        self.capabilities = self._capabilities = capabilities
        self._gate = gate
        self._batch_size = batch_size

    def send(self, batch: Batch) -> BatchOutcome:
        """Gets the batch into the backend as far as possible. Never raises."""
        outcome = BatchOutcome(batch)
        with recorded_calls() as calls:
            self._send(batch, outcome)
        outcome.exchange = Exchange.of(calls)
        return outcome

    def _send(self, batch: Batch, outcome: BatchOutcome) -> None:
        try:
            fates = self._attempt(batch.operation, batch.items, outcome)
            self._note_unsupported(batch.operation, fates, outcome)
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

    def _mend(self, batch: Batch, fates: dict[int, ItemOutcome], outcome: BatchOutcome) -> None:
        """Turns adds of what exists into updates, and updates of what is missing into adds."""
        existing = [item for item in batch.items if fates[item.ordinal].fate is Fate.EXISTS]
        missing = [item for item in batch.items if fates[item.ordinal].fate is Fate.MISSING]
        counterpart = contract.by_name(batch.operation).counterpart
        refusals = {item.ordinal: fates.pop(item.ordinal) for item in existing + missing}
        if existing and counterpart is not None:
            updated = set(self._instead(counterpart, existing, refusals, outcome))
            self._tell_the_rest(batch.operation, [item for item in existing if item.ordinal in updated], outcome)
        if missing and counterpart is not None:
            outcome.added_again.extend(self._instead(counterpart, missing, refusals, outcome))
            # Those that could not be added are not what the ledger says of them: they are not there at all.
            outcome.others |= _unconfirmed(
                {item.ordinal: outcome.others[item.ordinal] for item in missing if item.ordinal in outcome.others}
            )
        elif missing:
            lost = ItemOutcome(Fate.LOST, "the backend does not hold it any more; the next run adds it again")
            outcome.others |= dict.fromkeys([item.ordinal for item in missing], lost)

    def _tell_the_rest(self, operation: str, existing: Sequence[PlanItem], outcome: BatchOutcome) -> None:
        """What was met by an add and is not known at all: an update says nothing of its parent, access or state."""
        for further in _FURTHER.get(operation, ()):
            items = [told for item in existing if item.in_force and (told := _further_item(further, item)) is not None]
            for together in in_calls_by_scope(further, items, self._batch_size):
                fates = self._attempt(further, together, outcome)
                self._note_unsupported(further, fates, outcome)
                for ordinal, fate in fates.items():
                    # What it cannot be told for want of the operation counts as told, as everywhere.
                    if fate.fate in {Fate.DONE, Fate.UNSUPPORTED}:
                        outcome.done[further].append(ordinal)
                    else:
                        message = fate.message or f"the run ended before {further} was sent for it"
                        outcome.others[ordinal] = ItemOutcome(Fate.UNKNOWN, message)

    def _instead(
        self, operation: str, items: Sequence[PlanItem], refusals: Mapping[int, ItemOutcome], outcome: BatchOutcome
    ) -> list[int]:
        """Sends another operation for the items than their own, which was refused; those for which it succeeded."""
        done: list[int] = []
        for together in in_calls_by_scope(operation, items, self._batch_size):
            attempted = self._attempt(operation, together, outcome)
            self._note_unsupported(operation, attempted, outcome)
            for ordinal, tried in attempted.items():
                fate, refusal = tried, refusals[ordinal]
                if fate.fate is Fate.DONE:
                    done.append(ordinal)
                    continue
                if fate.fate in {Fate.EXISTS, Fate.MISSING}:
                    # Not it, but something else that it needs, is missing: the first refusal tells.
                    fate = ItemOutcome(Fate.FAILED, refusal.message)
                outcome.others[ordinal] = _unconfirmed({ordinal: fate})[ordinal] if refusal.unconfirmed else fate
        outcome.done[operation].extend(done)
        return done

    def _note_unsupported(self, operation: str, fates: Mapping[int, ItemOutcome], outcome: BatchOutcome) -> None:
        """Nobody tells them now; when the backend turns out to have the operation after all, they are owed to it."""
        if self._capabilities.is_unsupported(operation):
            unsupported = {Fate.UNSUPPORTED, Fate.LEFT_BEHIND}
            outcome.unsupported[operation].extend(
                ordinal for ordinal, fate in fates.items() if fate.fate in unsupported
            )

    def _attempt(self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome) -> dict[int, ItemOutcome]:
        """One call of the operation, or those that its refusal makes necessary; the fate of every item."""
        if self._capabilities.is_unsupported(operation):
            return self._unsupported(operation, items)
        without_roles = self._capabilities.are_roles_unsupported(operation)
        form = self._form(without_roles=without_roles)
        try:
            request = request_of(operation, items, form)
        except NotExpressibleError as error:
            self._capabilities.count_unsupported_items(operation, len(items))
            return _all(items, Fate.UNSUPPORTED, str(error))
        except ValidationError as error:
            if len(items) > 1:
                return self._in_halves(operation, items, outcome)
            return _all(items, Fate.FAILED, f"cannot be sent: {first_error(error)}")
        if not self._gate.is_open():
            return _all(items, Fate.UNSENT)
        outcome.calls += 1
        try:
            results = self._backend.write(operation, request, without_roles=without_roles)
        except ClientError as error:
            if not without_roles and self._backend.has_form_without_roles(operation) and _nothing_there(error):
                fates = self._attempt_without_roles(operation, items, outcome, error)
            else:
                fates = self._judge_error(operation, items, outcome, error)
            return _unconfirmed(fates) if error.maybe_applied_earlier else fates
        return self._judge_results(operation, items, outcome, results)

    def tells_without_roles(self, operation: str) -> bool:
        """Whether what the operation told lacked roles and access types, for want of the form that takes them."""
        return self._backend.has_form_without_roles(operation) and self._capabilities.are_roles_unsupported(operation)

    def _attempt_without_roles(
        self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome, error: ClientError
    ) -> dict[int, ItemOutcome]:
        """The path that takes roles and access types says "not found": is it the path, or what the call is about?"""
        if self._capabilities.is_supported(operation) or not self._gate.is_open():
            return self._judge_error(operation, items, outcome, error)
        if self._capabilities.mode == "extended" and isinstance(error, OperationMissing):
            return self._end_for_want_of(f"the path of {operation} that takes roles and access types", items)
        outcome.calls += 1
        try:
            results = self._backend.write(
                operation, request_of(operation, items, self._form(without_roles=True)), without_roles=True
            )
        except ClientError as second_error:
            if _nothing_there(second_error):
                return self._judge_error(operation, items, outcome, error)
            self._capabilities.mark_roles_unsupported(operation)
            fates = self._judge_error(operation, items, outcome, second_error)
            return _unconfirmed(fates) if second_error.maybe_applied_earlier else fates
        self._capabilities.mark_roles_unsupported(operation)
        return self._judge_results(operation, items, outcome, results)

    def _form(self, *, without_roles: bool) -> RequestForm:
        return RequestForm(
            without_roles=without_roles,
            make_documents=self._capabilities.is_unsupported("add_documents"),
            make_organizations=self._capabilities.is_unsupported("add_organizations"),
        )

    def _judge_results(
        self,
        operation: str,
        items: Sequence[PlanItem],
        outcome: BatchOutcome,
        results: Mapping[str, ItemAnswer] | None,
        *,
        succeeded: bool = True,
    ) -> dict[int, ItemOutcome]:
        """An answer that says something of items counts item by item, whatever the call asked for.

        ``succeeded`` false: the call as a whole failed, so that what is not mentioned was not done for sure.
        """
        self._gate.answered()
        self._capabilities.mark_supported(operation)
        if results is None:
            return _all(items, Fate.DONE)
        asked = set() if takes_all_members(items[0]) else {item.item_id for item in items}
        if items[0].action == "delete":
            outcome.contents |= {
                name: judge_item(operation, result) for name, result in results.items() if name not in asked
            }
        if not asked:
            return _all(items, Fate.DONE)
        # Of a folder the contract promises success or failure of the whole, and no word about items.
        unmentioned = SUCCEEDED if succeeded and operation == "delete_folder" else UNANSWERED
        return {item.ordinal: judge_item(operation, results.get(item.item_id, unmentioned)) for item in items}

    def _judge_error(
        self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome, error: ClientError
    ) -> dict[int, ItemOutcome]:
        if isinstance(error, ItemsFailed):
            results = item_results(error.items, error.items, maybe_applied_earlier=error.maybe_applied_earlier)
            succeeded = error.http_code < 300
            return self._judge_results(operation, items, outcome, results, succeeded=succeeded)
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
            return self._judge_not_found(operation, items, outcome, error)
        if isinstance(error, BackendRefused):
            return self._judge_refusal(operation, items, outcome, error)
        return _all(items, Fate.FAILED, error.message)

    def _judge_refusal(
        self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome, error: BackendRefused
    ) -> dict[int, ItemOutcome]:
        if 300 <= error.http_code < 400:
            self._gate.end(Ending(cancelled=False, message=str(error)))
            return _all(items, Fate.UNSENT)
        contracted = contract.by_name(operation)
        exists = error.status is Status.ALREADY_EXISTS and contracted.verb is Verb.ADD
        absent = error.status is Status.NOT_FOUND and contracted.verb is Verb.DELETE
        # One of many is at fault: what is done for the others shows only when each is asked for alone.
        if len(items) > 1 and (exists or absent or isinstance(error, InvalidRequest)):
            return self._in_halves(operation, items, outcome)
        if (exists or absent) and (told := readable_items(error.details)):
            return self._judge_results(operation, items, outcome, item_results(told, told), succeeded=False)
        if absent and operation == "delete_folder":
            outcome.absent |= {item.ordinal for item in items}
        if exists:
            return _all(items, Fate.EXISTS if contracted.counterpart is not None else Fate.DONE, error.message)
        return _all(items, Fate.DONE if absent else Fate.FAILED, error.message)

    def _judge_not_found(
        self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome, error: OperationMissing
    ) -> dict[int, ItemOutcome]:
        """404: the backend lacks the operation, or it does not know what the call is about."""
        extended = contract.by_name(operation).tier is Tier.EXTENDED
        about_things = error.has_envelope and error.own_error
        if not about_things or (extended and self._is_unsupported(operation, items[0], outcome)):
            if not extended:
                message = f"the backend has no {contract.by_name(operation).title}: is backend.base_url right? {error}"
                self._gate.end(Ending(cancelled=False, message=message))
                return _all(items, Fate.UNSENT)
            if self._capabilities.mode == "extended":
                return self._end_for_want_of(operation, items)
            self._capabilities.mark_unsupported(operation)
            return self._unsupported(operation, items)
        not_found = BackendRefused(operation, Status.NOT_FOUND, error.message, error.http_code)
        return self._judge_refusal(operation, items, outcome, not_found)

    def _end_for_want_of(self, what: str, items: Sequence[PlanItem]) -> dict[int, ItemOutcome]:
        message = f"the backend lacks {what}, and backend.operations is 'extended'"
        self._gate.end(Ending(cancelled=False, message=message))
        return _all(items, Fate.UNSENT)

    def _is_unsupported(self, operation: str, item: PlanItem, outcome: BatchOutcome) -> bool:
        """Asks in a way that changes nothing. Where the organization is not there either it stays open: not missing."""
        if self._capabilities.is_supported(operation):
            return False
        try:
            outcome.calls += 1
            if self._backend.has_operation(operation, item.organization_id):
                self._capabilities.mark_supported(operation)
                return False
            return self._backend.organization_exists(item.organization_id)
        except ClientError:
            return False

    def _unsupported(self, operation: str, items: Sequence[PlanItem]) -> dict[int, ItemOutcome]:
        if contract.by_name(operation).verb is Verb.DELETE:
            return _all(items, Fate.LEFT_BEHIND)
        self._capabilities.count_unsupported_items(operation, len(items))
        return _all(items, Fate.UNSUPPORTED)

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


def _unconfirmed(fates: Mapping[int, ItemOutcome]) -> dict[int, ItemOutcome]:
    """The same, when something was sent for them before of which nobody knows what became: what is not done now may be
    done all the same."""
    open_fates = {Fate.FAILED, Fate.UNSENT}
    because = "the run ended before it was known what became of a call for it"
    return {
        ordinal: ItemOutcome(Fate.UNKNOWN, fate.message or because)
        if fate.fate in open_fates
        else replace(fate, unconfirmed=True)
        for ordinal, fate in fates.items()
    }


def _further_item(operation: str, item: PlanItem) -> PlanItem | None:
    """The item as the operation tells it; None where the plan has an item of its own for that."""
    if operation == "disable_organizations":
        return None if item.disabled else item
    if operation == "update_document_access":
        # It may have a type of its own, which nothing takes away again: it is given the one that it would inherit.
        return None if item.access_type else replace(item, access_type=item.in_force)
    return item


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
