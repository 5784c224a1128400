# ruff: noqa: S608 - the parts of the statements are constants of this module
"""The deletes of a plan that are part of another delete's call, and how they are taken out of it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from app.foundation.database.statements import json_list, run


@dataclass(frozen=True, slots=True)
class CoveredItem:
    """A planned delete that goes along with the one of the ordinal ``covered_by``."""

    ordinal: int
    kind: str
    item_id: str
    covered_by: int


def covered_items(connection: Connection, *, plan_id: str, ordinals: Collection[int]) -> Iterator[CoveredItem]:
    """What is still planned to go along with these."""
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
    """Nothing covers these deletes any more: each stands for itself."""
    if ordinals:
        run(
            connection,
            """
            UPDATE plan_item SET covered_by = NULL
            WHERE plan_id = :plan_id AND ordinal IN (@numbers(ordinals))
            """,
            {"plan_id": plan_id, "ordinals": json_list(ordinals)},
        )


def uncover(connection: Connection, *, plan_id: str, ordinals: Sequence[int]) -> None:
    """The backend lacks the operation of these deletes: users, documents and group members that they cover are sent by
    themselves. Subfolders stay covered."""
    parameters = {"plan_id": plan_id, "ordinals": json_list(ordinals)}
    within = "plan_id = :plan_id AND status = 'planned' AND covered_by IN (@numbers(ordinals))"
    for member, container in (("documentUser", "document"), ("groupMember", "group")):
        run(
            connection,
            f"""
            UPDATE plan_item SET covered_by = (
                SELECT d.ordinal FROM plan_item d WHERE d.plan_id = plan_item.plan_id AND d.action = 'delete'
                AND d.kind = '{container}' AND d.organization_id = plan_item.organization_id
                AND d.container_id = '' AND d.item_id = plan_item.container_id
            )
            WHERE {within} AND kind = '{member}'
            """,
            parameters,
        )
    run(
        connection,
        f"""
        UPDATE plan_item SET covered_by = NULL
        WHERE {within} AND kind IN ('organizationUser', 'folderUser', 'document', 'group')
        """,
        parameters,
    )
