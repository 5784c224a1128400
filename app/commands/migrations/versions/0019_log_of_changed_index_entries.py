"""The log of the index entries that a revision changes

Revision: 0019, after 0018.

Existing revisions are not logged, so each node builds its first index from the access model. So are revisions that an
older version creates during an upgrade.
"""

import sqlalchemy as sa
from alembic import op

from app.foundation.database.new_tables import create_index

revision = "0019"
down_revision = "0018"
oldest_compatible = "0018"


def upgrade() -> None:
    op.create_table(
        "access_change",
        sa.Column("change_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("item_id", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("change_id", name=op.f("pk_access_change")),
    )
    create_index("ix_access_change_revision_kind", "access_change", "revision kind")
    op.add_column("access_revision", sa.Column("logged", sa.Boolean(), server_default=sa.false(), nullable=False))
