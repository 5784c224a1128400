"""Finds and detaches covered deletes: planned deletes that another delete includes, so they are not sent."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from app.foundation.database.statements import json_list, run

_MOVE_TO_CONTAINER = """
UPDATE plan_item SET covered_by = (
  SELECT d.ordinal FROM plan_item d WHERE d.plan_id = plan_item.plan_id AND d.action = 'delete'
  AND d.kind = '{container}' AND d.organization_id = plan_item.organization_id
  AND d.container_id = '' AND d.item_id = plan_item.container_id
)
WHERE plan_id = :plan_id AND status = 'planned' AND covered_by IN (@numbers(ordinals)) AND kind = '{member}'
"""

_DETACH_OTHERS = """
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


def covered_items(connection: Connection, *, plan_id: str, ordinals: Collection[int]) -> Iterator[CoveredItem]:
    """The planned items that these deletes cover."""
    rows = run(
        connection,
        """
        SELECT ordinal, kind, item_id, covered_by FROM plan_item
        WHERE plan_id = :plan_id AND status = 'planned' AND covered_by IN (@numbers(ordinals))
        """,
        {"plan_id": plan_id, "ordinals": json_list(ordinals)},
    )
    return (CoveredItem(row.ordinal, row.kind, row.item_id, row.covered_by) for row in rows)


def detach(connection: Connection, *, plan_id: str, ordinals: Collection[int]) -> None:
    """Detaches these deletes from the deletes that cover them, so that they are sent."""
    if ordinals:
        run(
            connection,
            """
            UPDATE plan_item SET covered_by = NULL
            WHERE plan_id = :plan_id AND ordinal IN (@numbers(ordinals))
            """,
            {"plan_id": plan_id, "ordinals": json_list(ordinals)},
        )


def detach_contents(connection: Connection, *, plan_id: str, ordinals: Sequence[int]) -> None:
    """Detaches the contents of these deletes, because the deletes may not have removed them. Users of a document and
    members of a group move to the delete of that document or group, if there is one. Subfolders stay covered."""
    parameters = {"plan_id": plan_id, "ordinals": json_list(ordinals)}
    for member, container in (("documentUser", "document"), ("groupMember", "group")):
        run(connection, _MOVE_TO_CONTAINER, parameters, member=member, container=container)
    run(connection, _DETACH_OTHERS, parameters)
