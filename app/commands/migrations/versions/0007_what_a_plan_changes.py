"""What a plan's item was before, and the fields that records had when the backend was told of them

Revision: 0007, after 0006.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "former_payload",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("item_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("payload", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "organization_id", "item_id", "digest", name=op.f("pk_former_payload")),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("plan_item", schema=None) as batch_op:
        batch_op.add_column(sa.Column("was", sa.String(), server_default="", nullable=False))
