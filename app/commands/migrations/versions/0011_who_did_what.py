"""Who asked for a run and why, what anybody did, and who is signed in at the console

Revision: 0011, after 0010.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.add_column(sa.Column("asked_by", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("asked_reason", sa.String(), nullable=True))
    op.create_table(
        "audit",
        sa.Column("audit_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("way", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("audit_id", name=op.f("pk_audit")),
    )
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_audit_actor_audit_id"), ["actor", "audit_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_audit_action_audit_id"), ["action", "audit_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_audit_at"), ["at"], unique=False)
    op.create_table(
        "console_session",
        sa.Column("session_digest", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("credential", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("browser", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session_digest", name=op.f("pk_console_session")),
    )


def downgrade() -> None:
    op.drop_table("console_session")
    op.drop_table("audit")
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.drop_column("asked_reason")
        batch_op.drop_column("asked_by")
