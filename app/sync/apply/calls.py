"""Sends one call to the backend, and judges the answer.

If a call is refused because of one of its items, smaller calls follow until that item is alone. If the backend lacks
the path with roles and access types, the call is sent without them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

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
from app.client.response import SUCCEEDED, UNANSWERED, ItemAnswer, item_results, readable_items
from app.contract import operations as contract
from app.contract.errors import Status
from app.contract.operation import Tier, Verb
from app.contract.validation import first_error
from app.sync.apply.batch import BatchOutcome, ItemOutcome, OutcomeKind, judge_item
from app.sync.apply.capabilities import Capabilities
from app.sync.apply.gate import Ending, Gate
from app.sync.apply.requests import BackendWrites, NotExpressibleError, RequestForm, request_of, takes_all_members
from app.sync.plan.rules import Action
from app.sync.plan.stored import PlanItem

Outcomes = dict[int, ItemOutcome]
"""The ordinal of an item → its outcome."""


@dataclass(frozen=True, slots=True)
class CallSender:
    """Sends calls. A run has one, which its threads share. It writes nothing to the database."""

    backend: BackendWrites
    capabilities: Capabilities
    gate: Gate

    def omits_roles(self, operation: str) -> bool:
        """Whether the operation is sent without roles and access types, because the backend does not support them."""
        return contract.by_name(operation).roles_in_other_version and self.capabilities.are_roles_unsupported(operation)

    def send(self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome) -> Outcomes:
        """Sends one call, or several if it is refused, and returns the outcome of every item."""
        if self.capabilities.is_unsupported(operation):
            return self._unsupported(operation, items)
        without_roles = self.omits_roles(operation)
        form = self._form(without_roles=without_roles)
        try:
            request = request_of(operation, items, form)
        except NotExpressibleError as error:
            self.capabilities.count_unsupported_items(operation, len(items))
            return _same_outcome(items, OutcomeKind.UNSUPPORTED, str(error))
        except ValidationError as error:
            if len(items) > 1:
                return self._bisect(operation, items, outcome)
            return _same_outcome(items, OutcomeKind.FAILED, f"cannot be sent: {first_error(error)}")
        if not self.gate.is_open():
            return _same_outcome(items, OutcomeKind.UNSENT)
        outcome.calls += 1
        try:
            results = self.backend.write(operation, request, without_roles=without_roles)
        except ClientError as error:
            if not without_roles and contract.by_name(operation).roles_in_other_version and _is_not_found(error):
                outcomes = self._send_without_roles(operation, items, outcome, error)
            else:
                outcomes = self._judge_error(operation, items, outcome, error)
            return unconfirmed(outcomes) if error.maybe_applied_earlier else outcomes
        return self._judge_results(operation, items, outcome, results)

    def _send_without_roles(
        self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome, error: ClientError
    ) -> Outcomes:
        """Tries the other path after "not found" for the path that takes roles and access types."""
        if operation in self.capabilities.present or not self.gate.is_open():
            return self._judge_error(operation, items, outcome, error)
        if self.capabilities.mode == "extended" and isinstance(error, OperationMissing):
            return self._end_without(items, f"the path of {operation} that takes roles and access types")
        outcome.calls += 1
        try:
            results = self.backend.write(
                operation, request_of(operation, items, self._form(without_roles=True)), without_roles=True
            )
        except ClientError as second_error:
            if _is_not_found(second_error):
                return self._judge_error(operation, items, outcome, error)
            self.capabilities.missing_with_roles.add(operation)
            outcomes = self._judge_error(operation, items, outcome, second_error)
            return unconfirmed(outcomes) if second_error.maybe_applied_earlier else outcomes
        self.capabilities.missing_with_roles.add(operation)
        return self._judge_results(operation, items, outcome, results)

    def _form(self, *, without_roles: bool) -> RequestForm:
        return RequestForm(
            without_roles=without_roles,
            make_documents=self.capabilities.is_unsupported("add_documents"),
            make_organizations=self.capabilities.is_unsupported("add_organizations"),
        )

    def _judge_results(
        self,
        operation: str,
        items: Sequence[PlanItem],
        outcome: BatchOutcome,
        results: Mapping[str, ItemAnswer] | None,
        *,
        succeeded: bool = True,
    ) -> Outcomes:
        """Judges each item that the answer mentions, even items that the call did not name.

        ``succeeded``: whether the call as a whole succeeded.
        """
        self.gate.answered()
        self.capabilities.present.add(operation)
        if results is None:
            return _same_outcome(items, OutcomeKind.DONE)
        sent = set() if takes_all_members(items[0]) else {item.item_id for item in items}
        if items[0].action == Action.DELETE:
            outcome.contents |= {
                name: judge_item(operation, result) for name, result in results.items() if name not in sent
            }
        if not sent:
            return _same_outcome(items, OutcomeKind.DONE)
        # Delete Folder succeeds or fails as a whole and need not mention items.
        unmentioned = SUCCEEDED if succeeded and operation == "delete_folder" else UNANSWERED
        return {item.ordinal: judge_item(operation, results.get(item.item_id, unmentioned)) for item in items}

    def _judge_error(
        self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome, error: ClientError
    ) -> Outcomes:
        """The outcomes after an error of the whole call. Ends the run if a retry is pointless."""
        if isinstance(error, ItemsFailed):
            results = item_results(error.items, maybe_applied_earlier=error.maybe_applied_earlier)
            succeeded = error.http_code < 300
            return self._judge_results(operation, items, outcome, results, succeeded=succeeded)
        if isinstance(error, CredentialsRefused):
            return self._end(items, f"the backend refuses the credentials: {error}")
        if isinstance(error, NotReached | OutcomeUnknown | RateLimited):
            return self._judge_unanswered(items, error)
        self.gate.answered()
        if isinstance(error, OperationMissing):
            return self._judge_not_found(operation, items, outcome, error)
        if isinstance(error, BackendRefused):
            return self._judge_refusal(operation, items, outcome, error)
        return _same_outcome(items, OutcomeKind.FAILED, error.message)

    def _judge_unanswered(
        self, items: Sequence[PlanItem], error: NotReached | OutcomeUnknown | RateLimited
    ) -> Outcomes:
        """The outcomes of a call without a usable answer. It may have been stopped because the run ends."""
        is_unknown = isinstance(error, OutcomeUnknown)
        if error.stopped and not is_unknown:
            return _same_outcome(items, OutcomeKind.UNSENT)
        if isinstance(error, NotReached):
            return self._end(items, f"the backend cannot be reached: {error}")
        if not error.stopped:
            self.gate.unanswered(error.message)
        return _same_outcome(items, OutcomeKind.UNKNOWN if is_unknown else OutcomeKind.FAILED, error.message)

    def _judge_refusal(
        self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome, error: BackendRefused
    ) -> Outcomes:
        """The outcomes after a refusal of the whole call. Halves it if one of its items may be the reason."""
        if 300 <= error.http_code < 400:
            return self._end(items, str(error))
        contracted = contract.by_name(operation)
        exists = error.status is Status.ALREADY_EXISTS and contracted.verb is Verb.ADD
        absent = error.status is Status.NOT_FOUND and contracted.verb is Verb.DELETE
        # One of several items is at fault: smaller calls show which.
        if len(items) > 1 and (exists or absent or isinstance(error, InvalidRequest)):
            return self._bisect(operation, items, outcome)
        if (exists or absent) and (mentioned := readable_items(error.details)):
            return self._judge_results(operation, items, outcome, item_results(mentioned), succeeded=False)
        if absent and operation == "delete_folder":
            outcome.absent |= {item.ordinal for item in items}
        if exists:
            return _same_outcome(
                items, OutcomeKind.EXISTS if contracted.counterpart is not None else OutcomeKind.DONE, error.message
            )
        return _same_outcome(items, OutcomeKind.DONE if absent else OutcomeKind.FAILED, error.message)

    def _judge_not_found(
        self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome, error: OperationMissing
    ) -> Outcomes:
        """Judges a 404: the backend lacks the operation, or the object of the call does not exist."""
        extended = contract.by_name(operation).tier is Tier.EXTENDED
        about_objects = error.has_envelope and error.may_mean_missing_object
        if not about_objects or (extended and self._probe_shows_unsupported(operation, items[0], outcome)):
            if not extended:
                title = contract.by_name(operation).title
                return self._end(items, f"the backend has no {title}: is backend.base_url right? {error}")
            if self.capabilities.mode == "extended":
                return self._end_without(items, operation)
            self.capabilities.missing.add(operation)
            return self._unsupported(operation, items)
        not_found = BackendRefused(operation, Status.NOT_FOUND, error.message, error.http_code)
        return self._judge_refusal(operation, items, outcome, not_found)

    def _end(self, items: Sequence[PlanItem], message: str) -> Outcomes:
        """Ends the run."""
        self.gate.end(Ending(message))
        return _same_outcome(items, OutcomeKind.UNSENT)

    def _end_without(self, items: Sequence[PlanItem], what: str) -> Outcomes:
        return self._end(items, f"the backend lacks {what}, and backend.operations is 'extended'")

    def _probe_shows_unsupported(self, operation: str, item: PlanItem, outcome: BatchOutcome) -> bool:
        """Probes the operation with a call that changes nothing. False as well if the organization does not exist."""
        if operation in self.capabilities.present:
            return False
        try:
            outcome.calls += 1
            if self.backend.has_operation(operation, item.organization_id):
                self.capabilities.present.add(operation)
                return False
            outcome.calls += 1
            return self.backend.organization_exists(item.organization_id)
        except ClientError:
            return False

    def _unsupported(self, operation: str, items: Sequence[PlanItem]) -> Outcomes:
        """The outcomes of items whose operation the backend lacks. Items that it cannot delete are left behind."""
        if contract.by_name(operation).verb is Verb.DELETE:
            return _same_outcome(items, OutcomeKind.LEFT_BEHIND)
        self.capabilities.count_unsupported_items(operation, len(items))
        return _same_outcome(items, OutcomeKind.UNSUPPORTED)

    def _bisect(self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome) -> Outcomes:
        """Sends each half of the items. In the second half, folders below one that failed are skipped."""
        middle = len(items) // 2
        outcomes = self.send(operation, items[:middle], outcome)
        broken = {OutcomeKind.FAILED, OutcomeKind.SKIPPED}
        failed = {item.item_id for item in items[:middle] if outcomes[item.ordinal].kind in broken}
        rest = []
        for item in items[middle:]:
            if operation == "add_folder" and item.parent_id in failed:
                outcomes[item.ordinal] = skipped_with_parent(item)
                failed.add(item.item_id)
            else:
                rest.append(item)
        return outcomes | (self.send(operation, rest, outcome) if rest else {})


def _same_outcome(items: Iterable[PlanItem], kind: OutcomeKind, message: str = "") -> Outcomes:
    shared = ItemOutcome(kind, message)
    return {item.ordinal: shared for item in items}


def unconfirmed(outcomes: Outcomes) -> Outcomes:
    """The outcomes after an earlier try with an unknown outcome: items that are not done may have been done by it."""
    message = "the run ended before the backend confirmed a call for this item"
    return {
        ordinal: ItemOutcome(OutcomeKind.UNKNOWN, own.message or message)
        if own.kind in {OutcomeKind.FAILED, OutcomeKind.UNSENT}
        else replace(own, unconfirmed=True)
        for ordinal, own in outcomes.items()
    }


def skipped_with_parent(item: PlanItem) -> ItemOutcome:
    """The outcome of a folder whose parent could not be added."""
    return ItemOutcome(OutcomeKind.SKIPPED, f"the folder {item.parent_id} above it could not be added")


def _is_not_found(error: ClientError) -> bool:
    refused = isinstance(error, BackendRefused) and error.status is Status.NOT_FOUND
    return refused or isinstance(error, OperationMissing)
