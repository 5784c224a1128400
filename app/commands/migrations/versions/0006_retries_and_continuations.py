"""Runs that try again what waits, runs that another one continues, and what an add of something that is there tells

Revision: 0006, after 0005.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    with op.batch_alter_table("plan_item", schema=None) as batch_op:
        batch_op.add_column(sa.Column("in_force", sa.String(), server_default="", nullable=False))
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.add_column(sa.Column("retry", sa.Boolean(), server_default=sa.false(), nullable=False))
        batch_op.add_column(sa.Column("kinds", sa.String(), server_default="[]", nullable=False))
        batch_op.add_column(sa.Column("interrupted", sa.Boolean(), server_default=sa.false(), nullable=False))
        batch_op.add_column(sa.Column("continued_by", sa.String(), nullable=True))
