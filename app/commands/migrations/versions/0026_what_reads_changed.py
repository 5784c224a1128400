"""What the last read of each source changed

Revision: 0026, after 0025.
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
oldest_compatible = "0018"


def upgrade() -> None:
    with op.batch_alter_table("directory_source") as batch:
        batch.add_column(sa.Column("last_changes", sa.String(), server_default="", nullable=False))
        batch.add_column(sa.Column("last_changed_at", sa.BigInteger(), nullable=True))
