"""Who caused a notification

Revision: 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_FROM_PAYLOAD = {
    "sqlite": "json_extract(payload, '$.actionUser.userId')",
    "postgresql": "(payload::json #>> '{actionUser,userId}')",
}


def upgrade() -> None:
    with op.batch_alter_table("notification", schema=None) as batch_op:
        batch_op.add_column(sa.Column("action_user_id", sa.String(), nullable=False, server_default=""))
    value = _FROM_PAYLOAD[op.get_bind().dialect.name]
    op.execute(f"UPDATE notification SET action_user_id = {value} WHERE {value} IS NOT NULL")  # noqa: S608 - no input
    with op.batch_alter_table("notification", schema=None) as batch_op:
        batch_op.create_index(
            "ix_notification_action_user",
            ["api_key_id", "organization_id", "action_user_id", "created_at", "notification_id"],
            unique=False,
        )


def downgrade() -> None:
    with op.batch_alter_table("notification", schema=None) as batch_op:
        batch_op.drop_index("ix_notification_action_user")
        batch_op.drop_column("action_user_id")
