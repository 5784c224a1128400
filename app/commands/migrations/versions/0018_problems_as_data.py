"""Problems as data instead of rendered texts

Revision: 0018, after 0017.

The stored problems are dropped. The next count and the next read of each source find them again.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None
oldest_compatible = "0018"
"""Older software reads the tables that are dropped."""


def upgrade() -> None:
    op.drop_table("directory_problem")
    op.drop_table("directory_problem_count")
    op.create_table(
        "problem_count",
        sa.Column("source_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sort", sa.String(), nullable=False),
        sa.Column("by_read", sa.Boolean(), nullable=False),
        sa.Column("problems", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source_id", "sort", "by_read", name=op.f("pk_problem_count")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "problem",
        sa.Column("source_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sort", sa.String(), nullable=False),
        sa.Column("by_read", sa.Boolean(), nullable=False),
        sa.Column("ordinal", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("cause", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("place", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("source_id", "sort", "by_read", "ordinal", name=op.f("pk_problem")),
        sqlite_with_rowid=False,
    )
    op.add_column("directory_state", sa.Column("counted_changes", sa.BigInteger(), server_default="-1", nullable=False))
    op.add_column("directory_state", sa.Column("counted_revision", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("directory_state", sa.Column("counted_at", sa.BigInteger(), nullable=True))
    op.add_column(
        "directory_source", sa.Column("login_refused", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    op.drop_column("directory_source", "dangling")


def downgrade() -> None:
    op.add_column("directory_source", sa.Column("dangling", sa.BigInteger(), server_default="0", nullable=False))
    op.drop_column("directory_source", "login_refused")
    for column in ("counted_at", "counted_revision", "counted_changes"):
        op.drop_column("directory_state", column)
    op.drop_table("problem")
    op.drop_table("problem_count")
    op.create_table(
        "directory_problem_count",
        sa.Column("source_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sort", sa.String(), nullable=False),
        sa.Column("problems", sa.BigInteger(), nullable=False),
        sa.Column("told_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source_id", "sort", name=op.f("pk_directory_problem_count")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "directory_problem",
        sa.Column("source_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sort", sa.String(), nullable=False),
        sa.Column("ordinal", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("place", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("source_id", "sort", "ordinal", name=op.f("pk_directory_problem")),
        sqlite_with_rowid=False,
    )
