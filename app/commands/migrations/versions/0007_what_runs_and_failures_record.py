"""What runs, verifies and failures record, the workers, and the fields that the backend was sent

Revision: 0007, after 0002. It replaces the revisions 0003 to 0007, which were made together.
"""

from alembic import op

from app.foundation.database.new_tables import add_columns, create_index, create_table

revision = "0007"
down_revision = "0002"


def upgrade() -> None:
    create_table("worker", "worker_id* name started_at:bigint seen_at:bigint leads:bool")
    create_table("run_tally", "status* runs:bigint")
    create_table(
        "discarded_item", "ledger_id:int* kind* organization_id* container_id* item_id* fingerprint run_id message"
    )
    create_table("former_payload", "kind* organization_id* item_id* digest* payload", clustered=True)
    add_columns("item_failure", "failing_since:bigint?")
    create_index("ix_item_failure_ledger_id_kind_parked", "item_failure", "ledger_id kind parked")
    add_columns("directory_source", "malformed:bigint=0 dangling:bigint=0")
    add_columns("ledger", "looked_at:bigint? findings={}")
    add_columns(
        "run",
        "held_at:bigint? resumed_at:bigint? decision? decided_at:bigint? decided_by? decision_reason? retry:bool=false"
        " kinds=[] interrupted:bool=false continued_by?",
    )
    add_columns("plan_item", "in_force= was=")
    op.execute(
        "INSERT INTO run_tally (status, runs) SELECT status, count(*) FROM run"
        " WHERE status IN ('done', 'partial', 'held', 'failed', 'cancelled') GROUP BY status"
    )
