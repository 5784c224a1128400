"""Sends one batch to the backend, with the calls that follow from its outcomes.

If an add finds an existing item, an update follows. If an update does not find its item, an add follows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from app.client.records import recorded_calls
from app.contract import operations as contract
from app.sync.apply.batch import Batch, BatchOutcome, ItemOutcome, OutcomeKind, exchange_of, in_calls_by_scope
from app.sync.apply.calls import CallSender, Outcomes, skipped_with_parent, unconfirmed
from app.sync.plan.stored import PlanItem

_FOLLOW_UPS: Mapping[str, tuple[str, ...]] = {
    "add_organizations": ("disable_organizations",),
    "add_folder": ("update_folder_access",),
    "add_documents": ("move_documents", "update_document_access"),
}
"""Operations that set what the update of an existing item does not: its parent, access type or state."""


@dataclass(frozen=True, slots=True)
class BatchSender:
    """Sends batches. A run has one, which its threads share. It writes nothing to the database.

    Its methods share two results. ``unsettled`` contains the items for which only the operation of the batch was sent.
    If another operation is sent for an item, its result is in ``outcome`` alone.
    """

    calls: CallSender
    batch_size: int

    def send(self, batch: Batch) -> BatchOutcome:
        """Sends the batch. Errors are in the returned outcome."""
        outcome = BatchOutcome(batch)
        with recorded_calls() as calls:
            try:
                self._send(batch, outcome)
            except Exception as error:  # noqa: BLE001 - the applier raises it in its own thread
                outcome.error = error
        outcome.exchange = exchange_of(calls)
        return outcome

    def _send(self, batch: Batch, outcome: BatchOutcome) -> None:
        unsettled = self.calls.send(batch.operation, batch.items, outcome)
        self._note_unsupported(batch.operation, unsettled, outcome)
        self._send_counterparts(batch, unsettled, outcome)
        for ordinal, item_outcome in unsettled.items():
            if item_outcome.kind is not OutcomeKind.DONE:
                outcome.not_done.setdefault(ordinal, item_outcome)
            elif ordinal not in outcome.not_done:
                outcome.done[batch.operation].append(ordinal)
        _skip_children_of_failed(outcome)

    def _send_counterparts(self, batch: Batch, unsettled: Outcomes, outcome: BatchOutcome) -> None:
        """Updates the items that exist already, and adds those that are missing.

        Moves their entries from ``unsettled`` to ``outcome``. Without a counterpart, missing items become ``LOST``.
        """
        existing = [item for item in batch.items if unsettled[item.ordinal].kind is OutcomeKind.EXISTS]
        missing = [item for item in batch.items if unsettled[item.ordinal].kind is OutcomeKind.MISSING]
        counterpart = contract.by_name(batch.operation).counterpart
        if existing and counterpart is not None:
            refusals = {item.ordinal: unsettled.pop(item.ordinal) for item in existing}
            updated = set(self._send_replacement(counterpart, existing, refusals, outcome))
            self._send_follow_ups(batch.operation, [item for item in existing if item.ordinal in updated], outcome)
        if missing and counterpart is not None:
            refusals = {item.ordinal: unsettled.pop(item.ordinal) for item in missing}
            outcome.added_again.extend(self._send_replacement(counterpart, missing, refusals, outcome))
            # The backend does not have the items that could not be added, so the ledger must not confirm them.
            outcome.not_done |= unconfirmed(
                {item.ordinal: outcome.not_done[item.ordinal] for item in missing if item.ordinal in outcome.not_done}
            )
        elif missing:
            lost = ItemOutcome(OutcomeKind.LOST, "the backend no longer has it; the next run adds it again")
            unsettled |= dict.fromkeys([item.ordinal for item in missing], lost)

    def _send_follow_ups(self, operation: str, existing: Sequence[PlanItem], outcome: BatchOutcome) -> None:
        """Sets parent, access type and state of existing items that the ledger does not contain."""
        for follow_up in _FOLLOW_UPS.get(operation, ()):
            candidates = [_follow_up_item(follow_up, item) for item in existing if item.in_force]
            items = [item for item in candidates if item is not None]
            for ordinal, item_outcome in self._send_by_scope(follow_up, items, outcome):
                # The backend cannot do it: `_note_unsupported` has recorded what is still to be sent.
                if item_outcome.kind in {OutcomeKind.DONE, OutcomeKind.UNSUPPORTED}:
                    outcome.done[follow_up].append(ordinal)
                else:
                    message = item_outcome.message or f"the run ended before {follow_up} was sent for it"
                    outcome.not_done[ordinal] = ItemOutcome(OutcomeKind.UNKNOWN, message)

    def _send_replacement(
        self, operation: str, items: Sequence[PlanItem], refusals: Mapping[int, ItemOutcome], outcome: BatchOutcome
    ) -> list[int]:
        """Sends another operation for refused items, and returns the ordinals of those for which it succeeded."""
        done: list[int] = []
        for ordinal, item_outcome in self._send_by_scope(operation, items, outcome):
            if item_outcome.kind is OutcomeKind.DONE:
                done.append(ordinal)
                continue
            refusal, failed = refusals[ordinal], {ordinal: item_outcome}
            if item_outcome.kind in {OutcomeKind.EXISTS, OutcomeKind.MISSING}:
                # Something that the item needs is missing, not the item itself. The first refusal names it.
                failed = {ordinal: ItemOutcome(OutcomeKind.FAILED, refusal.message)}
            outcome.not_done |= unconfirmed(failed) if refusal.unconfirmed else failed
        outcome.done[operation].extend(done)
        return done

    def _send_by_scope(
        self, operation: str, items: Sequence[PlanItem], outcome: BatchOutcome
    ) -> Iterator[tuple[int, ItemOutcome]]:
        """Sends items that need not share a scope."""
        for call_items in in_calls_by_scope(operation, items, self.batch_size):
            outcomes = self.calls.send(operation, call_items, outcome)
            self._note_unsupported(operation, outcomes, outcome)
            yield from outcomes.items()

    def _note_unsupported(self, operation: str, outcomes: Mapping[int, ItemOutcome], outcome: BatchOutcome) -> None:
        """Records the items whose operation the backend does not support. A later run sends them once it does."""
        if self.calls.capabilities.is_unsupported(operation):
            unsupported = {OutcomeKind.UNSUPPORTED, OutcomeKind.LEFT_BEHIND}
            outcome.unsupported[operation].extend(
                ordinal for ordinal, item_outcome in outcomes.items() if item_outcome.kind in unsupported
            )


def _follow_up_item(operation: str, item: PlanItem) -> PlanItem | None:
    """The item as the operation sends it. None if the plan has a separate item for that."""
    if operation == "disable_organizations":
        return None if item.disabled else item
    if operation == "update_document_access":
        # It may have an own access type, which no operation removes: it gets the one that it would inherit.
        return None if item.access_type else replace(item, access_type=item.in_force)
    return item


def _skip_children_of_failed(outcome: BatchOutcome) -> None:
    """Marks folders as skipped that failed because their parent failed in the same call."""
    if outcome.batch.operation != "add_folder":
        return
    broken: set[str] = set()
    for item in outcome.batch.items:
        item_outcome = outcome.not_done.get(item.ordinal)
        if item_outcome is None or item_outcome.kind not in {OutcomeKind.FAILED, OutcomeKind.SKIPPED}:
            continue
        if item.parent_id in broken:
            outcome.not_done[item.ordinal] = skipped_with_parent(item)
        broken.add(item.item_id)
