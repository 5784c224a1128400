# ruff: noqa: S608 - SQL consists of constants of this module; data is in parameters.
"""Covered deletes, which another delete includes: finds them and detaches them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from app.foundation.database.statements import json_list, run


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
    """Makes these deletes separate: nothing covers them."""
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
    """Detaches users, documents and group members from deletes that the backend does not support. Subfolders stay
    covered."""
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
