"""What was pushed to a source, what reads must leave alone because of it, and what a sync has to follow

Revision: 0010, after 0009.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "directory_push",
        sa.Column("source_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("answer", sa.String(), nullable=False),
        sa.Column("pushed_at", sa.BigInteger(), nullable=False),
        sa.Column("pushed_by", sa.String(), nullable=False),
        sa.Column("pushes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source_id", name=op.f("pk_directory_push")),
    )
    op.create_table(
        "pushed_key",
        sa.Column("source_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("key_digest", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("read_number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source_id", "kind", "key_digest", name=op.f("pk_pushed_key")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "touched",
        sa.Column("sort", sa.String(), nullable=False),
        sa.Column("item_id", sa.String(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sort", "item_id", name=op.f("pk_touched")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("touched")
    op.drop_table("pushed_key")
    op.drop_table("directory_push")
