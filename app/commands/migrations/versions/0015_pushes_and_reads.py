"""Digests of pushes, and a full read of every source to which something was pushed

Revision: 0015, after 0014.

A read of changes removes what was pushed before it by the marks of pushed keys. Pushes of earlier versions left no
marks, so the next read of their sources is one of everything.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
oldest_compatible = "0015"
"""Older software does not mark every pushed key."""


def upgrade() -> None:
    with op.batch_alter_table("directory_push", schema=None) as batch_op:
        batch_op.add_column(sa.Column("digests", sa.String(), server_default="[]", nullable=False))
    op.execute("UPDATE directory_source SET cursor = '' WHERE source_id IN (SELECT source_id FROM directory_push)")


def downgrade() -> None:
    with op.batch_alter_table("directory_push", schema=None) as batch_op:
        batch_op.drop_column("digests")
