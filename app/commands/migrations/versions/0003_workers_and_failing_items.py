"""Workers' signs of life, and since when items fail

Revision: 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "worker",
        sa.Column("worker_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("leads", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("worker_id", name=op.f("pk_worker")),
    )
    with op.batch_alter_table("item_failure", schema=None) as batch_op:
        batch_op.add_column(sa.Column("failing_since", sa.BigInteger(), nullable=True))
        batch_op.create_index(
            batch_op.f("ix_item_failure_ledger_id_kind_parked"), ["ledger_id", "kind", "parked"], unique=False
        )
