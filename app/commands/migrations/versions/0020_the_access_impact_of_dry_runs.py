"""The access impact of dry runs, stored with their plans

Revision: 0020, after 0019.

Plans of existing dry runs have none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
oldest_compatible = "0018"


def upgrade() -> None:
    op.create_table(
        "plan_access",
        sa.Column("plan_id", sa.String(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("before", sa.String(), nullable=False),
        sa.Column("after", sa.String(), nullable=False),
        sa.Column("users", sa.BigInteger(), nullable=False),
        sa.Column("resources", sa.BigInteger(), nullable=False),
        sa.Column("pairs", sa.BigInteger(), nullable=False),
        sa.Column("user_ids", sa.String(), nullable=False),
        sa.Column("resource_ids", sa.String(), nullable=False),
        sa.Column("names", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("plan_id", "ordinal", name=op.f("pk_plan_access")),
    )
