"""Processes the answers of one transaction: updates the run's counts and collects what the ledger settles.

A delete covers other planned deletes, which are not sent. Those for which the backend's answer has an outcome of their
own, inside a deleted container or an emptied group, are detached from it and settled by themselves.

The rules: ``app/sync/apply/README.md``, "What goes along".
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection

from app.foundation.database.statements import json_list, run
from app.sync.apply.batch import DONE, BatchOutcome, ItemOutcome, OutcomeKind
from app.sync.apply.requests import takes_all_members
from app.sync.ledger.items import ItemStatus, Kind
from app.sync.ledger.settlement import Settlement
from app.sync.plan.counts import Counts
from app.sync.plan.rules import Action
from app.sync.plan.stored import PlanItem

_MOVE_TO_CONTAINER = """
UPDATE plan_item SET covered_by = (
  SELECT d.ordinal FROM plan_item d WHERE d.plan_id = plan_item.plan_id AND d.action = 'delete'
  AND d.kind = '{container}' AND d.organization_id = plan_item.organization_id
  AND d.container_id = '' AND d.item_id = plan_item.container_id
)
WHERE plan_id = :plan_id AND status = 'planned' AND covered_by IN (@numbers(ordinals)) AND kind = '{member}'
"""

_DETACH = "UPDATE plan_item SET covered_by = NULL WHERE plan_id = :plan_id AND ordinal IN (@numbers(ordinals))"

_DETACH_CONTENTS = """
UPDATE plan_item SET covered_by = NULL
WHERE plan_id = :plan_id AND status = 'planned' AND covered_by IN (@numbers(ordinals))
  AND kind IN ('organizationUser', 'folderUser', 'document', 'group')
