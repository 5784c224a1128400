"""What became of held runs, and which deletes were discarded

Revision: 0005, after 0004.
"""

import sqlalchemy as sa
from alembic import op

from app.foundation.database.new_tables import create_table

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    create_table(
        "discarded_item",
        "ledger_id:int* kind* organization_id* container_id* item_id* fingerprint run_id message",
    )
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.add_column(sa.Column("held_at", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("resumed_at", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("decision", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("decided_at", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("decided_by", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("decision_reason", sa.String(), nullable=True))
