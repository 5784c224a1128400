"""What metrics tell: how runs ended, what verifies found, what is wrong with the records of a source

Revision: 0004, after 0003.
"""

import sqlalchemy as sa
from alembic import op

from app.foundation.database.new_tables import create_table

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    create_table("run_tally", "status* runs:bigint")
    with op.batch_alter_table("directory_source", schema=None) as batch_op:
        batch_op.add_column(sa.Column("malformed", sa.BigInteger(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("dangling", sa.BigInteger(), server_default="0", nullable=False))

    with op.batch_alter_table("ledger", schema=None) as batch_op:
        batch_op.add_column(sa.Column("looked_at", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("findings", sa.String(), server_default="{}", nullable=False))
    op.execute(
        "INSERT INTO run_tally (status, runs) SELECT status, count(*) FROM run"
        " WHERE status IN ('done', 'partial', 'held', 'failed', 'cancelled') GROUP BY status"
    )
