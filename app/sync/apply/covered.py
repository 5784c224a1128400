"""Covered deletes: planned deletes that another delete includes, so they are not sent.

Finds those for which the backend's answer has an outcome of their own, inside a deleted container or an emptied group,
and detaches them. The caller settles them.

The rules: ``app/sync/apply/README.md``, "What goes along".
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from app.foundation.database.statements import json_list, run
from app.sync.apply.batch import DONE, BatchOutcome, ItemOutcome, OutcomeKind
from app.sync.apply.requests import takes_all_members

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


def _of_group(covered: Sequence[CoveredItem], outcome: BatchOutcome, failed: dict[str, str]) -> CoveredOutcomes:
    contents = CoveredOutcomes(foreign_failures=failed)
    for item in covered:
        failed.pop(item.item_id, None)
        own = outcome.contents.get(item.item_id)
        if own is None:
            contents.unmentioned.append(item.ordinal)
        else:
            contents.outcomes[item] = own
    return contents


def _of_container(covered: Sequence[CoveredItem], outcome: BatchOutcome, failed: dict[str, str]) -> CoveredOutcomes:
    """An answer contains ids without kinds, so all items with the id of a failed one count as not deleted."""
    incomplete = {item.covered_by for item in covered if item.item_id in failed}
    outcomes = {
        item: outcome.contents.get(item.item_id, _UNCONFIRMED) for item in covered if item.covered_by in incomplete
    }
    return CoveredOutcomes({item: own for item, own in outcomes.items() if own != DONE})
