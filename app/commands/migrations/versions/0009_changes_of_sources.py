"""How far the changes of each source were asked for, what was refused, and how long its last read took

Revision: 0009, after 0008.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_TEXTS = ("last_answered", "cursor", "settings_digest", "refused", "last_refusal")
_MOMENTS = ("last_full_at", "last_refused_at", "polled_at")


def upgrade() -> None:
    with op.batch_alter_table("directory_source", schema=None) as batch_op:
        for name in _TEXTS:
            batch_op.add_column(sa.Column(name, sa.String(), server_default="", nullable=False))
        batch_op.add_column(sa.Column("last_read_ms", sa.BigInteger(), server_default="0", nullable=False))
        for name in _MOMENTS:
            batch_op.add_column(sa.Column(name, sa.BigInteger(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("directory_source", schema=None) as batch_op:
        for name in (*_TEXTS, "last_read_ms", *_MOMENTS):
            batch_op.drop_column(name)
