"""The uploaded files of previews, and an index of runs by operator

Revision: 0024, after 0023.

A worker of an older version previews the configured sources instead of the file.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
oldest_compatible = "0018"

_ASKED = sa.text("asked_by IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "run_file",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_run_file")),
    )
    op.create_index("ix_run_asked_by", "run", ["asked_by", "run_id"], sqlite_where=_ASKED, postgresql_where=_ASKED)
