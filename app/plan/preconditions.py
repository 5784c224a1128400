# ruff: noqa: S608 - SQL is put together from constants of this project alone; data travels in parameters.
"""The preconditions of a plan's items: which of them must not be sent, by what has become of others.

The rules: ``app/plan/README.md``, "Preconditions".

Two questions, asked in the transaction in which calls are written down before they are sent: does an item need
something that could not be made, and would a delete take something along that is not to go?
"""

from collections.abc import Sequence

from sqlalchemy import Connection

from app.database.statements import json_list, run
from app.plan.stored import PlanItem, still_needed_below

_BROKEN = """
    d.plan_id = p.plan_id AND d.action = 'add' AND d.status IN ('failed', 'skipped', 'waiting', 'parked', 'cancelled')
    AND NOT EXISTS (
        SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind = d.kind
        AND l.organization_id = d.organization_id AND l.container_id = d.container_id AND l.item_id = d.item_id
        AND l.certain
    )
"""
"""``d`` was to be added and is not there. What could not be told but is taken as told does not count."""

_NEEDS = (
    """d.kind = 'organization' AND d.organization_id = p.organization_id AND d.container_id = ''
    AND d.item_id = p.organization_id AND p.kind <> 'organization'""",
    """d.kind = 'folder' AND d.organization_id = p.organization_id AND d.container_id = ''
    AND d.item_id = p.parent_id AND p.kind IN ('folder', 'document')""",
    """d.kind = CASE p.kind WHEN 'folderUser' THEN 'folder' WHEN 'documentUser' THEN 'document'
    WHEN 'groupMember' THEN 'group' ELSE '' END
    AND d.organization_id = p.organization_id AND d.container_id = '' AND d.item_id = p.container_id""",
    """d.kind = p.kind AND d.organization_id = p.organization_id AND d.container_id = p.container_id
    AND d.item_id = p.item_id AND d.ordinal < p.ordinal AND p.action = 'update'""",
)
"""Its organization; the folder above it; the folder, document or group that it is in; itself."""


def any_broken(connection: Connection, plan_id: str) -> bool:
    """Whether the plan has adds that will not be tried, so that what needs them has to be looked for."""
    row = run(
        connection,
        """
        SELECT 1 FROM plan_item WHERE plan_id = :plan_id
        AND status IN ('failed', 'skipped', 'waiting', 'parked', 'cancelled') AND action = 'add' LIMIT 1
        """,
        {"plan_id": plan_id},
    ).first()
    return row is not None


def without_what_they_need(
    connection: Connection, *, ledger_id: int, plan_id: str, ordinals: Sequence[int]
) -> dict[int, str]:
    """Of these items, those that need something that could not be made, each with a sentence about it."""
    among = "p.plan_id = :plan_id AND p.ordinal IN (@numbers(ordinals)) AND p.action <> 'delete'"
    queries = [
        f"""
        SELECT p.ordinal, d.kind, d.item_id, {number} AS closeness
        FROM plan_item p JOIN plan_item d ON {needs} AND {_BROKEN} WHERE {among}
        """
        for number, needs in enumerate(_NEEDS)
    ]
    rows = run(
        connection,
        f"{' UNION ALL '.join(queries)} ORDER BY closeness DESC",
        {"ledger_id": ledger_id, "plan_id": plan_id, "ordinals": json_list(ordinals)},
    )
    return {row.ordinal: f"needs the {row.kind} {row.item_id}, which could not be made" for row in rows}


_STILL_HAS_USERS = """
    SELECT p.ordinal, MIN(l.item_id) AS user_id FROM plan_item p
    JOIN ledger_item l ON l.ledger_id = :ledger_id AND l.kind = 'documentUser'
        AND l.organization_id = p.organization_id AND l.container_id = p.item_id
    WHERE p.plan_id = :plan_id AND p.ordinal IN (@numbers(ordinals)) AND NOT EXISTS (
        SELECT 1 FROM plan_item c WHERE c.plan_id = p.plan_id AND c.kind = l.kind
        AND c.organization_id = l.organization_id AND c.container_id = l.container_id AND c.item_id = l.item_id
        AND c.covered_by = p.ordinal
    )
    GROUP BY p.ordinal
"""


def would_take_others(connection: Connection, *, ledger_id: int, items: Sequence[PlanItem]) -> dict[int, str]:
    """Of the items of one call, the deletes that would take something along that is not to go, each with a sentence.

    Planning saw to it that there are none. Since then a move out of a folder may have failed, and the ledger knows.
    """
    first = items[0]
    if first.action != "delete" or first.kind not in {"organization", "folder", "document", "group"}:
        return {}
    if first.kind == "document":
        # Many documents travel in one call: one statement for them all.
        rows = run(
            connection,
            _STILL_HAS_USERS,
            {
                "ledger_id": ledger_id,
                "plan_id": first.plan_id,
                "ordinals": json_list([item.ordinal for item in items]),
            },
        )
        return {row.ordinal: f"user {row.user_id} is still in it and is not to be deleted with it" for row in rows}
    needed = {item.ordinal: still_needed_below(connection, ledger_id, item) for item in items}
    return {ordinal: reason for ordinal, reason in needed.items() if reason is not None}


def uncover(connection: Connection, *, plan_id: str, ordinals: Sequence[int]) -> None:
    """These deletes cannot be sent for want of an operation: what core operations can delete is to be sent by itself.

    That are users, documents and the members of groups; subfolders stay with the delete that they were part of.
    """
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