"""


@dataclass(frozen=True, slots=True)
class CoveredItem:
    """A planned delete that the delete with the ordinal ``covered_by`` includes."""

    ordinal: int
    kind: str
    item_id: str
    covered_by: int


def covered_items(connection: Connection, *, plan_id: str, ordinals: Collection[int]) -> list[CoveredItem]:
    """The planned items that these deletes cover."""
    rows = run(
        connection,
        """
        SELECT ordinal, kind, item_id, covered_by FROM plan_item
        WHERE plan_id = :plan_id AND status = 'planned' AND covered_by IN (@numbers(ordinals))
        """,
        {"plan_id": plan_id, "ordinals": json_list(ordinals)},
    )
    return [CoveredItem(*row) for row in rows]


def detach_contents(connection: Connection, *, plan_id: str, ordinals: Collection[int]) -> None:
    """Detaches the contents of these deletes, because the deletes may not have removed them. Users of a document and
    members of a group move to the delete of that document or group, if there is one. Subfolders stay covered."""
    parameters = {"plan_id": plan_id, "ordinals": json_list(ordinals)}
    for member, container in (("documentUser", "document"), ("groupMember", "group")):
        run(connection, _MOVE_TO_CONTAINER, parameters, member=member, container=container)
    run(connection, _DETACH_CONTENTS, parameters)


_UNCONFIRMED = ItemOutcome(
    OutcomeKind.UNKNOWN, "the backend did not delete everything in the container, and did not mention this item"
)


@dataclass(slots=True)
class CoveredOutcomes:
    """The covered items whose outcome differs from that of the delete that covered them."""

    outcomes: dict[CoveredItem, ItemOutcome] = field(default_factory=dict)
    """Done, failed or unknown."""
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
    ordinals = [*(item.ordinal for item in contents.outcomes), *contents.unmentioned]
    run(connection, _DETACH, {"plan_id": plan_id, "ordinals": json_list(ordinals)})
    return contents


def _of_group(covered: Sequence[CoveredItem], outcome: BatchOutcome, failed: Mapping[str, str]) -> CoveredOutcomes:
    own = {item.item_id for item in covered}
    return CoveredOutcomes(
        {item: outcome.contents[item.item_id] for item in covered if item.item_id in outcome.contents},
        [item.ordinal for item in covered if item.item_id not in outcome.contents],
        {name: message for name, message in failed.items() if name not in own},
    )


def _of_container(covered: Sequence[CoveredItem], outcome: BatchOutcome, failed: Mapping[str, str]) -> CoveredOutcomes:
    """An answer contains ids without kinds, so all items with the id of a failed one count as not deleted."""
    incomplete = {item.covered_by for item in covered if item.item_id in failed}
    outcomes = {
        item: outcome.contents.get(item.item_id, _UNCONFIRMED) for item in covered if item.covered_by in incomplete
    }
    return CoveredOutcomes({item: own for item, own in outcomes.items() if own != DONE})


_STATUS = {
    OutcomeKind.FAILED: ItemStatus.FAILED,
    OutcomeKind.UNKNOWN: ItemStatus.FAILED,
    OutcomeKind.LOST: ItemStatus.FAILED,
    OutcomeKind.UNSUPPORTED: ItemStatus.SKIPPED,
    OutcomeKind.LEFT_BEHIND: ItemStatus.SKIPPED,
    OutcomeKind.SKIPPED: ItemStatus.SKIPPED,
}
_BREAKS = frozenset({OutcomeKind.FAILED, OutcomeKind.UNKNOWN, OutcomeKind.SKIPPED})
"""After an add with one of these outcomes, the items that depend on it are not sent."""


@dataclass(slots=True)
class ApplyState:
    """The state of applying, in memory. Each transaction changes a copy, which replaces it after the commit."""

    counts: Counts
    calls: int
    """Write calls sent."""
    last_call_id: int
    broken: bool
    """Whether adds failed, so that dependent items have to be found before each call."""
    uncovered: bool = False
    """Whether items that a delete covered have to be sent by themselves."""
    settled: int = 0
    """Items that this transaction settled."""
    cancel_requested: bool = False
    taken_over: bool = False
    """Whether another process has ended this run, because the lock was lost."""

    def next(self) -> "ApplyState":
        """The state at the beginning of the next transaction."""
        return ApplyState(deepcopy(self.counts), self.calls, self.last_call_id, self.broken, self.uncovered)

    def next_call_id(self) -> int:
        self.last_call_id += 1
        return self.last_call_id

    def count(self, kind: str, action: str, status: ItemStatus, number: int = 1) -> None:
        numbers = self.counts.setdefault(kind, {}).setdefault(action, {"planned": 0})
        numbers[status.value] = numbers.get(status.value, 0) + number
        self.settled += number

    def count_covered(self, connection: Connection, plan_id: str, ordinals: list[int], status: ItemStatus) -> None:
        """Counts the items that these deletes cover. Called before the deletes are settled."""
        if not ordinals:
            return
        rows = run(
            connection,
            """
            SELECT kind, action, count(*) AS number FROM plan_item
            WHERE plan_id = :plan_id AND status = 'planned' AND covered_by IN (@numbers(ordinals))
            GROUP BY kind, action
            """,
            {"plan_id": plan_id, "ordinals": json_list(ordinals)},
        ).all()
        for row in rows:
            self.count(row.kind, row.action, status, row.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerProcessor:
    """Adds the items of answered batches to a settlement and to the counts."""

    connection: Connection
    state: ApplyState
    settlement: Settlement
    omits_roles: Callable[[str], bool]
    """Whether an operation was sent without roles and access types."""

    def process(self, outcome: BatchOutcome) -> None:
        """Processes the answer to one batch."""
        state, settlement = self.state, self.settlement
        by_ordinal = {item.ordinal: item for item in outcome.batch.items}
        deletes = outcome.batch.items[0].action == Action.DELETE
        if deletes:
            outcome = self._process_contents(outcome)
        done = [ordinal for ordinals in outcome.done.values() for ordinal in ordinals]
        if deletes:
            settlement.deleted.extend(done)
            if outcome.batch.items[0].kind == Kind.ORGANIZATION_USER:
                settlement.removed_members.extend(done)
        else:
            for operation, ordinals in outcome.done.items():
                settlement.done[operation].extend(ordinals)
        settlement.added_again.extend(outcome.added_again)
        self._note_unsupported(outcome)
        for ordinal, own in outcome.not_done.items():
            _settle(settlement, by_ordinal[ordinal], own)
        left_behind = [ordinal for ordinal, own in outcome.not_done.items() if own.kind is OutcomeKind.LEFT_BEHIND]
        if left_behind:
            detach_contents(self.connection, plan_id=settlement.plan_id, ordinals=left_behind)
            state.uncovered = True
        state.calls += outcome.calls
        state.broken |= any(
            by_ordinal[ordinal].action == Action.ADD for ordinal, own in outcome.not_done.items() if own.kind in _BREAKS
        )
        statuses = dict.fromkeys(done, ItemStatus.DONE)
        statuses |= {ordinal: _STATUS[own.kind] for ordinal, own in outcome.not_done.items() if own.kind in _STATUS}
        for ordinal, status in statuses.items():
            state.count(by_ordinal[ordinal].kind, by_ordinal[ordinal].action, status)
        if deletes:
            state.count_covered(self.connection, settlement.plan_id, done, ItemStatus.DONE)
            others = [ordinal for ordinal, status in statuses.items() if status != ItemStatus.DONE]
            state.count_covered(self.connection, settlement.plan_id, others, ItemStatus.SKIPPED)

    def _process_contents(self, outcome: BatchOutcome) -> BatchOutcome:
        """Settles the covered items that have an outcome of their own, before the deletes that covered them.

        Returns the outcome of the deletes. The given one stays as it is, because the transaction may be repeated.
        """
        ordinals = [ordinal for done in outcome.done.values() for ordinal in done]
        contents = detach_exceptions(self.connection, self.settlement.plan_id, outcome, ordinals)
        for item, own in contents.outcomes.items():
            if own.kind is OutcomeKind.DONE:
                self.settlement.deleted.append(item.ordinal)
            else:
                messages = self.settlement.unknown if own.kind is OutcomeKind.UNKNOWN else self.settlement.failed
                messages[item.ordinal] = own.message
            self.state.count(
                item.kind, Action.DELETE, ItemStatus.DONE if own.kind is OutcomeKind.DONE else ItemStatus.FAILED
            )
        self._detach_contents_of_absent(outcome)
        if contents.unmentioned:
            self.settlement.unconfirmed.extend(contents.unmentioned)
            self.state.uncovered = True
        if not contents.foreign_failures:
            return outcome
        # Members that Usher did not add remain, so the group is not empty. The next run empties it again.
        reasons = "; ".join(f"{name}: {message}" for name, message in list(contents.foreign_failures.items())[:3])
        failed = {ordinal: ItemOutcome(OutcomeKind.FAILED, reasons) for ordinal in ordinals}
        return replace(outcome, done={}, not_done=outcome.not_done | failed)

    def _detach_contents_of_absent(self, outcome: BatchOutcome) -> None:
        """Deletes the contents of absent folders by name: the folders may have been deleted without all of them."""
        if not outcome.absent:
            return
        covered = covered_items(self.connection, plan_id=self.settlement.plan_id, ordinals=outcome.absent)
        unconfirmed = [item.ordinal for item in covered if item.kind != Kind.FOLDER]
        if unconfirmed:
            detach_contents(self.connection, plan_id=self.settlement.plan_id, ordinals=outcome.absent)
            self.settlement.unconfirmed.extend(unconfirmed)
            self.state.uncovered = True

    def _note_unsupported(self, outcome: BatchOutcome) -> None:
        """Records what to send once the backend supports the operation, even if the settings rule it out now."""
        for operation, ordinals in outcome.done.items():
            if self.omits_roles(operation):
                self.settlement.without_roles[operation].extend(ordinals)
        for operation, ordinals in outcome.unsupported.items():
            self.settlement.to_send_when_supported[operation].extend(ordinals)


def _settle(settlement: Settlement, item: PlanItem, outcome: ItemOutcome) -> None:
    messages = {
        OutcomeKind.FAILED: settlement.failed,
        OutcomeKind.UNKNOWN: settlement.unknown,
        OutcomeKind.LOST: settlement.lost,
        OutcomeKind.SKIPPED: settlement.skipped,
    }
    if outcome.kind in messages:
        messages[outcome.kind][item.ordinal] = outcome.message
    elif outcome.kind is OutcomeKind.UNSUPPORTED:
        settlement.unsupported[item.operation].append(item.ordinal)
    elif outcome.kind is OutcomeKind.LEFT_BEHIND:
        settlement.left_behind.append(item.ordinal)
    # Unsent items stay planned, and are cancelled when the run ends.
