"""Workers' signs of life, and since when items fail

Revision: 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op

from app.foundation.database.new_tables import create_table

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    create_table("worker", "worker_id* name started_at:bigint seen_at:bigint leads:bool")
    with op.batch_alter_table("item_failure", schema=None) as batch_op:
        batch_op.add_column(sa.Column("failing_since", sa.BigInteger(), nullable=True))
        batch_op.create_index(
            batch_op.f("ix_item_failure_ledger_id_kind_parked"), ["ledger_id", "kind", "parked"], unique=False
        )
