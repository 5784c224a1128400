"""A turn of the applier: what is known of the run in memory, and how the answers of one transaction are taken in."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

from sqlalchemy import Connection

from app.foundation.database.statements import json_list, run
from app.sync.apply.batch import BatchOutcome
from app.sync.apply.contents import take_out_contents
from app.sync.apply.outcome import Fate, ItemOutcome
from app.sync.ledger.items import Kind
from app.sync.ledger.settlement import Counts, Outcomes
from app.sync.plan.covered import covered_items, uncover
from app.sync.plan.stored import PlanItem

_STATUS = {
    Fate.FAILED: "failed",
    Fate.UNKNOWN: "failed",
    Fate.LOST: "failed",
    Fate.UNSUPPORTED: "skipped",
    Fate.LEFT_BEHIND: "skipped",
    Fate.SKIPPED: "skipped",
}
_BREAKS = frozenset({Fate.FAILED, Fate.UNKNOWN, Fate.SKIPPED})
"""After an add with one of these fates, what needs the thing must not be tried."""


@dataclass(slots=True)
class Turn:
    """What we know of the run in memory. A transaction works on a copy, which counts once it is committed."""

    counts: Counts
    calls: int
    """Write calls sent."""
    last_call_id: int
    broken: bool
    """Whether there are adds that came to nothing, so that what needs them has to be looked for."""
    uncovered: bool = False
    """Whether items came up that have to be sent by themselves after all."""
    settled: int = 0
    """Items that this transaction settled."""
    cancel_requested: bool = False
    taken_over: bool = False
    """Whether another process has ended this run: the lock was lost."""

    def next(self) -> "Turn":
        return Turn(deepcopy(self.counts), self.calls, self.last_call_id, self.broken, self.uncovered)

    def next_call_id(self) -> int:
        self.last_call_id += 1
        return self.last_call_id

    def count(self, item: PlanItem, status: str) -> None:
        self.count_one(item.kind, item.action, status)

    def count_one(self, kind: str, action: str, status: str) -> None:
        self._count(kind, action, status, 1)

    def count_covered(self, connection: Connection, plan_id: str, ordinals: list[int], status: str) -> None:
        """What these deletes cover shares their fate; to be asked before they are settled."""
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
            self._count(row.kind, row.action, "done" if status == "done" else "skipped", row.number)

    def _count(self, kind: str, action: str, status: str, number: int) -> None:
        numbers = self.counts.setdefault(kind, {}).setdefault(action, {"planned": 0})
        numbers[status] = numbers.get(status, 0) + number
        self.settled += number


@dataclass(frozen=True, slots=True, kw_only=True)
class TakingIn:
    """Takes answers in: each item into ``outcomes`` and, by what became of it, into the counts of ``turn``."""

    connection: Connection
    turn: Turn
    outcomes: Outcomes
    tells_without_roles: Callable[[str], bool]
    """Whether what an operation told lacked roles and access types."""

    def take_in(self, outcome: BatchOutcome) -> None:
        """The answer to one batch."""
        turn, outcomes = self.turn, self.outcomes
        by_ordinal = {item.ordinal: item for item in outcome.batch.items}
        deletes = outcome.batch.items[0].action == "delete"
        if deletes:
            self._take_contents_in(outcome)
        done: list[int] = []
        for operation, ordinals in outcome.done.items():
            done.extend(ordinals)
            if deletes:
                outcomes.deleted.extend(ordinals)
            else:
                outcomes.done[operation].extend(ordinals)
        if deletes and outcome.batch.items[0].kind == Kind.ORGANIZATION_USER:
            outcomes.removed_members.extend(done)
        outcomes.added_again.extend(outcome.added_again)
        self._note_unsupported(outcome)
        for ordinal, fate in outcome.others.items():
            _sort_in(outcomes, by_ordinal[ordinal], ordinal, fate)
        left_behind = [ordinal for ordinal, fate in outcome.others.items() if fate.fate is Fate.LEFT_BEHIND]
        if left_behind:
            uncover(self.connection, plan_id=self.outcomes.plan_id, ordinals=left_behind)
            turn.uncovered = True
        turn.calls += outcome.calls
        turn.broken |= any(
            by_ordinal[ordinal].action == "add" for ordinal, fate in outcome.others.items() if fate.fate in _BREAKS
        )
        statuses = dict.fromkeys(done, "done")
        statuses |= {ordinal: _STATUS[fate.fate] for ordinal, fate in outcome.others.items() if fate.fate in _STATUS}
        for ordinal, status in statuses.items():
            turn.count(by_ordinal[ordinal], status)
        if deletes:
            for status in ("done", "failed", "skipped"):
                of_status = [ordinal for ordinal, given in statuses.items() if given == status]
                turn.count_covered(self.connection, self.outcomes.plan_id, of_status, status)

    def _take_contents_in(self, outcome: BatchOutcome) -> None:
        """What was to go along and is told apart has a fate of its own; before the deletes themselves are settled."""
        ordinals = [ordinal for some in outcome.done.values() for ordinal in some]
        contents = take_out_contents(self.connection, self.outcomes.plan_id, outcome, ordinals)
        for ordinal, fate in contents.fates.items():
            item = contents.items[ordinal]
            if fate.fate is Fate.DONE:
                self.outcomes.deleted.append(ordinal)
            elif fate.fate is Fate.UNKNOWN:
                self.outcomes.unknown[ordinal] = fate.message
            else:
                self.outcomes.failed[ordinal] = fate.message
            self.turn.count_one(item.kind, "delete", "done" if fate.fate is Fate.DONE else "failed")
        self._look_into_absent(outcome)
        if contents.unmentioned:
            self.outcomes.unconfirmed.extend(contents.unmentioned)
            self.turn.uncovered = True
        if contents.unknown_names:
            # Somebody who is not ours could not be removed: the group is not empty, and is emptied again next time.
            told = "; ".join(f"{name}: {message}" for name, message in list(contents.unknown_names.items())[:3])
            outcome.done.clear()
            outcome.others |= {ordinal: ItemOutcome(Fate.FAILED, told) for ordinal in ordinals}

    def _look_into_absent(self, outcome: BatchOutcome) -> None:
        """A folder that is not there any more may have gone without all that was in it: that is deleted by name."""
        if not outcome.absent:
            return
        covered = covered_items(self.connection, plan_id=self.outcomes.plan_id, ordinals=outcome.absent)
        unconfirmed = [item.ordinal for item in covered if item.kind != Kind.FOLDER]
        if unconfirmed:
            uncover(self.connection, plan_id=self.outcomes.plan_id, ordinals=list(outcome.absent))
            self.outcomes.unconfirmed.extend(unconfirmed)
            self.turn.uncovered = True

    def _note_unsupported(self, outcome: BatchOutcome) -> None:
        """Keeps in mind what is to be told when the backend turns out to have the operation after all, also where the
        settings say that it has none of them: settings change."""
        for operation, ordinals in outcome.done.items():
            if self.tells_without_roles(operation):
                self.outcomes.without_roles[operation].extend(ordinals)
        for operation, ordinals in outcome.unsupported.items():
            self.outcomes.owed[operation].extend(ordinals)


def _sort_in(outcomes: Outcomes, item: PlanItem, ordinal: int, fate: ItemOutcome) -> None:
    match fate.fate:
        case Fate.FAILED:
            outcomes.failed[ordinal] = fate.message
        case Fate.UNKNOWN:
            outcomes.unknown[ordinal] = fate.message
        case Fate.LOST:
            outcomes.lost[ordinal] = fate.message
        case Fate.SKIPPED:
            outcomes.skipped[ordinal] = fate.message
        case Fate.UNSUPPORTED:
            outcomes.unsupported[item.operation].append(ordinal)
        case Fate.LEFT_BEHIND:
            outcomes.left_behind.append(ordinal)
        case _:
            # Not sent: it stays planned, and is cancelled with the rest when the run ends.
            pass
