"""The deletes of a plan that are part of another delete's call, and how they are taken out of it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sqlalchemy import Connection

from app.database.statements import json_list, run


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
