"""The database states which versions can use it

Revision: 0014, after 0013.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None
oldest_compatible = "0014"
"""Older software does not read the table."""


def upgrade() -> None:
    op.create_table(
        "schema_compatibility",
        sa.Column("oldest_revision", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("oldest_revision", name=op.f("pk_schema_compatibility")),
    )


def downgrade() -> None:
    op.drop_table("schema_compatibility")
