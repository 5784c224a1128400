"""What runs, verifies and failures record, the workers, and the fields that the backend was sent

Revision: 0007, after 0002. It replaces the revisions 0003 to 0007, which were made together.
"""

import sqlalchemy as sa
from alembic import op

from app.foundation.database.new_tables import create_index, create_table

revision = "0007"
down_revision = "0002"


def upgrade() -> None:
    create_table("worker", "worker_id* name started_at:bigint seen_at:bigint leads:bool")
    create_table("run_tally", "status* runs:bigint")
    create_table(
        "discarded_item",
        "ledger_id:int* kind* organization_id* container_id* item_id* fingerprint run_id message",
    )
    create_table("former_payload", "kind* organization_id* item_id* digest* payload", clustered=True)
    _add("item_failure", sa.Column("failing_since", sa.BigInteger()))
    create_index("ix_item_failure_ledger_id_kind_parked", "item_failure", "ledger_id kind parked")
    for name in ("malformed", "dangling"):
        _add("directory_source", sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
    _add("ledger", sa.Column("looked_at", sa.BigInteger()))
    _add("ledger", sa.Column("findings", sa.String(), server_default="{}", nullable=False))
    _add("run", sa.Column("held_at", sa.BigInteger()), sa.Column("resumed_at", sa.BigInteger()))
    _add("run", sa.Column("decision", sa.String()), sa.Column("decided_at", sa.BigInteger()))
    _add("run", sa.Column("decided_by", sa.String()), sa.Column("decision_reason", sa.String()))
    _add("run", sa.Column("retry", sa.Boolean(), server_default=sa.false(), nullable=False))
    _add("run", sa.Column("kinds", sa.String(), server_default="[]", nullable=False))
    _add("run", sa.Column("interrupted", sa.Boolean(), server_default=sa.false(), nullable=False))
    _add("run", sa.Column("continued_by", sa.String()))
    for name in ("in_force", "was"):
        _add("plan_item", sa.Column(name, sa.String(), server_default="", nullable=False))
    op.execute(
        "INSERT INTO run_tally (status, runs) SELECT status, count(*) FROM run"
        " WHERE status IN ('done', 'partial', 'held', 'failed', 'cancelled') GROUP BY status"
    )


def _add(table: str, *columns: "sa.Column[object]") -> None:
    for column in columns:
        op.add_column(table, column)
