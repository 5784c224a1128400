"""Unsupported items: what is still to be sent once the backend supports an operation.

The rules: ``app/sync/apply/README.md``, "What the backend lacks".

If an operation is missing, its items count as done, so that not every run tries them. The backend may lack it only for
a while, for example during an upgrade. So the items are stored with the operation, and become unconfirmed when the
backend has it again: the next plan sends them.
"""

# ruff: noqa: S608 - SQL consists of constants of this module; data is in parameters.

from collections.abc import Sequence

from sqlalchemy import Connection

from app.foundation.database.statements import json_list, run
from app.sync.ledger.ledger import increment_revision

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
    """Stores items of a plan. ``without_roles``: they were sent, but without roles and access types."""
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
            {"ledger_id": ledger_id, "plan_id": plan_id, "operation": operation, "ordinals": json_list(ordinals)},
        )


def unsupported_operations(connection: Connection, ledger_id: int) -> list[tuple[str, bool]]:
    """The operations that items need, each with whether only roles and access types are still to be sent."""
    rows = run(
        connection,
        "SELECT DISTINCT operation, plain FROM untold_item WHERE ledger_id = :ledger_id ORDER BY 1, 2",
        {"ledger_id": ledger_id},
    )
    return [(str(operation), bool(plain)) for operation, plain in rows]


def restore_unsupported(connection: Connection, ledger_id: int, operation: str, *, without_roles: bool) -> None:
    """Makes the items unconfirmed that needed the operation. What was left behind is in the ledger again."""
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
        # Access types of documents have an operation of their own. '?' differs from every type.
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
    run(connection, f"DELETE FROM untold_item AS u WHERE {these}", parameters)
    increment_revision(connection, ledger_id)


def _truth(value: bool) -> str:
    return "TRUE" if value else "FALSE"
