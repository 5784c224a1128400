"""What became of held runs, and which deletes were discarded

Revision: 0005, after 0004.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "discarded_item",
        sa.Column("ledger_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("container_id", sa.String(), nullable=False),
        sa.Column("item_id", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint(
            "ledger_id", "kind", "organization_id", "container_id", "item_id", name=op.f("pk_discarded_item")
        ),
    )
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.add_column(sa.Column("held_at", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("resumed_at", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("decision", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("decided_at", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("decided_by", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("decision_reason", sa.String(), nullable=True))
