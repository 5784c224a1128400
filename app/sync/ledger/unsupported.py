# ruff: noqa: S608 - SQL is put together from constants of this module alone; data travels in parameters.
"""Unsupported items: what the backend would have been told had it the operation, and is told once it has.

The rules: ``app/sync/apply/README.md``, "What the backend lacks".

What cannot be told because an operation is missing counts as told, so that a backend that really lacks it is not told
the same in every run. But an operation may be missing for a moment only, as while the backend is being replaced. So the
items are remembered with the operation, and become unconfirmed when it is there again: the next plan tells them.
"""

from collections.abc import Sequence

from sqlalchemy import Connection

from app.foundation.database.statements import json_list, run

_KEY = "kind, organization_id, container_id, item_id"


def remember_unsupported(
    connection: Connection,
    *,
    ledger_id: int,
    plan_id: str,
    operation: str,
    ordinals: Sequence[int],
    without_roles: bool,
) -> None:
    """Remembers items of a plan. ``without_roles``: they were told, but not their roles and access types."""
    if ordinals:
        run(
            connection,
            f"""
            INSERT INTO untold_item (ledger_id, operation, plain, {_KEY})
            SELECT CAST(:ledger_id AS INTEGER), CAST(:operation AS TEXT), {_truth(without_roles)},
                p.kind, p.organization_id, p.container_id, p.item_id
            FROM plan_item p WHERE p.plan_id = :plan_id AND p.ordinal IN (@numbers(ordinals))
            ON CONFLICT DO NOTHING
            """,
            {
                "ledger_id": ledger_id,
                "plan_id": plan_id,
                "operation": operation,
                "ordinals": json_list(ordinals),
            },
        )


def unsupported_operations(connection: Connection, ledger_id: int) -> list[tuple[str, bool]]:
    """The operations for want of which something was not told, each with whether only its roles were."""
    rows = run(
        connection,
        "SELECT DISTINCT operation, plain FROM untold_item WHERE ledger_id = :ledger_id ORDER BY 1, 2",
        {"ledger_id": ledger_id},
    )
    return [(str(operation), bool(plain)) for operation, plain in rows]


def tell_again(connection: Connection, ledger_id: int, operation: str, *, without_roles: bool) -> int:
    """The operation is there: what was not told for want of it becomes unconfirmed, and what was left behind is ours to
    delete again; how many items."""
    parameters = {"ledger_id": ledger_id, "operation": operation}
    these = f"u.ledger_id = :ledger_id AND u.operation = :operation AND u.plain = {_truth(without_roles)}"
    if operation.startswith("delete_"):
        run(
            connection,
            f"""
            INSERT INTO ledger_item (ledger_id, {_KEY}, digest, parent_id, access_type, access_role, disabled,
                                     certain, gone_at)
            SELECT u.ledger_id, u.kind, u.organization_id, u.container_id, u.item_id, '', '', '', '', FALSE, FALSE,
                   CAST(NULL AS BIGINT)
            FROM untold_item u WHERE {these}
            ON CONFLICT (ledger_id, {_KEY}) DO UPDATE SET certain = FALSE
            """,
            parameters,
        )
    else:
        # A document's access type is told by an operation of its own: as one that differs from any it is told again.
        changes = ", access_type = '?'" if operation == "update_document_access" else ""
        run(
            connection,
            f"""
            UPDATE ledger_item SET certain = FALSE {changes}
            WHERE ledger_id = :ledger_id AND EXISTS (
                SELECT 1 FROM untold_item u WHERE {these} AND u.kind = ledger_item.kind
                AND u.organization_id = ledger_item.organization_id
                AND u.container_id = ledger_item.container_id AND u.item_id = ledger_item.item_id)
            """,
            parameters,
        )
    told = run(
        connection,
        f"DELETE FROM untold_item AS u WHERE {these}",
        parameters,
    ).rowcount
    run(connection, "UPDATE ledger SET ledger_revision = ledger_revision + 1 WHERE ledger_id = :ledger_id", parameters)
    return told


def _truth(value: bool) -> str:
    return "TRUE" if value else "FALSE"
